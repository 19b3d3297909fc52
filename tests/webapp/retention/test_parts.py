"""The page of retention, drawn by itself: who may change its rules, and what was freed."""

from __future__ import annotations

import uuid
from typing import Any

from django.utils import timezone

from tests.markup import drawn, words

PK, NOW = uuid.UUID(int=1), timezone.now()


def _page(**context: Any) -> str:
    return drawn("retention/page.html", **{"form": {}, "headline": "Nothing", **context})


def test_only_owners_change_the_rules() -> None:
    page, own = words(_page()), words(_page(is_owner=True))
    assert "Owners of the project change these rules." in page and "Save" not in page
    assert "Save See what it frees Back" in own and "Owners of the project" not in own
    changed = {"changed_by": {"username": "bob"}, "changed_at": NOW}
    assert "Last change by bob ·" in words(_page(is_owner=True, changed=changed))


def test_a_preview_says_that_nothing_is_saved() -> None:
    preview = words(_page(preview=True))
    assert preview.startswith("What would these rules free?") and "nothing is saved yet" in preview
    assert words(_page()).startswith("What do the rules free?") and "nothing is saved yet" not in words(_page())


def test_what_was_freed_leads_to_runs_that_are_there() -> None:
    def freed(**item: Any) -> str:
        whole = {"run_name": "run 1", "bytes": 9, "at": NOW, "get_kind_display": "logs", **item}
        return _page(lately=[(whole, "after 30 days")])

    run = {"pk": PK, "removed_at": None}
    assert f"/runs/{PK}/" in freed(run=run) and "run 1 logs after 30 days" in words(freed(run=run))
    assert "/runs/" not in freed(run={**run, "removed_at": NOW}).split("Freed lately")[1]
    assert "/runs/" not in freed(run=None).split("Freed lately")[1]
    removal = {"state": "failed", "get_state_display": "failed"}
    assert "run 1 failed logs" in words(freed(removal=removal))
    assert "run 1 logs" in words(freed(removal={**removal, "state": "done"}))
    assert "<table" not in _page()
