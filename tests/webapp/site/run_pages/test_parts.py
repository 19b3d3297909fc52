"""Parts of the pages of runs, drawn by themselves: what they say and offer in each state, without a database."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from tests.markup import drawn, words
from webapp.runs.models import Run

RUN = Run(pk=uuid.UUID(int=1), state="succeeded")
ITEM = SimpleNamespace(pk=uuid.UUID(int=2))


def _needs(item: dict[str, Any] | None = None, now: dict[str, Any] | None = None, **more: Any) -> str:
    """What a preset needs: of no preparation yet, unless ``more`` says so."""
    chosen = {"preset": {"id": "p"}, "size": "small", "going_on": more.pop("going_on", False)}
    chosen |= {"preparation": {"pk": ITEM.pk, **(item or {})}, "now": now or {}}
    return drawn("runs/_needs.html", chosen=chosen, **{"can_edit": True, **more})


def test_what_a_preset_needs_is_made_by_editors_alone() -> None:
    assert words(_needs()) == "Create what is missing Create it and launch the run"
    assert "<form" not in _needs(can_edit=False) and "Viewers cannot create this." in words(_needs(can_edit=False))
    assert words(_needs(now={"ready": True})).startswith("Continue ")
    assert words(_needs(now={"ready": True, "failed": True})).startswith("Try again ")
    failed = words(_needs(item={"state": "failed", "note": "The disk is full."}))
    assert failed == "The disk is full. Try again Create it and launch the run"


def test_what_is_there_already_leaves_only_the_form_below() -> None:
    settled = _needs(now={"settled": True})
    assert "<button" not in settled and 'data-ready="true"' in settled and "hx-get" not in settled
    assert words(settled) == "Everything is ready; the form below is filled in."
    assert "<button" in _needs(item={"state": "failed"}, now={"settled": True})


def test_while_something_is_made_the_page_asks_again_and_editors_may_cancel() -> None:
    page = _needs(item={"launch": True}, now={"settled": False}, going_on=True)
    assert f"&amp;watched={ITEM.pk}" in page and 'data-ready="false"' in page
    assert words(page) == (
        "In progress; the run is launched when everything is ready. It continues if you leave this page. Cancel"
    )
    ready = words(_needs(item={"launch": True}, now={"settled": True}, going_on=True, can_edit=False))
    assert ready == "Everything is ready. The run is being checked and launched."
    kept = _needs(item={"launch": False}, now={"settled": True}, going_on=True)
    assert words(kept) == "In progress. It continues if you leave this page. Cancel" and 'data-ready="false"' in kept
    busy = _needs(now={"busy": True})
    assert "hx-get" in busy and "watched" not in busy


def test_each_need_has_its_name_its_state_and_its_problem() -> None:
    need = {
        "state": "made",
        "label": "Dataset",
        "name": "sums",
        "what": "9 rows",
        "note": "new",
        "state_label": "There",
    }
    page = _needs(now={"needs": [{**need, "url": "/d"}]}, problem="No room")
    assert words(page).startswith("No room Dataset sums 9 rows · new There")
    assert '<a href="/d">sums</a>' in page and "<progress" not in page and "need-problem" not in page
    plain = _needs(now={"needs": [{**need, "what": ""}]})
    assert words(plain).startswith("Dataset sums new There") and "<a" not in plain
    failed = _needs(now={"needs": [{**need, "state": "failed"}]})
    assert '<span class="need-problem" role="alert">new</span>' in failed
    making = {**need, "state": "making"}
    assert 'value="0" aria-label="Dataset"' in _needs(now={"needs": [{**making, "percent": 0}]})
    assert '<progress class="progress" max="100" aria-label="Dataset">' in _needs(now={"needs": [making]})


def _preparation(role: str = "viewer", **item: Any) -> str:
    whole = {"pk": ITEM.pk, "state": "going_on", "launch": False, "note": "No room.", "created_by": None, **item}
    lines = [{"item": whole, "url": "/new", "title": "Sums"}]
    return drawn("runs/_preparations.html", role=role, preparations=lines)


def test_a_preparation_says_how_far_it_is_and_editors_may_end_it() -> None:
    assert words(_preparation()) == "Sums is being prepared."
    assert words(_preparation(launch=True)) == "Sums is being prepared; the run is launched when everything is ready."
    assert words(_preparation("editor")) == "Sums is being prepared. Cancel"
    failed = _preparation("editor", state="failed", launch=True)
    assert words(failed) == "Sums could not be prepared. No room. Dismiss"
    assert 'data-kind="error"' in failed and 'data-at-once="gone"' in failed
    assert 'data-kind="info"' in _preparation("editor") and "data-at-once" not in _preparation("editor")
    assert words(_preparation(created_by={"username": "bob"}, created_at=timezone.now())).startswith(
        "Sums is being prepared. bob ·"
    )


ROLLOUT = SimpleNamespace(pk=uuid.UUID(int=3), step=4, group=5, index=6, outcome="solved", task="2 + 3", attempt=1)


def _said(**more: Any) -> str:
    said = {"rollout": ROLLOUT, "words": "It is 5.", "expected": "5", **more}
    return drawn("runs/_said.html", run=RUN, said=said)


def test_the_newest_text_has_its_task_and_its_answer() -> None:
    assert words(_said()) == "2 + 3 It is 5. expected 5 step 4 · 5.6" and " data-text " in _said()
    assert words(_said(words="", expected="")) == (
        "2 + 3 It wrote only calls, no text. its task names no answer step 4 · 5.6"
    )
    none = drawn("runs/_said.html", run=RUN)
    assert words(none) == "No rollout has written anything yet." and "data-text" not in none and "intersect" not in none
    later = drawn("runs/_said.html", run=RUN, later=True, said={"rollout": ROLLOUT})
    assert words(later) == "Loading…" and " data-later " in later and "intersect once, tiltyard:said" in later


def _summary(fact: dict[str, Any] | None = None, **more: Any) -> str:
    facts = [{"key": "reward", "title": "Reward", "value": "0.5", **(fact or {})}]
    follows = {"code": "compare", "sentence": "Compare it.", **more.pop("next", {})}
    return drawn("runs/_summary.html", **{"summary": True, "facts": facts, "next": follows, **more})


def test_a_summary_has_each_fact_with_what_belongs_to_it() -> None:
    assert words(_summary()) == "Summary Reward 0.5 Compare it. How the figures were made"
    page = _summary({"link": "/r", "tag": "best", "note": "of 9", "about": "held out"})
    assert '<a href="/r">0.5</a>' in page
    assert words(page).startswith("Summary Reward 0.5 best of 9 held out Compare it.")
    acts = [{"id": "save", "url": "/s", "download": True, "label": "Save"}, {"url": "/o", "label": "Open"}]
    acting = _summary({"acts": acts})
    assert '<a id="save" href="/s" download>Save</a><a href="/o">Open</a>' in acting
    assert words(drawn("runs/_summary.html")) == ""
    assert "hx-swap-oob" in _summary(fresh=True) and "hx-swap-oob" not in _summary()


def test_a_summary_leads_on_by_a_link_or_by_a_button() -> None:
    link = _summary(next={"label": "Compare", "url": "/c"})
    assert '<a class="button button-primary" href="/c">Compare</a>' in link and "<form" not in link
    posts = _summary(next={"label": "Resume", "url": "/r", "posts": True, "icon": "play", "code": "resume"})
    assert 'action="/r" data-action="resume"' in posts and 'id="run-resume"' in posts
    assert "button-primary" not in _summary()
    more = [{"code": "x", "sentence": "Try x.", "label": "X", "url": "/x"}, {"code": "y", "sentence": "Try y."}]
    assert "2 more things to try, and how the figures were made Try x. X Try y." in words(_summary(more=more))
    assert "1 more thing to try" in words(_summary(more=more[1:])) and "<a" not in _summary(more=more[1:])


FAILURE = {"title": "Broken", "hint": "Look.", "detail": "no room", "code": "x"}


@pytest.mark.django_db
def test_notices_are_hidden_until_there_is_something_to_say() -> None:
    named = ["run-failure", "run-held", "run-reports", "run-waiting", "run-silent", "run-stall-help"]

    def shown(**context: Any) -> list[str]:
        page = drawn("runs/_notices.html", run=RUN, **{"config": {"all": {"a": 1}}, **context})
        tags = [page[page.rindex("<", 0, at := page.index(f'id="{name}"')) : page.index(">", at)] for name in named]
        return [name for name, tag in zip(named, tags, strict=True) if " hidden" not in tag]

    assert shown() == []
    assert shown(failure=FAILURE) == ["run-failure"]
    assert shown(held="Waits") == ["run-held"]
    assert shown(reports=[("disk", "5 GB")]) == ["run-reports"]
    assert shown(queue={"title": "Second", "lines": []}) == ["run-waiting"]
    assert shown(stalled=True) == ["run-stall-help"]


@pytest.mark.django_db
def test_notices_say_what_happened() -> None:
    def page(run: Any = RUN, **context: Any) -> str:
        return drawn("runs/_notices.html", run=run, **{"config": {"all": {"a": 1}}, **context})

    assert "another version of Tiltyard" in words(page(config={"all": {}}))
    assert "another version of Tiltyard" not in words(page())
    paused = Run(pk=RUN.pk, state="paused")
    assert 'data-kind="warning" role="alert" id="run-failure"' in page(paused, failure=FAILURE)
    assert 'data-kind="error" role="alert" id="run-failure"' in page(failure=FAILURE)
    lines = [{"text": "after", "url": "/r", "link": "run 1"}, {"text": "no worker"}]
    queue = page(queue={"title": "Second", "lines": lines})
    assert "Second after run 1 no worker" in words(queue) and '<a href="/r">run 1</a>' in queue
    output = [f"line {n:02}" for n in range(21)]
    assert "line 01" in page(failure=FAILURE, output=output) and "line 00" not in page(failure=FAILURE, output=output)
    assert "Last lines" not in page(failure=FAILURE) and "Last lines" not in page(output=output)


def _actions(role: str = "viewer", **context: Any) -> str:
    view = {"state": "running", "priority": 1, **context.pop("view", {})}
    more = {"priorities": [(0, "low"), (1, "normal")], "can_edit": role != "viewer", "can": {}, **context}
    return drawn("runs/_actions.html", role=role, view=view, **{"run": RUN, **more})


def test_the_acts_on_a_run_are_those_that_its_state_allows() -> None:
    assert words(_actions()) == "⋯ Compare"
    assert words(_actions(can={"pause": True, "stop": True})) == "Pause Stop Stop ⋯ Compare"
    assert words(_actions(can={"stop": True}, fresh=True)) == "Stop ⋯ Compare"
    can = dict.fromkeys(("branch", "lab", "clone", "pairs", "export"), True)
    urls = {"branch_url": "/b", "clone_url": "/c"}
    every = "⋯ Resume with changes Open in the lab Compare Clone Preference pairs Export"
    assert words(_actions(can=can, **urls)) == every
    assert words(_actions(can=can)) == "⋯ Open in the lab Compare Preference pairs Export"
    assert words(_actions(can={"clone": True}, clone_url="/c", next={"code": "clone"})) == "⋯ Compare"
    assert words(_actions(can={"lab": True}, lab_in_card=True)) == "⋯ Compare"


def test_owners_order_the_queue_and_delete_what_has_ended() -> None:
    queued = {"state": "queued", "on_hold_at": None}
    assert words(_actions("editor", view=queued)) == "⋯ Compare Tags and notes"
    own = words(_actions("owner", view=queued))
    assert own == "⋯ Compare Put on hold Put first in its class Priority: low Tags and notes Delete…"
    held = _actions("owner", view={**queued, "on_hold_at": "2026"})
    assert 'value="release"' in held and " Release " in words(held)
    assert words(_actions("owner", can={"stop": True}, fresh=True)) == "Stop ⋯ Compare Tags and notes"
    assert "Priority" not in words(_actions("owner", view={"state": "running"}))


def test_an_archived_run_may_be_taken_out_of_the_archive() -> None:
    inside = Run(pk=RUN.pk, archived_at=timezone.now())
    assert words(_actions("editor", archivable=True)).endswith("Tags and notes Archive")
    out = _actions("editor", archivable=True, run=inside)
    assert words(out).endswith("Take out of the archive") and 'name="on" value="0"' in out
    assert 'name="on" value="1"' in _actions("editor", archivable=True)
    assert "Archive" not in words(_actions("viewer", archivable=True))


def test_a_preset_is_marked_where_it_is_chosen() -> None:
    sizes = [("small", "Small", "fits"), ("full", "Full", "large")]
    system = {"title": "Sums", "about": "Add.", "offers": [{"id": "p", "title": "Plain", "sizes": sizes}]}
    chosen = {"preset": {"id": "p", "source": "us"}, "size": "full", "sizes": sizes, "title": "Plain", "now": {}}
    page = drawn("runs/_presets.html", systems=[{**system, "promise": "Quick", "device": "a card"}], chosen=chosen)
    assert page.count('size=full" aria-current="true"') == 2 and page.count('aria-current="true"') == 2
    assert "Start from a preset instead" in page and 'id="gallery">' in page
    assert "Quick · Full size fits a card" in words(page) and "Where these settings come from" not in page
    fresh = drawn("runs/_presets.html", systems=[{**system, "device": "a card"}])
    assert "aria-current" not in fresh and 'id="gallery" open' in fresh
    assert words(fresh) == "Start from a preset Sums Add. Small Full Full size fits a card"
    one = drawn("runs/_presets.html", systems=[], chosen={**chosen, "sizes": sizes[1:], "notes": ["n"]})
    assert 'aria-label="Size"' not in one and "Where these settings come from 1 n Source: us." in words(one)
