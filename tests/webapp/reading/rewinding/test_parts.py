"""The pages of branches, drawn by themselves: what they offer to whom, and what they say of each state."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from tests.markup import drawn, words

PK, OTHER, NOW = uuid.UUID(int=1), uuid.UUID(int=2), datetime(2026, 1, 1, tzinfo=UTC)
ROLLOUT = {"pk": PK, "outcome": "solved", "get_outcome_display": "solved", "turns": 4, "reward": 1.0}
BRANCH = {"pk": OTHER, "turn": 2, "same": True, "turns": 3, "reward": 0.5, "created_at": NOW}
GIVEN = {"rollout": ROLLOUT, "run": {"pk": PK, "name": "first"}, "view": {"task": "2 + 3"}}


def _branches(*lines: dict[str, Any], on: bool = False, gain: float | None = None, **context: Any) -> str:
    shown = [({**BRANCH, **line}, on, "/here/?side=1", gain) for line in lines]
    return drawn("rewinding/branches.html", **{**GIVEN, "lines": shown, **context})


def test_a_branch_says_who_played_it_and_whether_the_environment_answered_as_before() -> None:
    first = words(_branches({"created_by": {"username": "bob"}}))
    assert "turn 2 bob" in first and "not as recorded" not in first
    assert "turn 2 not as recorded –" in words(_branches({"same": False}))
    scripted = _branches({"player": "first-tool", "created_by": {"username": "bob"}})
    assert "<code>first-tool</code>" in scripted and "bob" not in scripted
    played = _branches({"player": "small", "played": {"pk": OTHER}})
    assert f'href="/p/joust/rollouts/{OTHER}/">small</a>' in played
    other = words(_branches({}, rollout={**ROLLOUT, "policy": "give-up"}))
    assert "the run's model" in first and "the run's model" not in other and "as recorded give-up" in other


def test_a_branch_has_its_gain_where_it_is_known_and_a_button_to_hide_it_while_it_is_shown() -> None:
    assert "+0.25" in words(_branches({}, gain=0.25)) and words(_branches({}, gain=0.0)) != words(_branches({}))
    assert " Show" in words(_branches({})) and " Hide" not in words(_branches({}))
    assert "data-shown" in _branches({}, on=True) and " Hide" in words(_branches({}, on=True))
    none = words(_branches())
    assert "No branch continues from a turn" in none and "No branch" not in words(_branches({}))


def test_branches_are_asked_for_again_while_one_is_being_played() -> None:
    run = {"pk": PK, "name": "more", "state_shown": ("running", "running")}
    going = {"run": run, "turn": 2, "done": 1, "wanted": 4}
    page = _branches({}, going=[going])
    assert "hx-get" in page and "from turn 2 · 1 of 4 over" in words(page) and "hx-get" not in _branches({})


def test_only_editors_continue_from_a_turn() -> None:
    acts = [f"/rollouts/{PK}/{tail}" for tail in ("branches/continue/", "branches/new/")]
    contestants = [("model:a", "a"), ("model:b", "b")]
    editor = _branches({}, can_edit=True, contestants=contestants, contestant="model:b", policies=[("give-up", "none")])
    assert "<form" not in _branches({}, contestants=contestants) and editor.count("<form") == 2
    assert [f'action="/p/joust{act}"' in editor for act in acts] == [True, True]
    assert 'value="model:b" selected' in editor and 'value="model:a" selected' not in editor
    none = _branches({}, can_edit=True)
    assert none.count("<form") == 1 and "no model of its own yet" in words(none)


def _sides(branch: dict[str, Any] | None = None, **context: Any) -> str:
    sides = {"columns": [{"branch": {**BRANCH, **(branch or {})}}, {}], **context.pop("sides", {})}
    return drawn("rewinding/_beside.html", **{**GIVEN, "sides": sides, **context})


def test_only_editors_keep_a_branch_and_what_a_run_played_is_not_deleted_here() -> None:
    assert "<form" not in _sides() and "<button" not in _sides()
    editor = _sides(can_edit=True)
    assert editor.count("<form") == 1 and 'value="row"' in editor and 'value="pair"' in editor
    assert "Delete" in words(editor) and "Delete" not in words(_sides({"played": {"pk": OTHER}}, can_edit=True))
    assert "As recorded" in words(editor) and "Branch from turn 2" in words(editor)


def test_messages_that_are_not_shown_are_counted() -> None:
    assert "1 message before is the same in all of them." in words(_sides(sides={"skipped": 1}))
    assert "2 later messages are not shown." in words(_sides(sides={"left": 2}))
    assert "message" not in words(_sides())
    cells = [{"messages": [], "branch": BRANCH}, {"messages": [{"role": "user", "text": "hi"}]}]
    page = _sides(sides={"rows": [{"first": True, "same": False, "cells": cells}, {"same": True, "cells": cells[1:]}]})
    assert page.count("data-ended") == 1 and page.count("First difference") == 1
    assert (page.count('data-same="no"'), page.count('data-same="yes"')) == (2, 1)


def _rewind(**context: Any) -> str:
    environment = {"pk": OTHER, "name": "maze", "state": "running"}
    view = {"task": "2 + 3", "step": 4, "group": 1, "index": 0}
    given = {"environment": environment, "health": {}, "turn": 2, "last": 3, "page": {}, "strings": {}}
    return drawn("rewinding/rewind.html", **{**GIVEN, **given, "view": view, **context})


def test_a_rewound_rollout_says_where_it_is_played_and_how_far_it_can_be() -> None:
    page = words(_rewind())
    assert page.startswith("Rewind step 4, group 1, rollout 0") and "From 1 to 3. The turns before it" in page
    assert "slots in use" not in page and "can be rewound only to turn 1." in words(_rewind(last=1))
    busy = words(_rewind(health={"version": "1.2", "slots": 4, "sessions": 0}))
    assert "maze 1.2 · " in busy and "0 of 4 slots in use" in busy
    named = words(_rewind(environment={"pk": OTHER, "name": "maze", "server_name": "Maze of twelve"}))
    assert "Maze of twelve" in named and " maze " not in named
    assert [f"/rollouts/{PK}/branches/" in _rewind(branches=number) for number in (0, 1, 2)] == [False, True, True]
    assert "1 branch " in words(_rewind(branches=1)) and "2 branches " in words(_rewind(branches=2))
    refused = _rewind(refused="Its environment is gone.", branches=2)
    assert "This rollout cannot be rewound Its environment is gone. Back to the rollout" in words(refused)
    assert "2 + 3" in words(refused) and "<form" not in refused and "/branches/" not in refused
