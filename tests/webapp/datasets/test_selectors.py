"""What pages show of a dataset's report, and which runs use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webapp.common.pools import LONG, SHORT
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.operations import children_of, lineage_of, parent_of
from webapp.datasets.selectors import (
    Bar,
    histogram_of,
    percent_of,
    preview_of,
    ready_datasets,
    runs_using,
    versions_of,
)
from webapp.people.teams.models import Project, User

Builder = Callable[..., Any]


@pytest.mark.parametrize(("size", "pool"), [(0, LONG), (1, SHORT), (8 * 1024**2, SHORT), (8 * 1024**2 + 1, LONG)])
def test_small_files_are_checked_by_workers_of_their_own(size: int, pool: str) -> None:
    assert Dataset(bytes=size).pool == pool


@pytest.mark.parametrize(
    ("state", "counted"),
    [("checking", False), ("needs_mapping", False), ("needs_choice", True), ("ready", True), ("rejected", True)],
)
def test_rows_are_counted_by_a_check(state: str, counted: bool) -> None:
    assert Dataset(state=state).counted is counted


def test_the_histogram_is_drawn_by_value() -> None:
    length = {"counts": [4, 0, 1, 1000], "edges": [0, 1, 10, 20, 40], "unit": "tokens", "p50": 3, "p95": 30, "max": 39}
    found = histogram_of({"length": length})
    assert found is not None and found[1:] == ("tokens", 3, 30, 39)
    assert found.bars == [
        Bar(2, 148, 156, 2, 80, "0", 4),  # at least two units high, to be seen
        Bar(162, 150, 156, 0, 240, "1–9", 0),
        Bar(322, 148, 156, 2, 400, "10–19", 1),
        Bar(482, 20, 156, 130, 560, "20–39", 1000),
    ]
    empty = histogram_of({"length": {"counts": [0, 0], "edges": [0, 5, 10]}})
    assert empty is not None and [bar.height for bar in empty.bars] == [0, 0]


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"length": {}},
        {"length": {"edges": [0]}},
        {"length": {"counts": [1]}},
        {"length": {"counts": [1], "edges": [0, 1, 2]}},
    ],
)
def test_there_is_no_histogram_without_lengths(report: dict[str, Any]) -> None:
    assert histogram_of(report) is None


@pytest.mark.parametrize(
    ("progress", "percent"),
    [
        ({}, 0),
        ({"total": 0, "bytes": 5}, 0),
        ({"total": 8}, 0),
        ({"total": 8, "bytes": 3}, 38),
        ({"total": 8, "bytes": 9}, 100),
    ],
)
def test_the_progress_of_a_check_is_a_percentage(progress: dict[str, int], percent: int) -> None:
    assert percent_of(Dataset(progress=progress)) == percent


@pytest.mark.parametrize(("length", "head"), [(280, ""), (281, "x" * 280)])
def test_a_long_text_is_folded_after_its_head(length: int, head: str) -> None:
    (message,) = preview_of({"preview": [{"messages": [{"role": "user", "content": "x" * length}]}]})[0]["messages"]
    assert (message["is_long"], message["head"], len(message["text"])) == (bool(head), head, length)


def test_a_preview_has_the_question_as_its_title_and_the_names_of_tools() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}, "odd"]
    rows = ["odd", {"messages": messages, "tools": [{"function": {"name": "add"}}, {"name": "ls"}, {}, 3]}, {}]
    first, second = preview_of({"preview": rows})
    assert (first["number"], first["title"], first["tools"]) == (2, "Why?", ["add", "ls", "?"])
    assert (second["number"], second["title"], second["messages"], second["extra"]) == (3, "", [], [])
    assert preview_of({}) == []
    silent = {"messages": [{"role": "assistant", "content": None, "name": None}, {"content": "x"}]}
    shown = preview_of({"preview": [silent]})[0]["messages"]
    assert [(each["role"], each["text"], each["name"]) for each in shown] == [("assistant", "", ""), ("", "x", "")]


def test_versions_and_what_is_ready_are_of_the_project(make_dataset: Builder, project: Project, charlie: User) -> None:
    other = Project.objects.get(slug="elsewhere")
    first, second = (make_dataset(name="b", version=number) for number in (1, 2))
    third = make_dataset(name="a", state=DatasetState.CHECKING)
    fourth = make_dataset(name="a", version=2)
    make_dataset(name="b", version=3, project=other)
    assert list(versions_of(first)) == [second, first]
    assert list(ready_datasets(project)) == [fourth, second, first] and list(versions_of(third)) == [fourth, third]


def test_runs_use_a_dataset_by_its_reference_or_its_rows(
    make_dataset: Builder, make_run: Builder, project: Project, charlie: User
) -> None:
    dataset, other = make_dataset(name="d"), Project.objects.get(slug="elsewhere")
    by_name, path = {"data": {"train": "dataset:d@1"}}, str(dataset.rows_path)
    using = [
        make_run(config=by_name),
        make_run(resolved={"data": {"train": path}}),
        make_run(config={"evaluate": {"data": "dataset:d@1"}}, state="failed"),
        make_run(resolved={"evaluate": {"data": path}}, state="succeeded"),
    ]
    make_run(config={"data": {"train": "dataset:d@2"}})
    make_run(config=by_name, project=other)
    assert set(runs_using(dataset)) == set(using)
    assert set(runs_using(dataset, active=True)) == set(using[:2])


def test_parents_and_children_are_of_the_project(make_dataset: Builder, charlie: User) -> None:
    other = Project.objects.get(slug="elsewhere")
    parent, hidden = make_dataset(sha256="ab" * 32), make_dataset(project=other)
    lineage = {
        "operation": "mix",
        "options": {"weights": [1, 2.5], "seed": 3},
        "parents": [parent_of(parent), parent_of(hidden)],
    }
    newest, oldest = (make_dataset(lineage=lineage, **more) for more in ({}, {}))
    Dataset.objects.filter(pk=oldest.pk).update(created_at=parent.created_at)
    make_dataset(project=other, lineage=lineage)
    assert list(children_of(parent)) == [oldest, newest]
    shown = lineage_of(newest)
    assert [(item.reference, item.sha256, item.rows, item.taken, item.dataset) for item in shown.parents] == [
        (parent.reference.removeprefix("dataset:"), "ab" * 32, 3, None, parent),
        (hidden.reference.removeprefix("dataset:"), "", 3, None, None),
    ]
