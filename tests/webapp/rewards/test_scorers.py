"""Jobs in real scoring processes: what they answer, what ends them, and what becomes of all others."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from asgiref.testing import ApplicationCommunicator

from envs.wire import Message
from tests.chaos.services import wait_until
from training.config import RewardComponent
from training.rewards.base import Episode
from training.rewards.scorer.wire import Asked, Job, Said, job_line
from webapp.common.errors import TooMany
from webapp.common.serving import Askers, when_asker_leaves
from webapp.rewards import scorers as scorers_module
from webapp.rewards.scorers import JOBS_PER_PERSON, Answers, Child, Scorers

LONG_S = 60.0


def episode(text: str = "It is 4.", **row: Any) -> Episode:
    messages = [Message(role="user", content="What is 2 + 2?"), Message(role="assistant", content=text)]
    return Episode(messages=messages, prompt_length=1, row=row)


def part(name: str, **over: Any) -> RewardComponent:
    return RewardComponent.model_validate({"name": name, "weight": 1.0, **over})


def pattern(name: str, text: str) -> RewardComponent:
    return part(name, function="regex_match", params={"pattern": text})


SHORT = Asked(episode=episode(), components=[pattern("four", "4"), pattern("five", "5")])
HANGS = Asked(
    episode=episode("a" * 50_000 + "b"),
    components=[pattern("first", "b"), *(pattern(f"slow{number}", "(a|aa|a+)+$") for number in range(30))],
)
"""A first answer at once, and then up to a second of processor time for each of the others."""


class Watched(Scorers):
    """Keeps the processes that jobs were given to, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.used: list[Child] = []

    def _take_child(self) -> Child:
        child = super()._take_child()
        self.used.append(child)
        return child


@pytest.fixture
def scorers() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(10) as pool:
        yield pool


def values(answers: Answers) -> list[dict[str, float | None]]:
    return [{name: answer.value for name, answer in one.items()} for one in answers]


def runs(scorers: Watched, count: int = 1) -> Child:
    """The process of the newest job, once that runs."""
    wait_until(lambda: len(scorers.used) >= count and scorers.used[-1]._ready)
    return scorers.used[-1]


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_each_component_says_its_value_its_words_or_why_not(scorers: Watched) -> None:
    judge = part("judge", params={"url": "http://127.0.0.1:9/v1", "model": "m"})
    asked = [
        Asked(episode=episode("two, please"), components=[pattern("kind", "please"), judge], spans=3),
        Asked(episode=episode("two", answer=float("nan")), components=[pattern("kind", "please")], known=["kind"]),
    ]
    first, second = scorers.ask("a", asked, LONG_S)
    assert (first["kind"].value, [tuple(span)[:3] for span in first["kind"].spans]) == (1.0, [(1, 5, 11)])
    assert (first["judge"].value, first["judge"].code) == (None, "reward_fault")
    assert "which is not available here" in str(first["judge"].why)
    assert second["kind"] == Said(), "its value is known, and its words were not asked for"
    assert values(scorers.ask("a", [SHORT], LONG_S)) == [{"four": 1.0, "five": 0.0}]
    assert [child.pid for child in scorers.used] == [scorers.used[0].pid] * 2, "one process answers both"


def test_a_value_whose_weight_takes_it_out_of_bounds_is_missing_where_it_is_weighed(scorers: Watched) -> None:
    heavy = part("task_success", weight=100.0)
    other = Episode(messages=episode().messages, prompt_length=1, env_reward=1e5)
    (raw,) = scorers.ask("a", [Asked(episode=other, components=[heavy])], LONG_S)
    (weighed,) = scorers.ask("a", [Asked(episode=other, components=[heavy], weighed=True)], LONG_S)
    assert raw["task_success"].value == 1e5 and weighed["task_success"].value is None
    assert "weighted sum" in str(weighed["task_success"].why)


def test_nothing_asked_starts_no_process(scorers: Watched) -> None:
    assert scorers.ask("a", [Asked(episode=episode(), components=[])], LONG_S) == [{}]
    assert scorers.ask("a", [], LONG_S) == [] and scorers.used == []


def test_one_more_than_runs_is_kept_loaded(scorers: Watched, threads: ThreadPoolExecutor) -> None:
    asked = threads.submit(scorers.ask, "a", [HANGS], LONG_S)
    running = runs(scorers)
    (spare,) = scorers._idle
    assert spare.ready() and spare is not running
    assert values(scorers.ask("b", [SHORT], LONG_S)) == [{"four": 1.0, "five": 0.0}]
    assert scorers.used[1] is spare
    running.stop()
    asked.result(LONG_S)
    assert len(scorers._idle) == 3, "the spare one, the one that was spare, and the one in the killed one's place"
    for _number in range(3):
        scorers.ask("a", [SHORT], LONG_S)
    assert len(scorers._idle) == 3


def test_a_job_that_is_late_is_killed_and_keeps_what_was_said(scorers: Watched) -> None:
    (answer,) = scorers.ask("a", [HANGS], 1.5)
    assert answer["first"].value == 1.0
    assert (answer["slow29"].value, answer["slow29"].code) == (None, "reward_timeout")
    assert str(answer["slow29"].why) == "Scoring took longer than 1.5 seconds."
    killed = scorers.used[0].pid
    assert is_gone(killed), "nothing is left running without an asker"
    assert values(scorers.ask("a", [SHORT], LONG_S)) == [{"four": 1.0, "five": 0.0}]
    assert scorers.used[1].pid != killed


def test_a_killed_process_names_its_end_and_another_takes_its_place(
    scorers: Watched, threads: ThreadPoolExecutor
) -> None:
    asked = threads.submit(scorers.ask, "a", [HANGS], LONG_S)
    os.kill(runs(scorers).pid, signal.SIGKILL)
    (answer,) = asked.result(LONG_S)
    assert (answer["slow29"].value, answer["slow29"].code) == (None, "scorer_died")
    assert str(answer["slow29"].why) == "The scoring process ended (SIGKILL); a new one replaces it."
    assert values(scorers.ask("a", [SHORT], LONG_S)) == [{"four": 1.0, "five": 0.0}]


def test_one_that_was_killed_while_it_waited_costs_no_asker_anything(scorers: Watched) -> None:
    scorers.ask("a", [SHORT], LONG_S)
    idle = scorers.used[0]
    os.kill(idle.pid, signal.SIGKILL)
    wait_until(lambda: not idle.alive)
    assert values(scorers.ask("a", [SHORT], LONG_S)) == [{"four": 1.0, "five": 0.0}]


@pytest.mark.plain_start  # its memory is the subject, and a forked one has more modules
def test_one_that_has_too_little_memory_ends_alone(scorers: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorers_module, "MEMORY_BYTES", 400 << 20)
    large = Asked(episode=episode(text="z" * (150 << 20)), components=[pattern("four", "4")])
    (answer,) = scorers.ask("a", [large], LONG_S)
    assert (answer["four"].value, answer["four"].code) == (None, "scorer_died")
    assert values(scorers.ask("a", [SHORT], LONG_S)) == [{"four": 1.0, "five": 0.0}]


def test_a_server_that_can_start_none_says_so(scorers: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    (answer,) = scorers.ask("a", [SHORT], LONG_S)
    assert answer["four"].code == "scorer_died" and "could be started on this server" in str(answer["four"].why)


def test_rows_that_are_nested_too_deeply_are_refused_and_deep_ones_are_not(scorers: Watched) -> None:
    def nested(depth: int) -> Any:
        return [nested(depth - 1)] if depth else []

    (deep,) = scorers.ask("a", [Asked(episode=episode(row=nested(400)), components=[pattern("four", "4")])], LONG_S)
    assert deep["four"].value == 1.0
    endless: list[Any] = []
    endless.append(endless)
    (answer,) = scorers.ask("a", [Asked(episode=episode(row=endless), components=[pattern("four", "4")])], LONG_S)
    assert str(answer["four"].why) == "This JSON is nested too deeply."


def test_a_stranger_is_answered_while_one_person_fills_the_line(scorers: Watched, threads: ThreadPoolExecutor) -> None:
    def tried() -> Future[Answers]:
        return threads.submit(scorers.ask, "viewer", [HANGS], LONG_S)

    waiting = [tried() for _number in range(JOBS_PER_PERSON)]
    runs(scorers)
    with pytest.raises(TooMany):
        wait_until(lambda: len(scorers._places._waiting["viewer"]) == JOBS_PER_PERSON - 1)
        scorers.ask("viewer", [SHORT], LONG_S)
    assert values(scorers.ask("stranger", [SHORT], LONG_S)) == [{"four": 1.0, "five": 0.0}]
    assert not any(future.done() for future in waiting) and len(scorers.used) == 2
    while not all(future.done() for future in waiting):
        for child in list(scorers.used):
            child.stop()
        time.sleep(0.05)


async def _request(application: Any, hangs_up_when: Callable[[], object]) -> None:
    """One HTTP request through an application, whose client hangs up at some moment."""
    client = ApplicationCommunicator(Askers(application), {"type": "http"})
    await client.send_input({"type": "http.request"})
    await asyncio.to_thread(wait_until, hangs_up_when)
    await client.send_input({"type": "http.disconnect"})
    await client.wait(LONG_S)


def test_a_job_ends_when_its_asker_hangs_up_and_not_the_next_one_of_its_process(scorers: Watched) -> None:
    answers: list[Answers] = []

    def application(asked: Asked) -> Any:
        async def listens(_scope: Any, receive: Any, _send: Any) -> None:
            """As Django does: the view in a thread, and an ear for the client meanwhile."""
            view = asyncio.create_task(sync_to_async(scorers.ask, thread_sensitive=False)("a", [asked], LONG_S))
            while (await receive())["type"] != "http.disconnect":
                pass
            answers.append(await view)

        return listens

    async_to_sync(_request)(application(HANGS), lambda: scorers.used and scorers.used[0]._ready)
    assert answers[0][0]["slow29"].value is None and is_gone(scorers.used[0].pid)
    async_to_sync(_request)(application(SHORT), lambda: len(scorers.used) == 2 and scorers.used[1] in scorers._idle)
    assert values(answers[1]) == [{"four": 1.0, "five": 0.0}]
    assert scorers.used[1].alive, "who hangs up after the answer ends no process of others"


def test_without_a_request_no_asker_leaves() -> None:
    when_asker_leaves(lambda: pytest.fail("no asker here"))


def test_the_kernel_ends_what_uses_more_processor_time_than_its_job_may() -> None:
    child = Child()
    assert child.ready()
    list(child.answers(job_line(Job(asked=[HANGS], cpu_s=0.5)), time.monotonic() + LONG_S))
    assert child.ended() == -signal.SIGXCPU
    child.kill()


@pytest.mark.plain_start  # /proc shows the variables of the process that was forked
def test_a_process_has_named_variables_and_nothing_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("TILTYARD_CUSTOM_REWARDS", "true")
    child = Child()
    assert child.ready()
    found = dict(item.split("=", 1) for item in Path(f"/proc/{child.pid}/environ").read_text().strip("\0").split("\0"))
    child.kill()
    assert set(found) == {
        "LANG", "PATH", "PYTHONPATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TILTYARD_CUSTOM_REWARDS"
    }  # fmt: skip
