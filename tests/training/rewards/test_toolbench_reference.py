"""ToolBench's three versions against formulas written a second time, from the documents alone, on random episodes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from envs.wire import Message
from training.rewards.base import Episode
from training.rewards.judge import replies
from training.rewards.scoring import COMPONENTS, score_episode
from training.rewards.toolbench import LATEST_SPEC, MIDDLE_SPEC, SEED_SPEC, latest_spec

EPISODES = 600
OK, BAD = '{"error": "", "response": "42"}', '{"error": "API call failed with status 500", "response": ""}'
NO_ACTION = "\nMy previous action is invalid. Please provide Thought, Action, and Action Input.\n"
INVALID = "\nMy previous action is invalid. Please check the Action and Action Input format.\n"

Turn = tuple[str, str, str]
"""What was said, what the environment answered, and what the turn is: ok, bad, invalid or how it finished."""


def call(thought: str, name: str, given: str) -> str:
    return f"Thought: {thought}\nAction: {name}\nAction Input: {given}"


def some_turn(rng: random.Random) -> Turn:
    words = rng.choice(["a", "look it up", "so: {x}", ""])
    ok, bad = f"\n\nObservation: {OK}\n\n", f"\n\nObservation: {BAD}\n\n"
    return rng.choice(
        [
            ("hello there", NO_ACTION, "invalid"),
            ("", NO_ACTION, "invalid"),
            (f"Thought: {words}", NO_ACTION, "invalid"),
            (f"Action: find\nmore {words}", NO_ACTION, "invalid"),
            (call(words, "find_for_web", '{"q": '), INVALID, "invalid"),
            (call(words, "find_for_web", "{'q': 1}"), INVALID, "invalid"),
            (call(words, "find_for_web", '{"q": {"deep": [1, 2]}}'), ok, "ok"),
            (call(words, "find_for_web", '{"q": "x"}'), bad, "bad"),
            (call(words, "find_for_web", '{"q": "x"} and so on'), ok, "ok"),
        ]
    )


def some_end(rng: random.Random) -> Turn | None:
    given: dict[str, dict[str, Any]] = {
        "answer": {"return_type": "give_answer", "final_answer": "42"},
        "give_up": {"return_type": "give_up_and_restart"},
        "other": {"final_answer": "42"},
    }
    kind = rng.choice([*given, ""])
    return (call("done", "Finish", json.dumps(given[kind])), "", kind) if kind else None


def some_episode(rng: random.Random) -> list[Turn]:
    turns = [some_turn(rng) for _ in range(rng.randint(0, 5))]
    end = some_end(rng)
    return [*turns, end] if end else turns or [some_turn(rng)]


def as_episode(turns: list[Turn]) -> Episode:
    messages = [Message(role="system", content="APIs"), Message(role="user", content="What is it?")]
    for text, answer, _kind in turns:
        messages.append(Message(role="assistant", content=text))
        if answer:
            messages.append(Message(role="user", content=answer))
    return Episode(messages, 2)


def leading_object(text: str) -> bool:
    """Whether a JSON object is first: matched brace by brace, as the published client does it."""
    text = text.strip()
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "{") - (sign == "}")
        if sign == "}" and depth == 0:
            try:
                return isinstance(json.loads(text[: place + 1]), dict)
            except ValueError:
                return False
    return False


def seed_total(turns: list[Turn]) -> float:
    """0.1 · format + 0.2 · function_call + 0.3 · finish, format at the first occurrence in the whole response.

    The two later marks count where a line begins with them, as in the published code.
    """
    response = "\n".join(text for text, _answer, _kind in turns)
    places = [response.find(word) for word in ("Thought:", "\nAction:", "\nAction Input:")]
    if min(places) >= 0 and places == sorted(places):
        rest = response[places[2] + len("\nAction Input:") :]
        form = 1.0 if leading_object(rest.split("\n")[0]) else 0.5
    else:
        form = 0.2 if places[0] >= 0 or "Action:" in response else 0.0
    kinds = [kind for _text, _answer, kind in turns]
    calls = 0.1 * kinds.count("ok") - 0.5 * kinds.count("bad")
    finish = {"answer": 0.5, "give_up": 0.25, "other": 0.15}.get(kinds[-1], 0.0)
    return 0.1 * form + 0.2 * calls + 0.3 * finish


def middle_total(turns: list[Turn]) -> float:
    """0.1 · valid/turns + 0.2 · (1 − errors/(turns − 1)) + 0.3 · finish; one turn alone has no call part."""
    kinds = [kind for _text, _answer, kind in turns]
    valid = 1 - kinds.count("invalid") / len(kinds)
    calls = 0.0 if len(kinds) == 1 else 1 - kinds.count("bad") / (len(kinds) - 1)
    return 0.1 * valid + 0.2 * calls + 0.3 * {"answer": 1.0, "give_up": 0.5, "other": 0.3}.get(kinds[-1], 0.0)


def latest_total(turns: list[Turn]) -> float:
    """+0.1, −0.1 or −0.2 for each turn but the last, and +0.2 or −0.5 for that one; without the pass reward."""
    kinds = [kind for _text, _answer, kind in turns]
    earlier = sum({"ok": 0.1, "bad": -0.1, "invalid": -0.2}[kind] for kind in kinds[:-1])
    return earlier + (0.2 if kinds[-1] in ("answer", "give_up", "other") else -0.5)


@pytest.mark.parametrize(
    ("spec", "total"), [(SEED_SPEC, seed_total), (MIDDLE_SPEC, middle_total), (LATEST_SPEC, latest_total)]
)
def test_random_episodes_score_as_the_documents_say(spec: Any, total: Any) -> None:
    """The format part of the seed version differed in 127 and 31 of 400 episodes."""
    rng = random.Random(13)
    differing = []
    for number in range(EPISODES):
        turns = some_episode(rng)
        found = score_episode(as_episode(turns), spec).total
        if found != pytest.approx(total(turns), abs=1e-9):
            differing.append((number, [kind for _, _, kind in turns], found, total(turns)))
    assert differing == []


def test_no_part_leaves_its_declared_range() -> None:
    """``toolbench_call_share`` reached −1 with a declared range of 0 to 1."""
    rng = random.Random(14)
    parts = [item.name for spec in (SEED_SPEC, MIDDLE_SPEC, LATEST_SPEC) for item in spec]
    lowest = dict.fromkeys(parts, float("inf"))
    failing: Turn = (call("a", "find", "{}"), BAD, "bad")
    for turns in [[failing, failing], *(some_episode(rng) for _ in range(EPISODES))]:
        played = as_episode(turns)
        for name in parts:
            component = COMPONENTS[name]
            value = component.score(played, component.params())
            assert value is not None and component.low <= value <= component.high, name
            lowest[name] = min(lowest[name], value)
    assert lowest["toolbench_call_share"] == COMPONENTS["toolbench_call_share"].low == -1.0


def test_the_latest_version_adds_the_pass_reward_where_there_is_a_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left out. It is added as it is, so its weight is 1."""
    assert [item.name for item in latest_spec()] == ["toolbench_turns", "toolbench_last_turn"]
    judge = {"url": "http://127.0.0.1:9/v1", "model": "m"}
    replies.clear()
    monkeypatch.setattr(
        "training.rewards.judge.ask",
        lambda endpoint, messages: ('{"label": "Partially Solved"}', {"prompt_tokens": 0, "completion_tokens": 0}),
    )
    turns: list[Turn] = [
        some_turn(random.Random(3)),
        (call("d", "Finish", '{"return_type": "give_answer"}'), "", "answer"),
    ]
    score = score_episode(as_episode(turns), latest_spec(judge))
    replies.clear()
    assert score.parts["toolbench_pass"] == 0.5 and score.total == pytest.approx(latest_total(turns) + 0.5)


def test_an_action_counts_where_a_line_begins_with_it() -> None:
    """The published code looks for a line break and the word: what a response begins with is no line's beginning.

    From that code 73 of 1,000 random episodes differed: a first action was taken that it does not take.
    """
    lone = ("Action: find\nmore", NO_ACTION, "invalid")
    thought = (call("so", "find_for_web", '{"q": 1}'), f"\n\nObservation: {OK}\n\n", "ok")
    inline = ("Thought: an Action: and its Action Input: {}", NO_ACTION, "invalid")
    found = [
        score_episode(as_episode(turns), SEED_SPEC).parts["toolbench_format"] for turns in ([lone, thought], [inline])
    ]
    assert found == [1.0, 0.2]
