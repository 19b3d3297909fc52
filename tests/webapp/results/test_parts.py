"""The page of a model and its card of a push to a hub, drawn by themselves: what they say and offer to whom."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tests.markup import drawn, words

PK = uuid.UUID(int=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _push(state: str = "", **context: Any) -> str:
    push = {"state": state, "get_state_display": state, "repository": "a/b", "private": False, "created_at": NOW}
    push |= context.pop("push", {})
    given = {"push": push if state else None, "push_on": True, "can_edit": True, "hub": "the hub", "push_form": {}}
    return drawn("model_pages/_push.html", model={"pk": PK}, **{**given, **context})


def test_a_push_is_offered_to_editors_while_none_is_on_its_way() -> None:
    assert (
        words(_push()).startswith("Push to a hub Push to the hub ") and '<details class="fold-plain" open>' in _push()
    )
    assert "<form" not in _push(can_edit=False) and "<form" not in _push("waiting") and "<form" not in _push("sending")
    assert _push("done").count("<form") == 1 and '<details class="fold-plain">' in _push("done")
    assert "<form" not in _push(push_on=False) and "The operator turns it on" in _push(push_on=False)
    assert "The operator turns it on" not in _push()


def test_a_push_that_failed_says_why_and_can_be_tried_again_as_it_was() -> None:
    failure = {"title": "No room", "detail": "full", "hint": "Delete."}
    failed = _push("failed", push_failure=failure)
    assert "No room full Delete. Try again" in words(failed) and 'data-state="failed"' in failed
    assert 'name="private"' not in failed and 'name="private"' in _push("failed", push={"private": True})
    assert 'name="repository" value="a/b"' in failed
    again = _push("failed", push_again=True)
    assert "Try again" not in again and '<details class="fold-plain" open>' in again
    assert "reported" not in _push("failed", push_failure={"title": "No room"})


def test_a_push_on_its_way_has_its_progress_and_asks_again() -> None:
    sending = _push("sending", push={"progress": {"total": 2048, "bytes": 1024}})
    assert "hx-get" in sending and 'max="2048" value="1024"' in sending and 'data-state="running"' in sending
    assert "hx-get" in _push("waiting") and "<progress" not in _push("waiting")
    for state in ("", "done", "failed"):
        assert "hx-get" not in _push(state), state
    done = _push("done", push={"url": "/c", "commit": "abc", "private": True})
    assert '<a href="/c"' in done and "a/b private ·" in words(done) and 'data-state="succeeded"' in done
    assert "a/b public ·" in words(_push("done"))


def _glance(score: dict[str, Any] | None = None, **model: Any) -> str:
    context = {name: model.pop(name) for name in ("bytes", "adapter") if name in model}
    one = {"pk": PK, "kind": "hub", "get_kind_display": "hub", "created_at": NOW, "source": "a/b", **model}
    return words(drawn("model_pages/_glance.html", model=one, score=score, **context))


def test_a_model_at_a_glance_has_its_success_its_weights_and_its_size() -> None:
    assert _glance().startswith("Success – not evaluated yet Weights a/b hub Size fetched when it is used Registered ")
    success = {"text": "60%", "low": "50%", "high": "70%"}
    scored = _glance({"success": success, "data": "sums@1", "overlap": {"words": "2 shared"}})
    assert scored.startswith("Success 60% 95%: 50% to 70% · sums@1 (2 shared) Weights")
    assert _glance({"success": {"text": "60%"}}).startswith("Success 60% drawn by the environment Weights")
    trained = _glance(checkpoint={"run_id": PK, "run": {"name": "run 1"}, "step": 7}, bytes=9, adapter=True)
    assert "Weights run 1 hub · step 7 Size 9 bytes Download the LoRA adapter alone" in trained
    assert "hub · 0123456789ab…" in _glance(revision="0123456789abcdef") and "Weights – hub" in _glance(source="")
    assert "Size The files are gone. Registered" in _glance(kind="folder") and "by bob" not in _glance()
    marked = _glance(mark="good", get_mark_display="good", marked_at=NOW, created_by={"username": "bob"})
    assert " by bob Mark Good " in marked and "Mark" not in _glance()


class _NoSuites:
    """A project without suites."""

    objects = SimpleNamespace(filter=lambda **_of: [])


def _model(monkeypatch: pytest.MonkeyPatch, **context: Any) -> str:
    monkeypatch.setattr("webapp.site.tags.Suite", _NoSuites)
    one = {"pk": PK, "name": "small", "kind": "hub", "reference": "model:small", "created_at": NOW}
    one |= context.pop("model", {})
    given = {"bytes": None, "push_form": {}, "marks": [("good", "good"), ("bad", "bad")], **context}
    return drawn("model_pages/detail.html", model=one, **given)


def test_a_viewer_of_a_model_may_only_download_it(monkeypatch: pytest.MonkeyPatch) -> None:
    page = _model(monkeypatch, bytes=9)
    assert f'href="/api/v1/models/{PK}/download"' in page and 'id="push"' in page
    for act in ("/runs/new/", "/chats/new/", "<form", 'name="mark"', "edit="):
        assert act not in page, act
    gone = _model(monkeypatch, can_edit=True)
    assert "/download" not in gone and 'id="push"' not in gone


def test_an_editor_evaluates_a_model_chats_trains_from_it_and_marks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    page = _model(monkeypatch, can_edit=True)
    for address in ("runs/new/?kind=evaluate&amp;", "chats/new/?", "runs/new/?"):
        assert f'href="/p/joust/{address}model=model%3Asmall"' in page, address
    assert page.count('name="mark"') == 2 and 'aria-pressed="true"' not in page
    assert "/chats/new/" not in _model(monkeypatch, can_edit=True, model={"kind": "starter"})
    marked = _model(monkeypatch, can_edit=True, model={"mark": "bad", "get_mark_display": "bad", "marked_at": NOW})
    assert 'data-mark="bad">bad</span>' in marked and "data-mark" not in page
    assert 'value="bad" aria-pressed="true"' in marked and 'value="good" aria-pressed="false"' in marked
    assert marked.count('name="mark"') == 3 and 'name="mark" value="">Take the mark away' in marked
