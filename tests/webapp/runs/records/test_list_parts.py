"""The list of runs, drawn by itself: what an empty one says, to whom, and which filters hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.markup import drawn, words


def _empty(role: str = "viewer", **context: Any) -> str:
    return drawn("runs/_list.html", role=role, **{"filters": {}, "new_url": "/new", **context})


def test_a_project_without_runs_leads_editors_to_the_first_one() -> None:
    viewer, editor = words(_empty()), words(_empty("editor"))
    assert "No runs yet" in viewer and "Your role in this team is read-only." in viewer and "New run" not in viewer
    assert "New run Already trained elsewhere?" in editor and "read-only" not in editor
    assert "New run" not in words(_empty("editor", new_url=""))


def test_data_that_is_checked_is_named() -> None:
    class Data(SimpleNamespace):
        def __str__(self) -> str:
            return str(self.name)

    data = [Data(pk="00000000-0000-0000-0000-00000000000" + each, name=each) for each in "12"]
    assert "Data is being checked: 1 · 2 A run" in words(_empty(checked_now=data))
    assert "Data is being checked" not in _empty()


def test_an_empty_list_says_whether_a_filter_or_the_archive_is_why() -> None:
    assert "No run matches" in _empty(filtered=True) and "No runs yet" not in _empty(filtered=True, archived=3)
    inside = words(_empty(filters={"archived": True}))
    assert "These runs are archived" in inside and "No run matches" in inside
    archived = words(_empty(archived=2))
    assert archived == "Every run is archived 2 archived runs" and "1 archived run" in words(_empty(archived=1))
    assert "These runs are archived" not in _empty()


def test_the_list_asks_again_only_where_something_may_change() -> None:
    request = {"get_full_path": "/p/joust/runs/?q=a"}
    assert 'hx-get="/p/joust/runs/?q=a"' in _empty(refresh=True, request=request) and "hx-get" not in _empty()


def _page(filters: dict[str, Any] | None = None, **context: Any) -> str:
    given = {"states": [("failed", "failed")], "methods": [("grpo", "GRPO"), ("dpo", "DPO")], "sort": "-created"}
    return drawn("runs/list.html", **{"filters": filters or {}, **given, **context})


def test_filters_keep_what_was_chosen() -> None:
    fresh = _page(tags=["a", "b"], specs=["s"], owners=["bob"])
    assert " selected" not in fresh and " checked" not in fresh and 'name="owner"' not in fresh
    for state in ("active", "failed"):
        page = _page({"state": state})
        assert page.count(" selected") == 1 and f'<option value="{state}" selected>' in page
    chosen = {"kind": "dpo", "owner": "bob", "tags": ["b"], "spec": "s", "starred": True, "sweep": "x"}
    page = _page(chosen, tags=["a", "b"], specs=["s", "t"], owners=["bob"])
    assert '<option value="dpo" selected>' in page and page.count(" selected") == 4 and page.count(" checked") == 2
    for value in ("bob", "b", "s"):
        assert f"<option selected>{value}</option>" in page


def test_what_the_form_does_not_ask_travels_with_it() -> None:
    hidden = [name for name in ("archived", "cols", "sort") if f'type="hidden" name="{name}"' in _page()]
    assert hidden == []
    page = _page({"archived": True}, asked="kl", sort="name")
    assert [name for name in ("archived", "cols", "sort") if f'type="hidden" name="{name}"' in page] == [
        "archived",
        "cols",
        "sort",
    ]
    assert 'name="owner"' in _page(owners=["bob", "dana"])
