"""Parts of the pages of datasets, drawn by themselves: what each state says, and who may do something about it."""

from __future__ import annotations

import uuid
from typing import Any

from django.utils import timezone

from tests.markup import drawn, words
from webapp.datasets.models import Dataset, DatasetState

PK = uuid.UUID(int=1)


def _page(state: DatasetState, *, can_edit: bool = True, **context: Any) -> str:
    facts = {"report": {}, "lineage": {}, "source": {}, **context.pop("dataset", {})}
    dataset = Dataset(pk=PK, name="sums", version=2, state=state, created_at=timezone.now(), bytes=9, **facts)
    given = {"dataset": dataset, "States": DatasetState, "can_edit": can_edit}
    return drawn("datasets/detail.html", **{**given, **context})


def test_a_dataset_that_is_ready_leads_to_a_run() -> None:
    page = _page(DatasetState.READY)
    assert "Use in a new run" in words(page) and "kind=dpo" not in page
    assert "Use in a new run" not in words(_page(DatasetState.READY, can_edit=False))
    assert "Use in a new run" not in words(_page(DatasetState.NEEDS_CHOICE))
    pairs = _page(DatasetState.READY, dataset={"report": {"format": {"rows": "preference"}}})
    assert "&amp;kind=dpo" in pairs


def test_only_editors_add_a_version_and_delete_one() -> None:
    page = _page(DatasetState.READY, can_edit=False)
    assert "New version" not in page and "Delete" not in page
    assert "New version Delete" in words(_page(DatasetState.READY))
    assert "Change how it is read" in _page(DatasetState.READY, can_read_again=True)
    assert "Change how it is read" not in _page(DatasetState.READY)
    assert "Change how it is read" not in _page(DatasetState.READY, can_edit=False, can_read_again=True)


def test_a_file_that_is_not_understood_waits_for_an_editor() -> None:
    page = words(_page(DatasetState.NEEDS_MAPPING, can_read_again=True))
    assert "Choose how to read it New version" in page and "An editor of your team can do that." not in page
    assert "What the file holds" in page and " Facts " not in page
    other = words(_page(DatasetState.NEEDS_MAPPING, can_edit=False))
    assert "An editor of your team can do that." in other and "Choose how to read it" not in other


def test_bad_rows_are_a_choice_of_editors() -> None:
    rows = {"bad_rows": 2, "rows": 1}
    page = words(_page(DatasetState.NEEDS_CHOICE, dataset=rows))
    assert "2 rows cannot be used" in page and "Keep 1 good row Discard this version" in page and " Facts " in page
    other = words(_page(DatasetState.NEEDS_CHOICE, dataset={"bad_rows": 1, "rows": 2}, can_edit=False))
    assert "1 row cannot be used" in other and "Discard this version" not in other


def test_a_file_that_is_refused_says_why_and_what_else_to_do() -> None:
    page = words(_page(DatasetState.REJECTED, message="It is a log."))
    assert "This file cannot be used It is a log." in page and "Import a run" not in page
    for lineage in ({"parents": ["x"]}, {"operation": "pairs"}, {"operation": "rollouts"}):
        made = words(_page(DatasetState.REJECTED, dataset={"lineage": lineage}))
        assert "It could not be created" in made and "This file cannot be used" not in made
    log = {"report": {"link": "import_run"}}
    assert "Import a run" in _page(DatasetState.REJECTED, dataset=log)
    assert "Import a run" not in _page(DatasetState.REJECTED, dataset=log, can_edit=False)


def _facts(**facts: Any) -> str:
    context = {name: facts.pop(name) for name in ("histogram", "evidence", "format", "versions") if name in facts}
    given = {"pk": PK, "reference": "sums@2", "counted": True, "rows": 7, "bytes": 9, **facts}
    page = words(drawn("datasets/_facts.html", dataset=given, **context))
    return page.removeprefix("Facts Reference sums@2 ").partition(" Versions")[0].replace("\xa0", " ")


def test_the_facts_of_a_dataset_are_those_that_are_known() -> None:
    assert _facts() == "Rows 7 Size 9 bytes"
    assert _facts(counted=False) == "Rows – Size 9 bytes"
    assert _facts(bad_rows=3) == "Rows 7 Bad rows 3 Size 9 bytes"
    chat = {"format": {"name": "chat"}}
    assert _facts(report=chat) == "Rows 7 Size 9 bytes Format chat"
    assert _facts(report=chat, format="turns", evidence=["has messages"]).endswith("chat · turns Why has messages")
    assert _facts(report={"columns": ["a", "b"]}).endswith("Columns a b")
    assert _facts(source={"copied": "old.jsonl"}).endswith("File of old.jsonl")
    assert _facts(source={"hub": {"id": "a/b"}}).endswith("Hugging Face a/b")
    hub = {"id": "a/b", "file": "train.jsonl", "commit": "0123456789"}
    assert _facts(source={"hub": hub}).endswith("Hugging Face a/b train.jsonl @01234567")
    assert _facts(sha256="0123456789abcdef").endswith("SHA-256 0123456789ab…")
    assert _facts(histogram={"max": 9}).endswith("Longest row 9 tokens")


def test_of_the_versions_the_one_that_is_shown_is_marked() -> None:
    other = {"pk": uuid.UUID(int=2), "version": 1, "state": "ready", "get_state_display": "ready", "counted": False}
    other["created_at"] = timezone.now()
    page = drawn("datasets/_facts.html", dataset={"pk": PK}, versions=[{**other, "pk": PK, "counted": True}, other])
    assert page.count('aria-current="true"') == 1 and page.index("aria-current") < page.index("datasets/" + str(PK))
    assert "@1 ready – " in words(page)


def _row(message: dict[str, Any] | None = None, row: dict[str, Any] | None = None, **context: Any) -> str:
    said = {"role": "user", "text": "hi", "is_learned": True, **(message or {})}
    return words(drawn("datasets/_row.html", row={"messages": [said], "number": 3, **(row or {})}, **context))


def test_a_row_names_who_said_what_and_what_is_not_learned() -> None:
    roles = ["user", "assistant", "tool", "system", "critic"]
    names = ["user hi", "assistant hi", "tool result hi", "system hi", "critic hi"]
    assert [_row({"role": role}) for role in roles] == names
    assert _row({"name": "ann", "is_learned": False}) == "user · ann · not learned hi"
    assert _row({"reasoning": "hm", "calls": ["look()"]}) == "user reasoning hm hi look()"
    assert _row({"is_long": True, "head": "h"}) == "user h… hi" and _row({"text": ""}) == "user"
    assert _row(row={"tools": ["look"], "extra": [("answer", 5)]}) == "user hi Tools: look answer 5"
    assert _row(can_chat=True, dataset={"pk": PK}) == "user hi Try in chat"
    cut = [drawn("datasets/_row.html", row={"extra": [("a", 1)]}, whole=whole) for whole in (False, True)]
    assert ["truncate" in page for page in cut] == [True, False]
