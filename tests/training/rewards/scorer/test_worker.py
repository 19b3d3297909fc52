"""The program that scores for people who wait, in this process: its limits and what it loads."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.wire import Message
from training.config import RewardComponent
from training.errors import RewardTimeout
from training.rewards import patterns
from training.rewards.base import Component, Episode, Params
from training.rewards.scorer.wire import Asked, Job, Said, job_line, job_of, said_line, said_of
from training.rewards.scorer.worker import answer_of
from training.rewards.scoring import COMPONENTS
from training.words import sentence

ROOT = Path(__file__).resolve().parents[4]
SAID = [Message(role="user", content="q"), Message(role="assistant", content="a" * 50_000 + "b")]
EPISODE = Episode(messages=SAID, prompt_length=1)
SLOW = "(a|aa|a+)+$"


@pytest.fixture
def counting() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    patterns.count_wall_time()
    yield
    signal.signal(signal.SIGALRM, before)


def test_a_pattern_ends_at_its_wall_time_and_at_its_processor_time(
    counting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limits, limit in (({"LIMIT_S": 600.0, "WALL_S": 0.05}, "0.05"), ({"LIMIT_S": 0.06, "WALL_S": 600.0}, "0.06")):
        for name, value in limits.items():
            monkeypatch.setattr(patterns, name, value)
        with pytest.raises(RewardTimeout, match=f"longer than {limit} s"):
            patterns.found(SLOW, EPISODE.final_answer)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), "nothing rings later"
        assert patterns.found("b$", EPISODE.final_answer)


def test_only_a_process_that_says_so_counts_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "LIMIT_S", 0.2)
    monkeypatch.setattr(patterns, "WALL_S", 0.001)
    with pytest.raises(RewardTimeout, match=r"longer than 0\.2 s"):
        patterns.found(SLOW, EPISODE.final_answer)


def test_words_that_cannot_be_looked_for_are_a_fault_of_their_component(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_episode: Episode, _params: Params) -> list[object]:
        raise KeyError("odd")

    component = Component("broken", "", "", lambda _episode, _params: 1.0, spans=broken)  # type: ignore[arg-type]
    monkeypatch.setitem(COMPONENTS, "broken", component)
    item = RewardComponent(name="broken", weight=1)
    answer = answer_of(item, Asked(episode=EPISODE, components=[item], spans=3))
    assert (answer.code, answer.value) == ("reward_fault", None) and "looking for the words of `broken`" in str(
        answer.why
    )
    assert answer_of(item, Asked(episode=EPISODE, components=[item])).value == 1.0


def test_code_of_a_team_is_asked_only_where_that_is_wanted() -> None:
    item = RewardComponent(name="custom_python", weight=1, params={"code": "def reward(episode):\n    return 1"})
    refused = answer_of(item, Asked(episode=EPISODE, components=[item]))
    assert "which is not available here" in str(refused.why)
    asked = answer_of(item, Asked(episode=EPISODE, components=[item], sandbox=True))
    assert asked.code == "custom_reward_fault", "switched off in this process, so it was asked"


def test_the_wire_keeps_what_json_of_others_would_lose() -> None:
    row = {"odd": float("nan"), "text": "\ud800", "big": 2**70}
    message = Message(role="assistant", content="x\ud800\n")
    asked = Asked(episode=Episode([message], 0, row=row, env_parts={"a": 0.5}, tokens=3), components=[])
    (read,) = job_of(job_line(Job(asked=[asked], cpu_s=1))).asked
    assert read.episode.messages == [message] and read.episode.row.pop("odd") != read.episode.row
    assert read.episode.row == {"text": "\ud800", "big": 2**70}
    assert (read.episode.env_parts, read.episode.tokens) == ({"a": 0.5}, 3)
    why = sentence("{n} of {all}", n=2, all="x")
    again = said_of(said_line(Said(why=why, code="reward_fault")))
    assert again.why is not None and again.why.data == why.data


def test_it_loads_neither_the_web_nor_the_libraries_of_models() -> None:
    program = "import sys, training.rewards.scorer.worker; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"django", "webapp", "celery", "torch", "transformers", "numpy"} & set(done.stdout.split())
