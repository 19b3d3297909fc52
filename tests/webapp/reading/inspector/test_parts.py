"""Rows of the inspector, drawn by themselves: what each says of a rollout, and what an empty list says."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

from tests.markup import drawn, words

PK = uuid.UUID(int=1)


def _rows(item: dict[str, Any] | None = None, line: dict[str, Any] | None = None, **context: Any) -> str:
    facts = {"pk": PK, "step": 1, "group": 2, "index": 3, "reward": 0.5, "advantage": None, "turns": 1, "tokens": 7}
    facts |= {"outcome": "solved", "get_outcome_display": "solved", "run": {"name": "run 1"}, "task": "2 + 3"}
    row = {"rollout": SimpleNamespace(**{"policy": "", "held_out": False, "tools": [], **facts, **(item or {})})}
    block = {"lines": [{**row, "words": "It is 5.", **(line or {})}], "head": context.pop("head", None)}
    block |= context.pop("block", {})
    page = drawn("inspector/_rows.html", **{"blocks": [block], "here": "/here?q=1", **context})
    return page


def _said(**more: Any) -> str:
    return words(_rows(**more)).partition("the model's last words ")[2]


def test_a_row_has_its_place_its_figures_and_its_last_words() -> None:
    assert _said() == "run 1 1.2.3 solved 0.500 2 + 3 It is 5. 1 turn · 7 tokens"
    assert _said(run={"name": "run 1"}).startswith("1.2.3 solved")
    assert _said(item={"policy": "wolf"}).startswith("run 1 1.2.wolf solved")
    assert " 0.500 +0.25" in _said(item={"advantage": 0.25}) and " 0.500 −0.25" in _said(item={"advantage": -0.25})
    assert " 0.500 0.00 2 + 3" in _said(item={"advantage": 0})
    assert "solved held out 0.500" in _said(item={"held_out": True})
    assert _said(item={"turns": 2, "tokens": 0, "characters": 9}).endswith("2 turns · 9 characters")
    assert _said(item={"seconds": 3, "surprise": 2.5}).endswith("7 tokens · 3 s · 2.5 bits")


def test_a_row_shows_the_words_that_were_found_else_the_task_and_the_last_ones() -> None:
    snippet = {"turn": 4, "before": "it ", "said": "is", "after": " 5"}
    assert "turn 4 it is 5 1 turn" in _said(line={"snippet": snippet}) and "It is 5." not in _said(
        line={"snippet": snippet}
    )
    assert "2 + 3 · expected: 5 It is 5." in _said(line={"expected": "5"})
    assert "why it is here 2 + 3" in _said(line={"why": "why it is here"})
    none = {"words": ""}
    assert "no words in its last turns; it called look" in _said(item={"tools": ["look"]}, line=none)
    assert "2 + 3 no words in its last turns 1 turn" in _said(line=none)
    assert "no words" not in _said(item={"outcome": "excluded"}, line=none)


def test_only_the_rollout_that_is_open_is_marked() -> None:
    assert 'aria-current="true"' in _rows(chosen=PK) and "aria-current" not in _rows(chosen=uuid.UUID(int=2))


def test_orders_mark_the_one_that_holds_and_its_direction() -> None:
    sorts = [{"url": "/a", "title": "step", "on": True, "down": True}, {"url": "/b", "title": "reward"}]
    page = _rows(sorts=sorts)
    assert words(page).startswith("Order step ↓ reward rollout") and page.count('aria-current="true"') == 1
    assert words(_rows(sorts=[{**sorts[0], "down": False}])).startswith("Order step ↑ rollout")


def test_pages_lead_back_and_on() -> None:
    assert "pagination" not in _rows()
    assert words(_rows(next="/n")).endswith("Next") and words(_rows(begun=True)).endswith("First page")
    assert words(_rows(next="/n", begun=True)).endswith("First page Next")


def test_an_empty_list_says_why_and_leads_out() -> None:
    assert words(_rows(blocks=[])).startswith("No rollouts yet They appear here as soon as a run of this project")
    assert "as soon as this run plays" in words(_rows(blocks=[], run={"name": "r"}))
    assert words(_rows(blocks=[], begun=True)) == "No more rollouts First page"
    chips = [{"url": "/c", "words": "solved", "count": {"number": 9, "more": True}}]
    assert words(_rows(blocks=[], chips=chips, begun=True)).endswith("Clear a filter: solved more than 9 without it")
    exact = [{"url": "/c", "words": "solved", "count": {"number": 9}}, {"url": "/d", "words": "failed"}]
    assert words(_rows(blocks=[], chips=exact)).endswith("Clear a filter: solved 9 without it failed")


def test_a_group_says_what_it_teaches() -> None:
    head = {"run_id": PK, "step": 1, "group": 2, "task": "2 + 3", "held_out": False}
    group = {"reward_mean": 0.5, "reward_std": 0.25}
    page = words(_rows(head=head, block={"group": group, "signal": {}}, line={"expected": "5"}))
    assert "2 + 3 expected: 5 mean 0.500, spread 0.250 rollout" in page
    assert "3 solved 0.500 It is 5." in page  # the head has named the rest
    flat = words(_rows(head=head, block={"signal": {"flat": True, "phantom": True}}))
    assert "all rewards equal: no learning signal" in flat and "phantom" not in flat
    assert "phantom: outcomes equal, rewards not" in words(_rows(head=head, block={"signal": {"phantom": True}}))
    held = _rows(head={**head, "held_out": True})
    assert 'class="tag">held out<' in held and "/groups/" not in held


def test_the_list_asks_again_only_while_it_follows() -> None:
    assert "every 2s" in _rows(bar={"following": True}) and "every 2s" not in _rows(bar={"following": False, "step": 1})


def _steps(**bar: Any) -> str:
    return words(drawn("inspector/_steps.html", bar={"step": 2, "high": 5, **bar}))


def test_the_bar_of_steps_follows_or_leads_to_the_newest() -> None:
    counts = [(SimpleNamespace(value="solved", label="solved"), 3)]
    assert _steps(counts=counts).endswith("3 solved") and "No rollouts in this step yet." in _steps()
    assert "following" in _steps(following=True, newest="/n") and "Newest step" not in _steps(
        following=True, newest="/n"
    )
    assert "Newest step" in _steps(newest="/n") and "Follow live" in _steps(newest="/n", at_work=True)
    assert "All steps" in _steps(every="/e") and "All steps" not in _steps()
    assert "Step" not in _steps(step=None) and "No rollouts" not in _steps(step=None)
    scrub = [drawn("inspector/_steps.html", bar={"step": 1, "high": high}).count("step-scrub") for high in (1, 2)]
    assert scrub == [0, 2]
    assert 'type="range" min="0"' in drawn("inspector/_steps.html", bar={"step": 0, "high": 2})
    assert 'type="range" min="1"' in drawn("inspector/_steps.html", bar={"step": 1, "high": 2})
