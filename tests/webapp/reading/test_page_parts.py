"""The pages of a rollout, a group, and the tasks of a run, drawn by themselves: what they offer to whom."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tests.markup import drawn, words

PK, OTHER, NOW = uuid.UUID(int=1), uuid.UUID(int=2), datetime(2026, 1, 1, tzinfo=UTC)
ROLLOUT = {"pk": PK, "index": 1, "outcome": "solved", "get_outcome_display": "solved", "reward": 1.0, "started_at": NOW}
RUN = SimpleNamespace(pk=PK, name="first", state="running", expired=False)


def _rollout(status: str = "running", state: str = "running", held_out: bool = False, **context: Any) -> str:
    view = {"step": 3, "group": 2, "index": 1, "task": "2 + 3", "status": status, "id": PK}
    given: dict[str, Any] = {"part": {"last": 3, "turns": [1]}, "shown": "rendered", "form": {}, "neighbours": {}}
    run = SimpleNamespace(pk=PK, name="first", state=state)
    whole = {**ROLLOUT, "held_out": held_out}
    return drawn("reading/rollout.html", view=view, run=run, rollout=whole, **{**given, **context})


def test_only_editors_end_a_rollout_and_try_it_in_a_chat() -> None:
    acts = [f'action="/p/joust/rollouts/{PK}/{act}/"' for act in ("end", "fail")]
    assert [act in _rollout(can_edit=True) for act in acts] == [True, True]
    for page in (
        _rollout(),
        _rollout("completed", can_edit=True),
        _rollout(state="stopping", can_edit=True),
        _rollout(held_out=True, can_edit=True),
    ):
        assert [act in page for act in acts] == [False, False]
    assert f"/chats/new/?rollout={PK}" in _rollout("completed", can_edit=True) and "/chats/new/" not in _rollout()


@pytest.mark.parametrize("shown", ["rendered", "raw", "tokens"])
def test_the_way_in_which_messages_are_shown_is_marked(shown: str) -> None:
    page = _rollout(shown=shown).partition("data-views")[2].partition("</nav>")[0]
    marked = [part.partition("<")[0] for part in page.split('aria-current="true">')[1:]]
    assert marked == [{"rendered": "Rendered", "raw": "Raw", "tokens": "Tokens"}[shown]]


@pytest.mark.parametrize(
    ("part", "jumps"),
    [({"last": 39}, False), ({"last": 40}, True), ({"last": None}, False), ({"last": 3, "before": 0}, True)],
)
def test_a_long_rollout_has_a_field_for_its_turn(part: dict[str, Any], jumps: bool) -> None:
    page = words(_rollout(part=part))
    assert ("From turn" in page) == jumps and ("Earlier turns" in page) == ("before" in part)
    assert "No turn was recorded." in page and "No turn" not in words(_rollout())


def test_a_rollout_leads_to_its_group_and_branches_where_there_are_some() -> None:
    assert "Group side by side" not in words(_rollout()) and "branch" not in words(_rollout())
    page = words(_rollout(group_url="/group/", branches=2))
    assert "Group side by side" in page and "2 branches" in page
    assert 'type="hidden" name="view" value="raw"' in _rollout(shown="raw", part={"last": 40})
    siblings = _rollout(siblings=[{**ROLLOUT, "policy": "give-up"}, {**ROLLOUT, "pk": OTHER, "index": 2}])
    assert siblings.count('<li aria-current="true">') == 1 and "Rollout 1 · give-up solved" in words(siblings)


def _group(found: dict[str, Any] | None = None, sides: dict[str, Any] | None = None, **context: Any) -> str:
    given: dict[str, Any] = {"step": 3, "group": 2, "text": "2 + 3", "run": RUN, "rollout": ROLLOUT, "most": 4}
    whole: dict[str, Any] = {"flags": [], "mean": None, **(found or {})}
    return drawn("reading/group.html", **{**given, "found": whole, "sides": {"first": 0, **(sides or {})}, **context})


def test_a_group_leads_to_those_next_to_it_the_first_too() -> None:
    assert "/groups/" not in _group().partition('class="page-actions"')[2].partition("</nav>")[0]
    page = _group(before=0, after=3)
    assert 'rel="prev"' in page and "Group 0" in words(page) and "Group 3" in words(page)
    assert 'rel="next"' not in _group(before=1) and 'rel="prev"' not in _group(after=0)


def test_a_group_says_what_is_remarkable_about_it() -> None:
    flat, odd = ({"name": name, "title": name, "text": f"it is {name}"} for name in ("flat", "phantom"))
    assert 'data-kind="info"' in _group({"flags": [flat]}) and 'data-kind="warning"' in _group({"flags": [odd]})
    assert 'id="flags"' not in _group()
    assert "mean reward 0.00" in words(_group({"mean": 0.0, "std": 0.5})) and "mean reward" not in words(_group())


def test_the_advantage_of_a_rollout_is_its_own_else_the_groups() -> None:
    def line(advantage: float | None, shown: bool) -> dict[str, Any]:
        rollout = {**ROLLOUT, "advantage": advantage}
        return {"member": {"rollout": rollout, "total": -2.0}, "shown": shown, "address": "/here/"}

    page = _group(lines=[line(0.0, True), line(None, False)])
    assert page.count("−2.00") == 1 and page.count("<tr data-shown>") == 1
    assert words(page).count("Hide Rollout 1") == words(page).count("Show Rollout 1") == 1


@pytest.mark.parametrize(
    ("sides", "here"),
    [({"differs": 2}, True), ({"differs": 9, "after": 10}, True), ({"differs": 10, "after": 10}, False),
     ({"differs": 1, "first": 2}, False), ({"differs": 2, "first": 2}, True)],
)  # fmt: skip
def test_the_first_difference_is_on_this_page_or_a_link_away(sides: dict[str, Any], here: bool) -> None:
    address = '"#first-difference"' if here else f'"?first={sides["differs"]}#first-difference"'
    assert f"href={address}" in _group(sides=sides)


def test_rollouts_that_are_the_same_say_so_when_there_are_several() -> None:
    member = {"rollout": {**ROLLOUT, "advantage": 0.0}}
    said = ["They are the same" in words(_group(sides={"shown": [member] * number})) for number in (1, 2)]
    assert said == [False, True]
    assert "They are the same" not in words(_group(sides={"shown": [member] * 2, "differs": 0}))
    assert "Earlier turns" in words(_group(sides={"before": 0})) and "Later turns" in words(_group(sides={"after": 4}))
    assert "Earlier turns" not in words(_group()) and "Later turns" not in words(_group())


def _tasks(**context: Any) -> str:
    return drawn("reading/tasks.html", **{"run": RUN, "by": "task", "found": {}, **context})


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"by": "category", "kind": "lost", "all": 3}, "do not say a category."),
        ({"kind": "lost", "all": 3}, "No task is of this kind."),
        ({"kind": "lost", "found": {"columns": [1]}}, "has a verdict yet"),
        ({"found": {"columns": [1]}}, "has a verdict yet"),
        ({}, "says which row of a dataset it played."),
    ],
)
def test_a_map_without_lines_says_why(context: dict[str, Any], said: str) -> None:
    page = words(_tasks(**context).partition('class="empty"')[2])
    sentences = ("do not say a category.", "No task is of this kind.", "has a verdict yet", "which row of a dataset")
    assert said in page and sum(each in page for each in sentences) == 1


def test_the_kinds_of_tasks_mark_the_one_that_is_shown() -> None:
    context = {"all": 3, "kinds": [("lost", "lost", 1), ("kept", "kept", 2)], "sorts": [("row", "row"), ("p", "p")]}
    whole, part = _tasks(**context), _tasks(**context, kind="kept", sort="p")
    assert 'href="?" aria-current="page">all' in whole and 'href="?" aria-current="page"' not in part
    assert 'href="?kind=kept" aria-current="page"' in part and 'href="?kind=lost" aria-current' not in part
    assert 'name="kind" value="kept"' in part and 'name="kind"' not in whole
    assert 'value="p" selected' in part and "selected" not in whole
    assert "task-kinds" not in _tasks(**{**context, "all": 0}) and "task-kinds" not in _tasks(**context, by="category")
