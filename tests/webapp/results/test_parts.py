"""The page of a model and its card of a push to a hub, drawn by themselves: what they say and offer to whom."""

from __future__ import annotations

import re
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
    assert (
        "Size 0 bytes" in _glance(bytes=0)
        and "Size The files are gone. Registered" in _glance(kind="folder")
        and "by bob" not in _glance()
    )
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


def test_a_lineage_marks_the_model_and_lists_what_was_trained_from_it() -> None:
    nodes = [
        {"kind": "start", "title": "Qwen", "facts": [{"label": "Size", "text": "1 GB"}]},
        {
            "kind": "run",
            "title": "run 1",
            "url": "/run/",
            "about": "GRPO",
            "facts": [{"text": "sums", "url": "/sums/"}],
        },
        {"kind": "model", "title": "small"},
    ]
    page = drawn("model_pages/_lineage.html", nodes=nodes, children={})
    assert re.findall(r'data-kind="(\w+)"( aria-current="true")?', page) == [
        ("start", ""),
        ("run", ""),
        ("model", ' aria-current="true"'),
    ]
    assert '<a href="/run/">run 1</a>' in page and '<a href="/sums/">sums</a>' in page and "Size 1 GB" in words(page)
    assert words(page).endswith("small Nothing was trained from it yet.")
    child = {"title": "run 2", "url": "/two/", "about": "SFT"}
    for more, end in ((0, "run 2 SFT"), (1, "run 2 SFT and 1 more")):
        given = drawn("model_pages/_lineage.html", nodes=nodes, children={"nodes": [child], "more": more})
        assert words(given).endswith(f"Trained from it {end}"), more


def test_tags_and_notes_are_asked_for_where_there_are_neither() -> None:
    def about(tags: list[str], notes: str, **context: Any) -> str:
        model = {"pk": PK, "tags": tags, "notes": notes}
        return drawn("model_pages/_about.html", model=model, **{"edit": "", "about_form": {}, **context})

    asked = "What should your team know"
    cases: list[tuple[list[str], str]] = [([], ""), (["best"], ""), ([], "Keep."), (["best"], "Keep.")]
    assert [asked in about(*given) for given in cases] == [True, False, False, False]
    assert words(about(["best", "old"], "Keep.")) == "Tags and notes best old Keep."
    assert "edit=about" not in about([], "") and "edit=about" in about([], "", can_edit=True)
    form = about(["best"], "Keep.", can_edit=True, edit="about")
    assert "Save Cancel" in words(form) and "edit=about" not in form and "best" not in form


def test_a_card_is_shown_and_its_sections_are_written_by_editors() -> None:
    def card(**context: Any) -> str:
        return drawn("model_pages/_card.html", model={"pk": PK}, **{"edit": "", "card_form": [], **context})

    assert "Show the whole card" in card() and "edit=card" not in card() and "edit=card" in card(can_edit=True)
    shown = card(card="# small")
    assert 'tabindex="0"># small</pre>' in shown and "Show the whole card" not in shown
    writing = card(can_edit=True, edit="card", card="# small")
    assert "<form" in writing and "edit=card" not in writing and "# small" not in writing


def test_scores_say_what_they_were_measured_on_and_where_they_can_be_compared() -> None:
    run, report = {"pk": PK, "name": "eval 3"}, {"tasks": 8, "most": 4}
    bare = {"success": {"text": "60%"}, "report": report, "run": run, "at": NOW}
    full = {**bare, "data": "sums@1", "environment": "tools", "trained_on": True, "left_out": "2 failed"}
    full |= {"overlap": {"words": "3 learned"}, "base_url": "/base/", "all_url": "/all/"}
    page = drawn("model_pages/_scores.html", scores=[bare, full], model={"reference": "model:small"})
    assert words(page).startswith("Scores 2 means over tasks") and "Not evaluated yet" not in words(page)
    assert "drawn by the environment 60% 8 × 4 – eval 3" in words(page)
    assert "sums@1 trained on 3 learned 2 failed 60% 8 × 4 tools eval 3" in words(page)
    assert [page.count(link) for link in ('href="/base/"', 'href="/all/"', "/runs/new/")] == [1, 1, 0]
    gap = {"scores": [bare], "base_evaluate_url": "/runs/new/?base"}
    viewer, editor = [drawn("model_pages/_scores.html", can_edit=on, **gap) for on in (False, True)]
    assert "has not been evaluated on" in words(viewer) and "/runs/new/?base" not in viewer
    assert 'href="/runs/new/?base"' in editor
    none = [drawn("model_pages/_scores.html", model={"reference": "model:small"}, can_edit=on) for on in (False, True)]
    assert ["Not evaluated yet" in words(given) for given in none] == [True, True]
    assert ["?kind=evaluate&amp;model=model%3Asmall" in given for given in none] == [False, True]


def test_ways_to_serve_a_model_are_copied_where_its_files_are_here() -> None:
    ways = [{"id": "vllm", "title": "vLLM", "about": "fast", "text": "vllm serve"}]
    page = drawn("model_pages/_serve.html", ways=ways)
    assert 'data-copy="#vllm"' in page and 'id="vllm" tabindex="0">vllm serve</pre>' in page
    assert "nothing to serve" in words(drawn("model_pages/_serve.html", ways=[])) and "nothing" not in words(page)
