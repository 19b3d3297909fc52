"""ToolBench's three versions: the documents' figures, and the environment's own parts on the same episodes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from envs.toolbench.bench import Bench, Data, open_bench
from envs.toolbench.server import Rules, ToolbenchEnvironment
from envs.wire import Message, StepRequest, ToolCall
from tests.envs.toolbench.builders import write_data
from training.config import RewardComponent
from training.rewards.base import Episode
from training.rewards.scoring import score_episode
from training.rewards.toolbench import (
    BROKEN,
    FAILED,
    LATEST_SPEC,
    MIDDLE_SPEC,
    NATIVE,
    PERFECT,
    SEED_SPEC,
    SILENT,
    WORDS,
)
from training.rewards.toolbench_episode import MAX_JSON_CHARS, read, reports_error

from .episodes import episode, says, score, user


def test_the_documents_worked_example_is_0_27() -> None:
    result = score_episode(PERFECT, SEED_SPEC)
    assert result.parts == {"toolbench_format": 1.0, "toolbench_function_call": 0.1, "toolbench_finish": 0.5}
    assert result.total == pytest.approx(0.27, abs=1e-12)


@pytest.mark.parametrize(
    ("played", "seed", "middle", "latest"),
    [
        (PERFECT, 0.27, 0.1 + 0.2 + 0.3, 0.1 + 0.2),
        (FAILED, 0.1 - 0.1 + 0.075, 0.1 + 0.0 + 0.15, -0.1 + 0.2),
        (NATIVE, 0.1 - 0.08 + 0.3 * 0.15, 0.1 + 0.2 * 0.5 + 0.3 * 0.3, 0.1 - 0.1 + 0.2),
        (BROKEN, 0.05, 0.0, -0.5),
        (WORDS, 0.1 + 0.3 * 0.15, 0.05 + 0.2 + 0.09, -0.2 + 0.2),
        (SILENT, 0.0, 0.0, -0.5),
    ],
)
def test_totals_by_hand(played: Episode, seed: float, middle: float, latest: float) -> None:
    for spec, expected in ((SEED_SPEC, seed), (MIDDLE_SPEC, middle), (LATEST_SPEC, latest)):
        assert score_episode(played, spec).total == pytest.approx(expected, abs=1e-12)


def test_the_token_bonus_drowns_everything_else() -> None:
    short, long = (episode("q", says("Action: " + "x" * (4 * tokens - 8))) for tokens in (10, 500))
    assert (score("toolbench_token_bonus", short), score("toolbench_token_bonus", long)) == (0.1, 5.0)
    assert score("toolbench_token_bonus", long, per_token=0) == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"error": "", "response": "x"}', False),
        ('{"error": "x", "response": ""}', True),
        ('{"error": "  ", "response": ""}', False),
        ('{"error": null}', False),
        ('{"response": "a", "error": "late"}', True),
        ("{'error': 'x'}", True),
        ("{'error': ''}", False),
        ('{"error": "", "response": "cut of...', False),
        ('{"error": "no such", "resp...', True),
        ('{"error": "' + "x" * MAX_JSON_CHARS, True),
        ('{"error": "", "response": "' + "x" * MAX_JSON_CHARS, False),
        ("plain text", False),
        ("[" * 5000, False),
        ("", False),
    ],
)
def test_what_reports_an_error(text: str, expected: bool) -> None:
    assert reports_error(text) is expected


@pytest.mark.parametrize(
    ("text", "form", "valid"),
    [
        ('Thought: a\nAction: b\nAction Input: {"q": 1}', 1.0, True),
        ("Thought: a\nAction: b\nAction Input:", 1.0, True),
        ('Thought: a\nAction: b\nAction Input: {"q": 1} and more', 1.0, True),
        ("Thought: a\nAction: b\nAction Input: {'q': 1}", 0.5, False),
        ("Thought: a\nAction: b\nAction Input: [1]", 0.5, False),
        ("Thought: a\nAction: \nAction Input: {}", 0.2, False),
        ("Action: b", 0.2, False),
        ("Action Input: {}\nAction: b\nThought: a", 0.2, False),
        ("", 0.0, False),
    ],
)
def test_the_format_of_one_turn(text: str, form: float, valid: bool) -> None:
    turn = read(episode("q", says(text)))[0]
    assert (turn.form, turn.valid) == (form, valid)


def test_what_the_trainers_dialect_took_out_of_the_text_is_read_from_the_answer() -> None:
    stripped = episode(
        "q", says("a"), user("My previous action is invalid. Please check the Action and Action Input format.")
    )
    assert score("toolbench_format", stripped) == 0.5
    assert score("toolbench_turns", episode("q", *stripped.messages[1:], says("b"))) == -0.2


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    files = write_data(tmp_path_factory.mktemp("files"))
    return open_bench(Data(files / "tools", files / "cache", (files / "queries.json",)))


class _Played:
    """An episode of the real environment, kept as a trainer keeps it."""

    def __init__(self, bench: Bench, speech: str) -> None:
        rules = Rules(speech=speech)  # type: ignore[arg-type]
        self._environment = ToolbenchEnvironment(bench.answerer, bench.tasks, rules)
        first = self._environment.reset({"query_id": 7}, 0, "e")
        self.messages, self.prompt = list(first.messages), len(first.messages)
        self.parts: dict[str, float] = {}

    def step(self, text: str = "", call: tuple[str, dict[str, Any]] | None = None, bad: str | None = None) -> None:
        calls = [ToolCall(id=f"c{len(self.messages)}", name=call[0], arguments=call[1])] if call else []
        seen = asyncio.run(self._environment.step(StepRequest(message=text, tool_calls=calls, parse_error=bad)))
        self.messages += [Message(role="assistant", content=text, tool_calls=calls or None), *seen.messages]
        self.parts = seen.reward_parts

    def value(self, name: str) -> float:
        chosen = RewardComponent(name=name, weight=1)
        return score_episode(Episode(self.messages, self.prompt), [chosen]).total


FORECAST = "forecast_for_weather_desk"
ANSWER = ("Finish", {"return_type": "give_answer", "final_answer": "7"})
GIVE_UP = ("Finish", {"return_type": "give_up_and_restart"})


def test_native_episodes_score_as_the_environment_says(bench: Bench) -> None:
    for script in (
        [("", (FORECAST, {"city": "Oslo"}), None), ("", ("no_such", {}), None), ("", ANSWER, None)],
        [("hello", None, None), ("", None, "not JSON"), ("", GIVE_UP, None)],
        [("", None, "not JSON"), ("", ("Finish", {}), None), ("", GIVE_UP, None)],
    ):
        played = _Played(bench, "native")
        for turn in script:
            played.step(*turn)
        assert played.parts["format"] == played.value("toolbench_format")
        assert played.parts["function_call"] == pytest.approx(played.value("toolbench_function_call"))
        assert played.parts["finish"] == played.value("toolbench_finish")
        assert played.parts["valid_turns"] == pytest.approx(played.value("toolbench_valid_turns"))


def test_text_episodes_score_as_the_environment_says(bench: Bench) -> None:
    def act(name: str, arguments: dict[str, Any]) -> str:
        return f"Thought: a\nAction: {name}\nAction Input: {json.dumps(arguments)}"

    for script in (
        [act(FORECAST, {"city": "Oslo"}), act("no_such", {}), act(*ANSWER)],
        ["Thought: only", act(FORECAST, {"city": "Oslo"}), act(*GIVE_UP)],
        ["Thought: a\nAction: b\nAction Input: {", act(*GIVE_UP)],
    ):
        played = _Played(bench, "text")
        for text in script:
            played.step(text)
        assert played.parts["format"] == played.value("toolbench_format")
        assert played.parts["function_call"] == pytest.approx(played.value("toolbench_function_call"))
        assert played.parts["finish"] == played.value("toolbench_finish")
        assert played.parts["valid_turns"] == pytest.approx(played.value("toolbench_valid_turns"))


def test_real_conversations_are_read(seed_data: Path) -> None:
    path = seed_data / "seed0_toolbench" / "derived" / "toolllama_conversations_from_data_example.json"
    roles = {"system": "system", "user": "user", "assistant": "assistant", "function": "user"}
    worked = failed = finished = 0
    records = json.loads(path.read_text())
    for record in records:
        messages = [Message(role=roles[turn["from"]], content=turn["value"]) for turn in record["conversations"]]  # type: ignore[arg-type]
        turns = read(Episode(messages, 2))
        assert turns and turns[0].form == 1.0, record["id"]
        worked, failed = worked + sum(turn.worked for turn in turns), failed + sum(turn.failed for turn in turns)
        finished += turns[-1].ending == "answer"
    assert (len(records), worked, failed, finished) == (30, 34, 6, 5)
