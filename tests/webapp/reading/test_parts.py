"""Parts of the page of a rollout, drawn by themselves: what they say of each state, without a database."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tests.markup import drawn, words

ROLLOUT = SimpleNamespace(pk=uuid.UUID(int=1), started_at=datetime(2026, 1, 1, tzinfo=UTC), calls=None)


def _turn(*messages: dict[str, Any], turn: dict[str, Any] | None = None, **context: Any) -> str:
    whole = {"number": 2, "seconds": 3, "messages": [{"role": "user", "text": "hi", **each} for each in messages]}
    return drawn("reading/_turn.html", turn={**whole, **(turn or {})}, rollout=ROLLOUT, **context)


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ({"role": "user"}, "user"),
        ({"role": "assistant"}, "assistant"),
        ({"role": "system"}, "system"),
        ({"role": "critic\u202e"}, "critic U+202E"),
        ({"role": "tool"}, "result"),
        ({"role": "tool", "name": "look"}, "result · look"),
        ({"role": "user", "name": "look"}, "user"),
    ],
)
def test_a_message_names_who_said_it(message: dict[str, Any], name: str) -> None:
    assert words(_turn(message)) == f"{name} 3 s hi"


def test_a_turn_has_the_figures_that_are_known() -> None:
    assert words(_turn({}, {}, turn={"ordinal": 1, "tokens": 7})) == "user turn 1 · 7 tokens · 3 s hi user hi"
    assert words(_turn({}, turn={"ordinal": 1, "tokens": 0})) == "user turn 1 · 0 tokens · 3 s hi"
    assert words(_turn({}, turn={"ordinal": 1, "tokens": 0}, imported=True)) == "user turn 1 · 3 s hi"
    assert words(_turn({}, turn={"seconds": None}, imported=True)) == "user hi"
    assert words(_turn({}, turn={"number": 0})) == "user hi"
    paid = words(_turn({}, turn={"paid": 0, "advantage": -0.5}))
    assert paid == "user 3 s · reward so far 0.00 · advantage −0.500 hi"


def test_a_turn_of_the_model_can_be_rewound_where_that_is_possible() -> None:
    assert "?turn=3" in _turn({}, turn={"ordinal": 3, "tokens": 7}, rewindable=True)
    assert "Rewind here" not in words(_turn({}, turn={"ordinal": 3, "tokens": 7}))
    assert "Rewind here" not in words(_turn({}, rewindable=True))


def test_a_message_shows_what_was_thought_refused_and_called() -> None:
    call = {"name": "look\u202e", "arguments": {"at": "door"}}
    page = _turn({"reasoning": "hm", "refusal": "no", "calls": [call, {"name": "wait", "arguments": {}}]})
    assert words(page) == "user 3 s reasoning hm hi refusal no call look U+202E at door call wait no arguments"
    assert "(empty)" not in page and " tabindex" not in page and "said-long" not in page
    assert 'class="said said-long" tabindex="0" role="group"' in _turn({"long": True})
    assert "result-tree" in _turn({"tree": {"a": 1}}) and " hi" not in words(_turn({"tree": {"a": 1}}))


def test_a_message_is_empty_only_without_words_calls_and_refusal() -> None:
    assert "(empty)" in _turn({"text": ""})
    for some in ({"calls": [{"name": "x"}]}, {"refusal": "no"}, {"text": "hi"}):
        assert "(empty)" not in _turn({"text": "", **some}), some
    assert "(empty)" not in _turn({"text": ""}, turn={"wrote": "half a call"})


def test_what_could_not_be_read_as_a_call_is_under_the_last_message() -> None:
    page = words(_turn({"text": "one"}, {"text": "two"}, turn={"wrote": "half", "parse_error": "no end"}))
    assert page == "user 3 s one user two half Not readable as a call: no end"


def test_a_text_that_was_cut_leads_to_the_rest_in_the_same_view() -> None:
    page = _turn({"cut": 5})
    assert "5 more characters" in words(page) and page.count("first=2&amp;whole=1") == 2 and "view=raw" not in page
    assert "1 more character" in words(_turn({"cut": 1})) and "more character" not in words(_turn({"cut": 0}))
    raw = _turn({"cut": 5, "raw": "<x>", "reasoning": "hm"}, shown="raw")
    assert raw.count("whole=1&amp;view=raw") == 2 and words(raw) == "user 3 s <x> 5 more characters"
    assert 'tabindex="0"' in _turn({"long": True}, shown="raw") and 'tabindex="0"' not in raw


def test_a_text_that_the_endpoint_ended_says_why() -> None:
    assert words(_turn({"finish": "length"})).endswith("hi cut off at the limit of tokens")
    assert words(_turn({"finish": "content_filter"})).endswith("hi held back by the endpoint's content filter")
    assert words(_turn({"finish": "stop"})).endswith("hi")


def _facts(view: dict[str, Any] | None = None, **context: Any) -> str:
    whole = {"turns": 2, "tokens": 7, "attempt": 1, "seconds": 3, "policy_step": None, "row": None, **(view or {})}
    page = words(drawn("reading/_facts.html", **{"view": whole, "rollout": ROLLOUT, **context}))
    return page.removeprefix("How it was made ").partition(" Started")[0]


def test_the_facts_of_a_rollout_are_those_that_are_known() -> None:
    assert _facts() == "Time 3 s Turns 2 Tokens 7 Attempt 1"
    assert _facts({"seconds": None, "tokens": 0}, imported=True) == "Turns 2 Attempt 1"
    assert _facts({"tokens": 0}).endswith("Turns 2 Tokens 0 Attempt 1")
    phases = {"model": 1, "environment": 2, "other": 0, "shares": [("model", 50), ("other", 0)]}
    assert _facts(phases=phases) == "Model 1 s Environment 2 s Turns 2 Tokens 7 Attempt 1"
    assert "Environment 2 s Waiting 4 s Turns" in _facts(phases={**phases, "other": 4})
    drawn_phases = drawn("reading/_facts.html", view={}, rollout=ROLLOUT, phases=phases)
    assert drawn_phases.count("<rect") == 1
    assert "Part sums Policy wolf Turns" in _facts({"part": "sums", "policy": "wolf"})
    assert _facts({"policy_step": 0}).endswith("Weights as the run began")
    assert _facts({"policy_step": 3}).endswith("Weights after step 3")
    assert _facts(seeds={"episode": 8, "sampling": 9}).endswith("Seed 8 of the episode 9 of the sampling")
    assert _facts({"row": 0}).endswith("Row 1") and _facts({"row": 0}, task="2 + 3").endswith("Attempt 1")


def test_calls_that_failed_are_named_only_where_there_are_some() -> None:
    def calls(n: int, failed: int) -> str:
        return _facts(rollout=SimpleNamespace(calls=n, failed_calls=failed, started_at=ROLLOUT.started_at))

    assert "Tool calls 0 Attempt" in calls(0, 0)
    assert "Tool calls 3 · 1 failed Attempt" in calls(3, 1)


def _reward(status: str = "completed", part: dict[str, Any] | None = None, **context: Any) -> str:
    rollout = SimpleNamespace(status=status, outcome="solved", get_outcome_display="solved", truncated=False)
    whole = {"name": "a", "title": "A", "value": 1, "weight": 2, "counted": 2, "curve": 0, **(part or {})}
    view = {"reward": 2, "advantage": None, "status": status}
    return drawn("reading/_reward.html", **{"rollout": rollout, "view": view, "parts": [whole], **context})


def test_each_part_of_a_reward_has_its_value_its_weight_and_why() -> None:
    assert words(_reward()) == "Outcome solved A 1.00 × 2.00 2.00 reward 2.00 advantage –"
    missing = _reward(part={"value": None, "counted": None, "curve": None, "why": "No answer."})
    assert words(missing) == "Outcome solved A missing × 2.00 No answer. reward 2.00 advantage –"
    assert "data-curve" not in missing and "data-zero" not in missing
    assert words(_reward(part={"weight": None})).startswith("Outcome solved A 1.00 2.00")
    zeros = [" data-zero" in _reward(part={"value": value}) for value in (-0.1, 0, 0.1)]
    assert zeros == [True, True, False]
    assert 'data-curve="0"' in _reward()


def test_an_outcome_says_what_cut_the_episode_off_or_made_it_fail() -> None:
    cut = "The episode was cut off before it ended by itself."
    assert cut in words(_reward("truncated")) and cut not in words(_reward())
    failure = {"title": "No answer", "code": "timeout", "boundary": "judge"}
    failed = _reward("failed", failure=failure)
    assert "No answer timeout · judge A 1.00" in words(failed) and 'data-kind="error"' in failed
    left_out = _reward("excluded", failure={**failure, "hint": "Try again.", "detail": "30 s"})
    assert "timeout · judge Try again. 30 s It has no reward" in words(left_out) and 'data-kind="warning"' in left_out
    assert "It has no reward" not in words(failed)


def test_a_neighbour_is_named_by_its_place() -> None:
    item = SimpleNamespace(pk=uuid.UUID(int=2), step=3, group=4, index=5)
    found = {"item": item, "key": "p", "label": "before", "icon_name": "up"}
    assert words(drawn("reading/_beside.html", **found)) == "5"
    page = drawn("reading/_beside.html", **found, text=True, shown="raw")
    assert words(page) == "3.4.5" and 'aria-label="before: 3.4.5"' in page and '?view=raw"' in page
    short = drawn("reading/_beside.html", **found)
    assert 'aria-label="before: 5"' in short and "view=raw" not in short
    assert drawn("reading/_beside.html", **{**found, "item": None}).strip() == ""


def _message(**message: Any) -> str:
    return drawn("reading/_said.html", message={"role": "user", "text": "hi", **message})


def test_a_message_side_by_side_says_the_same() -> None:
    said = [words(_message(role=role)) for role in ("user", "assistant", "system", "tool", "critic")]
    assert said == ["user hi", "assistant hi", "system hi", "result hi", "critic hi"]
    assert words(_message(role="tool", name="look")) == "result · look hi" and "look" not in _message(name="look")
    assert words(_message(cut=True)) == "user hi…" and words(_message(text="")) == "user (empty)"
    call = {"name": "look", "arguments": {}}
    assert words(_message(text="", calls=[call])) == "user call look no arguments"
    assert "at door" in words(_message(calls=[{**call, "arguments": {"at": "door"}}]))
    assert "result-tree" in _message(tree={"a": 1}) and "hi" not in words(_message(tree={"a": 1}))
    assert "tabindex" in _message(long=True) and "tabindex" not in _message()
