"""Which acts a page of a dataset offers, by its state and the reader's role."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from webapp.datasets.models import Dataset, DatasetExport, DatasetState
from webapp.people.teams.models import Project, User

Builder = Callable[..., Any]
ClientFor = Callable[..., Client]
ROWS = [{"messages": [{"role": "user", "content": f"task {n}"}]} for n in range(3)]
OFFERS = {
    "use": "Use in a new run",
    "derive": "Derive…",
    "download": "Download",
    "read": "Change how it is read",
    "choose": "Choose how to read it",
    "version": "New version",
    "delete": 'data-dialog="delete-dataset"',
    "keep": "dataset-keep",
    "chat": "Try in chat",
    "ask": "An editor of your team can do that.",
}
ALWAYS = {"version", "delete"}
BY_STATE = {
    "ready": (ALWAYS | {"use", "derive", "download", "read", "chat"}, {"download"}),
    "checking": (ALWAYS, set()),
    "needs_mapping": (ALWAYS | {"choose"}, {"ask"}),
    "needs_choice": (ALWAYS | {"read", "keep"}, set()),
    "rejected": (ALWAYS | {"read"}, set()),
}


@pytest.mark.parametrize("state", BY_STATE)
def test_a_page_offers_what_its_reader_may_do_in_this_state(
    state: str, make_dataset: Builder, bob: User, rita: User, client_for: ClientFor
) -> None:
    dataset = make_dataset(state=state, bad_rows=2, report={"preview": ROWS})
    address, keep, delete = (
        reverse(name, args=[dataset.project.slug, dataset.pk])
        for name in ("dataset-detail", "dataset-keep", "dataset-delete")
    )
    for who, expected in zip((bob, rita), BY_STATE[state], strict=True):
        page = client_for(who).get(address).content.decode().replace(f'action="{keep}"', "dataset-keep")
        assert {name for name, text in OFFERS.items() if text in page} == expected, who
    assert [client_for(rita).post(act).status_code for act in (keep, delete)] == [403, 403]
    assert Dataset.objects.get().state == state


def test_only_an_editor_is_offered_an_upload(
    make_dataset: Builder, project: Project, bob: User, rita: User, client_for: ClientFor
) -> None:
    address, link = reverse("dataset-list", args=[project.slug]), reverse("dataset-new", args=[project.slug])
    for version in (1, 2):
        pages = [client_for(who).get(address).content.decode() for who in (bob, rita)]
        assert [f'href="{link}"' in page for page in pages] == [True, False]
        make_dataset(name="d", version=version)


def test_a_row_leads_to_the_rows_around_it(make_dataset: Builder, bob: User, rita: User, client_for: ClientFor) -> None:
    dataset = make_dataset(lines=ROWS)
    places: dict[int, tuple[int | None, int | None]] = {1: (None, 2), 2: (1, 3), 3: (2, None)}
    for number, around in places.items():
        answer = client_for(rita).get(reverse("dataset-row", args=[dataset.project.slug, dataset.pk, number]))
        assert (answer.context["before"], answer.context["after"]) == around
        assert answer.context["row"]["number"] == number and "Try in chat" not in answer.content.decode()
    assert (
        "Try in chat"
        in client_for(bob).get(reverse("dataset-row", args=[dataset.project.slug, dataset.pk, 2])).content.decode()
    )
    for number in (0, 4):
        assert (
            client_for(bob).get(reverse("dataset-row", args=[dataset.project.slug, dataset.pk, number])).status_code
            == 404
        )


def test_ten_bad_rows_are_shown_on_the_page_itself(make_dataset: Builder, rita: User, client_for: ClientFor) -> None:
    bad = [{"line": line, "code": "json"} for line in range(1, 13)]
    dataset = make_dataset(state=DatasetState.NEEDS_CHOICE, bad_rows=12, report={"bad": bad})
    answer = client_for(rita).get(reverse("dataset-detail", args=[dataset.project.slug, dataset.pk]))
    assert [found.line for found in answer.context["bad"]] == list(range(1, 11))
    Dataset.objects.update(bad_rows=0)
    answer = client_for(rita).get(reverse("dataset-detail", args=[dataset.project.slug, dataset.pk]))
    assert answer.context["bad"] == []


def test_what_was_decided_is_said(make_dataset: Builder, make_run: Builder, bob: User, client_for: ClientFor) -> None:
    dataset, client = make_dataset(name="d", state=DatasetState.NEEDS_CHOICE), client_for(bob)

    def post(name: str) -> str:
        answer = client.post(reverse(name, args=[dataset.project.slug, dataset.pk]), follow=True)
        return str(answer.content.decode())

    assert "d@1 is ready without its bad rows." in post("dataset-keep")
    assert "has no open decision about bad rows" in post("dataset-keep")
    run = make_run(config={"data": {"train": dataset.reference}}, name="night")
    assert "used by a run that has not ended: night." in post("dataset-delete") and Dataset.objects.exists()
    run.delete()
    assert "d@1 was deleted." in post("dataset-delete") and not Dataset.objects.exists()


def test_a_filter_form_suggests_columns_and_says_what_is_missing(
    make_dataset: Builder, bob: User, client_for: ClientFor
) -> None:
    dataset = make_dataset(report={"columns": {f"c{n}": 1 for n in range(60)}})
    client, address = client_for(bob), reverse("dataset-make", args=[dataset.project.slug, dataset.pk, "filter"])
    form = client.get(address).context["form"]
    assert form.suggestions == ["text", "turns", "tools", *(f"c{n}" for n in range(50))]
    assert (form["field_1"].value(), form["test_1"].value(), form["name"].value()) == (
        "text",
        "contains",
        "data-1-filtered",
    )

    def errors(**data: str) -> dict[str, list[str]]:
        return dict(client.post(address, {"name": "f", **data}).context["form"].errors)

    assert errors(field_1="n", test_1="contains") == {"value_1": ["Fill in at least one rule."]}
    wrong = errors(field_1="n", test_1="min_length", value_1="x", field_2=" ", value_2="1")
    assert wrong["value_1"][0] == "A length is a whole number."
    rules = {
        "field_1": "n", "test_1": "equals", "value_1": "",
        "field_2": "m", "test_2": "max_length", "value_2": "4",
        "field_3": "o", "value_3": "null",
        "field_4": "p", "test_4": "contains", "value_4": "7", "negate_4": "on",
    }  # fmt: skip
    assert client.post(address, {"name": "f", **rules}).status_code == 302
    assert Dataset.objects.get(name="f").lineage["options"]["rules"] == [
        {"field": "n", "equals": ""},
        {"field": "m", "max_length": 4},
        {"field": "o", "equals": None},
        {"field": "p", "contains": "7", "negate": True},
    ]


def test_a_filter_of_a_version_without_rows_counts_nothing(
    make_dataset: Builder, bob: User, rita: User, client_for: ClientFor
) -> None:
    dataset = make_dataset(state=DatasetState.NEEDS_CHOICE)
    address = reverse("dataset-count", args=[dataset.project.slug, dataset.pk])
    rule = {"field_1": "text", "test_1": "contains", "value_1": "x"}
    assert "Keeps" not in client_for(bob).get(address, rule).content.decode()
    Dataset.objects.update(state=DatasetState.READY)
    assert "Keeps 0 of 3 rows (0%)." in client_for(bob).get(address, rule).content.decode()
    dataset.rows_path.unlink()
    assert "Keeps" not in client_for(bob).get(address, rule).content.decode()
    assert client_for(rita).get(address, rule).status_code == 403


def test_a_subset_is_drawn_or_taken_from_the_beginning(make_dataset: Builder, bob: User, client_for: ClientFor) -> None:
    dataset, client = make_dataset(), client_for(bob)
    address = reverse("dataset-make", args=[dataset.project.slug, dataset.pk, "subset"])
    for name, data, options in (
        ("a", {"way": "first", "rows": "2", "seed": "5"}, {"rows": 2, "seed": None}),
        ("b", {"way": "drawn", "rows": "2", "seed": "5"}, {"rows": 2, "seed": 5}),
        ("c", {"way": "drawn", "rows": "2"}, {"rows": 2, "seed": 0}),
        ("e", {"way": "ids", "ids": "x,, y"}, {"ids": ["x", "y"], "field": "id"}),
    ):
        assert client.post(address, {"name": name, **data}).status_code == 302, name
        assert Dataset.objects.get(name=name).lineage["options"] == options
    assert list(client.post(address, {"name": "f"}).context["form"].errors) == ["way"]
    Dataset.objects.filter(pk=dataset.pk).update(state=DatasetState.NEEDS_CHOICE)
    refused = client.post(address, {"name": "f", "way": "first", "rows": "1"})
    assert refused.status_code == 422 and "is not ready to be used." in refused.content.decode()
    for way, field, words in (("first", "rows", "Say how many rows."), ("ids", "ids", "Give at least one id.")):
        assert client.post(address, {"name": "f", "way": way}).context["form"].errors == {field: [words]}
    assert list(client.post(address, {"name": "f", "way": "first", "rows": "0"}).context["form"].errors["rows"]) == [
        "Ensure this value is greater than or equal to 1."
    ]


def test_a_file_that_was_not_written_is_not_sent(
    make_dataset: Builder, bob: User, rita: User, client_for: ClientFor
) -> None:
    dataset, other = make_dataset(), make_dataset()
    export = DatasetExport.objects.create(dataset=dataset, state="done", file_name="d.jsonl")
    export.path.parent.mkdir(parents=True, exist_ok=True)
    export.path.write_text(json.dumps(ROWS[0]))

    def status(of: Dataset) -> int:
        address = reverse("dataset-export-file", args=[of.project.slug, of.pk, export.pk])
        return int(client_for(rita).get(address).status_code)

    assert (status(dataset), status(other)) == (200, 404)
    DatasetExport.objects.update(state="writing")
    assert status(dataset) == 404
    DatasetExport.objects.update(state="done")
    export.path.unlink()
    assert status(dataset) == 404
    for _number in range(3):
        DatasetExport.objects.create(dataset=other, state="waiting")
    page = client_for(bob).post(
        reverse("dataset-export", args=[dataset.project.slug, dataset.pk]), {"to": "jsonl", "train_ratio": "1"}
    )
    assert page.status_code == 422 and "Files are being written for this project already" in page.content.decode()


def test_the_page_names_the_format_and_the_newest_twenty_runs(
    make_dataset: Builder, make_run: Builder, rita: User, client_for: ClientFor
) -> None:
    dataset = make_dataset(name="d", report={"format": {"rows": "preference"}})
    runs = [make_run(config={"data": {"train": "dataset:d@1"}}) for _number in range(21)]
    answer = client_for(rita).get(reverse("dataset-detail", args=[dataset.project.slug, dataset.pk]))
    assert list(answer.context["runs"]) == runs[:0:-1]
    assert answer.context["format"] == "Preference pairs"
    Dataset.objects.update(report={"format": {"rows": "nonsense"}})
    answer = client_for(rita).get(reverse("dataset-detail", args=[dataset.project.slug, dataset.pk]))
    assert answer.context["format"] == ""
