"""Both sides of each limit of imports and exports, the names of what comes in, and whose rows count."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from training.errors import DataError
from webapp.foreign.figure_files import (
    Figure,
    _in_parts,
    _path_part,
    has_ended,
    metrics_order,
    step_times,
    write_csv_wide,
)
from webapp.foreign.importing import (
    _attempt_folders,
    _first_and_last_time,
    _free_name,
    _shown_name,
    import_create,
    import_report,
    import_view,
    imports_of,
    percent_of,
)
from webapp.foreign.models import RunExport, RunImport
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_broker")]
GIB = 1024**3


def files(*sizes: int) -> list[SimpleUploadedFile]:
    return [SimpleUploadedFile(f"f{number}.log", b"x" * size) for number, size in enumerate(sizes)]


def ask(project: Project, *sizes: int, **over: Any) -> RunImport:
    return import_create(**({"project": project, "user": None, "name": "", "files": files(*sizes)} | over))


@pytest.mark.parametrize(
    ("sizes", "words"), [((), "Choose at least one file"), ((0, 0), "The file is empty"), ((60, 41), "larger than")]
)
def test_files_that_cannot_be_a_run_are_refused(
    sizes: tuple[int, ...], words: str, project: Project, settings: Any
) -> None:
    settings.MAX_UPLOAD_BYTES = 100
    with pytest.raises(ValidationError) as caught:
        ask(project, *sizes)
    assert words in caught.value.message_dict["uploads"][0] and not RunImport.objects.exists()


def test_files_of_just_the_limit_are_kept(project: Project, bob: User, settings: Any) -> None:
    settings.MAX_UPLOAD_BYTES = 100
    made = ask(project, 60, 0, 40, user=bob, name=" mine ", source_run=" b\x00 ")
    assert made.files == [{"name": f"f{number}.log", "bytes": size} for number, size in enumerate((60, 0, 40))]
    assert (made.name, made.source_run, made.created_by, made.state) == ("mine", "b\u2400", bob, "reading")


def test_an_import_needs_four_times_its_size_on_the_disk(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [40 + GIB - 1]
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free[0]))
    with pytest.raises(ValidationError, match="disk is nearly full"):
        ask(project, 10)
    free[0] += 1
    assert ask(project, 10).state == "reading"


def test_three_imports_of_a_project_are_read_at_once(project: Project, elsewhere: Project) -> None:
    for state in ("done", "rejected", "reading", "reading"):
        RunImport.objects.create(project=project, state=state)
    RunImport.objects.create(project=elsewhere, state="reading")
    made = ask(project, 1)
    with pytest.raises(ValidationError, match="Other imports of this project are being read"):
        ask(project, 1)
    assert imports_of(project).count() == 5 and imports_of(project)[0] == made


@pytest.mark.parametrize(
    ("name", "shown"),
    [(None, "file"), ("", "file"), ("a\nb.log", "a b.log"), ("x" * 201, "x" * 200), ("y" + "x" * 199, "y" + "x" * 199)],
)
def test_the_name_of_a_file_is_shown_by_its_end(name: str | None, shown: str) -> None:
    assert _shown_name(name) == shown


def test_a_run_gets_a_name_that_is_free_in_its_project(project: Project, elsewhere: Project, make_run: Any) -> None:
    make_run(name="night", project=elsewhere)
    assert _free_name(project, "night") == "night"
    make_run(name="night")
    assert _free_name(project, "night") == "night (2)"
    make_run(name="night (2)")
    assert _free_name(project, "night") == "night (3)"
    assert [_free_name(project, text) for text in ("a/b\\c", " .-x", "", "/", "n" * 71)] == [
        "a-b-c",
        "x",
        "imported",
        "imported",
        "n" * 70,
    ]


def journal(path: Path, *times: float) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"v": 1, "n": n, "t": t, "type": "log", "message": "m"}) for n, t in enumerate(times, start=1)]
    (path / "journal.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return path


def test_attempts_are_the_numbered_folders_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no journal\.jsonl"):
        _attempt_folders(tmp_path)
    for name in ("10", "2", "x3"):
        journal(tmp_path / name, 1.0)
    (tmp_path / "4").mkdir()
    assert _attempt_folders(tmp_path) == {1: tmp_path / "2", 2: tmp_path / "10"}
    journal(tmp_path, 1.0)
    assert _attempt_folders(tmp_path) == {1: tmp_path}


def test_a_journal_lasted_from_its_first_event_to_its_last(tmp_path: Path) -> None:
    def lasted(*times: float) -> list[float] | None:
        found = _first_and_last_time(journal(tmp_path / "j", *times) / "journal.jsonl")
        return None if found is None else [moment.timestamp() for moment in found]

    assert lasted(5.0, 6.0, 9.0) == [5.0, 9.0]
    assert lasted(*(float(number) for number in range(2000))) == [0.0, 1999.0], "longer than its tail"
    assert lasted() is None


@pytest.mark.parametrize(
    ("progress", "percent"),
    [({}, 0), ({"total": 8}, 0), ({"bytes": 3, "total": 8}, 38), ({"bytes": 9, "total": 8}, 100)],
)
def test_the_progress_of_an_import_is_a_percentage(progress: dict[str, int], percent: int) -> None:
    assert percent_of(RunImport(progress=progress)) == percent


def test_a_report_sums_the_bad_rows_and_lists_what_was_left_out() -> None:
    listed = [
        {"name": "a", "kind": "nonsense", "bad_rows": 2, "left_out": {"c": "no number"}, "notes": ["n", "m"]},
        {"name": "b", "bad_rows": 3, "left_out": {f"c{n}": "x" for n in range(250)}, "notes": ["m", "o"]},
    ]
    shown = import_view({"files": listed, "bad": [{"line": 1, "reason": "odd"}]})
    assert (shown["bad_rows"], shown["notes"], len(shown["columns"])) == (5, ["n", "m", "o"], 200)
    assert shown["columns"][0] == {"file": "a", "column": "c", "why": "no number"}
    assert shown["bad"] == [{"line": 1, "reason": "odd"}] and shown["remarks"] == []
    notes = [{"notes": [f"n{n}" for n in range(60)]}]
    assert len(import_view({"files": notes})["notes"]) == 50 and import_view({})["bad_rows"] == 0
    assert import_report(Run()) == {} and import_report(Run(imported_from="verl")) == {}


def test_only_an_editor_is_offered_an_import(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    address = reverse("run-import", args=[project.slug])
    assert [client_for(who).get(address).status_code for who in (bob, rita)] == [200, 403]
    item = RunImport.objects.create(project=project, name="n")
    page = reverse("run-import-progress", args=[project.slug, item.pk])
    assert "HX-Refresh" not in client_for(rita).get(page).headers
    RunImport.objects.update(state="rejected")
    assert client_for(rita).get(page)["HX-Refresh"] == "true"


# --- Exports ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("state", "ended"),
    [
        ("draft", False), ("queued", False), ("running", False), ("pausing", False), ("stopping", False),
        ("paused", True), ("succeeded", True), ("failed", True), ("cancelled", True),
    ],
)  # fmt: skip
def test_metrics_are_complete_once_a_run_does_not_change(state: str, ended: bool) -> None:
    assert has_ended(Run(state=state)) is ended


def test_three_files_of_a_project_are_written_at_once_while_there_is_room(
    project: Project, elsewhere: Project, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, theirs = make_run(name="n", state="failed"), make_run(state="failed", project=elsewhere)
    for of, state in ((run, "waiting"), (run, "writing"), (run, "done"), (theirs, "waiting")):
        RunExport.objects.create(run=of, format="csv", state=state)
    free = [GIB - 1]
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free[0]))
    with pytest.raises(ValidationError, match="disk is nearly full"):
        metrics_order(run=run, user=None, to="csv")
    free[0] += 1
    assert metrics_order(run=run, user=None, to="csv_wide").file_name == "n-metrics.wide.csv"
    with pytest.raises(ValidationError, match="being written for this project already"):
        metrics_order(run=run, user=None, to="csv")


@pytest.mark.parametrize(
    ("name", "part"), [("a/b: c", "a-b-c"), (".-x.", "x"), ("夜", "夜"), ("//", "run"), ("", "run")]
)
def test_a_name_becomes_a_part_of_a_path(name: str, part: str) -> None:
    assert _path_part(name) == part


def test_the_time_of_a_step_is_when_it_was_written_first(tmp_path: Path) -> None:
    def line(step: int, at: float, kind: str = "metrics") -> str:
        values = {"v": 1, "n": 1, "t": at, "type": kind, "step": step, "values": {"loss": 1.0}}
        return json.dumps(values, separators=(",", ":")) + "\n"

    (tmp_path / "journal.jsonl").write_text(line(1, 5.0) + line(1, 6.0) + line(2, 7.0) + line(3, 8.0, "log") + '{"torn')
    assert step_times(tmp_path) == {1: 5.0, 2: 7.0} and step_times(tmp_path / "gone") == {}


def test_a_line_of_a_step_has_its_newest_attempt(tmp_path: Path) -> None:
    figures = [Figure(1, 2, "a", 0.5, 20.0), Figure(1, 1, "b", 0.0, 10.0), Figure(2, 3, "b", 2.0, None)]
    write_csv_wide(figures, ["a", "b"], tmp_path / "x", "t", 0.0)
    with (tmp_path / "x").open(encoding="utf-8-sig", newline="") as file:
        assert list(csv.reader(file)) == [
            ["step", "time", "attempt", "a", "b"],
            ["1", "1970-01-01T00:00:20.000+00:00", "2", "0.5", "0.0"],
            ["2", "", "3", "", "2.0"],
        ]


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2])])
def test_figures_are_written_in_parts(count: int, sizes: list[int]) -> None:
    figures = [Figure(number, 1, "a", 0.0, None) for number in range(count)]
    assert [len(part) for part in _in_parts(figures, 2)] == sizes
