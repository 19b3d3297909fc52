"""Scoring in threads: what comes out, what a hanging reward costs, and how threads are used again."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import Any

import pytest

from training.errors import ConfigError, RewardFault, RewardTimeout, TiltyardError
from training.rewards.base import Episode, Score
from training.rollout import scoring as scorings
from training.rollout.scoring import MAX_STUCK_THREADS, Scoring

GOOD = Score(parts={"a": 0.5}, total=1.5)
EPISODE = Episode(messages=[], prompt_length=0, row={})


def score(scorer: Any, timeout_s: float = 30.0) -> Score:
    async def once() -> Score:
        scoring = Scoring(scorer, timeout_s)
        try:
            return await scoring.score(EPISODE)
        finally:
            scoring.close()

    return asyncio.run(once())


def raising(error: BaseException) -> Any:
    def scorer(_episode: Episode) -> Score:
        raise error

    return scorer


def test_a_score_comes_out_as_it_is() -> None:
    seen: list[Episode] = []

    def scorer(episode: Episode) -> Score:
        seen.append(episode)
        return GOOD

    assert score(scorer) is GOOD and seen == [EPISODE]


def test_a_typed_error_is_raised_as_it_is_and_others_get_a_type() -> None:
    own = ConfigError("no such component")
    with pytest.raises(ConfigError) as caught:
        score(raising(own))
    assert caught.value is own
    with pytest.raises(RewardFault) as fault:
        score(raising(ZeroDivisionError("x" * 400)))
    assert fault.value.message == "ZeroDivisionError while scoring: " + "x" * 300


@pytest.mark.parametrize(
    ("parts", "total", "message"),
    [
        ({"a": 0.5}, math.nan, "The reward is not a finite number."),
        ({"a": math.inf}, 1.0, "The reward is not a finite number."),
        ({"a": 0.5, "b": -math.inf}, 1.0, "The reward is not a finite number."),
        ({"a": 0.5}, 1.1e6, "The reward is larger than 1e+06, or one of its parts is."),
        ({"a": -1.1e6}, 0.0, "The reward is larger than 1e+06, or one of its parts is."),
        ({"a": 1e6, "b": -1e6}, -1e6, ""),
    ],
)
def test_a_reward_is_a_number_within_its_bounds(parts: dict[str, float], total: float, message: str) -> None:
    made = Score(parts=parts, total=total)
    if not message:
        assert score(lambda _episode: made) is made
        return
    with pytest.raises(RewardFault) as caught:
        score(lambda _episode: made)
    assert caught.value.message == message


def test_a_scoring_that_takes_too_long_says_how_long_it_might() -> None:
    release = threading.Event()
    with pytest.raises(RewardTimeout) as caught:
        score(lambda _episode: release.wait(10) and GOOD, 0.05)
    release.set()
    assert caught.value.message == "Scoring took longer than 0.05 s."


def test_idle_threads_are_used_again_and_end_at_the_close() -> None:
    names: list[int] = []

    def scorer(_episode: Episode) -> Score:
        names.append(threading.get_ident())
        return GOOD

    async def many() -> None:
        scoring = Scoring(scorer, 30.0)
        for _time in range(3):
            await scoring.score(EPISODE)
        assert len(scoring._idle) == 1
        (worker,) = scoring._idle
        scoring.close()
        assert scoring._idle == [] and worker.jobs is not None

    asyncio.run(many())
    assert len(set(names)) == 1
    end = time.monotonic() + 10
    while any(thread.ident == names[0] and thread.is_alive() for thread in threading.enumerate()):
        assert time.monotonic() < end, "the idle thread did not end"
        time.sleep(0.01)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "scoring")


def test_threads_that_hang_are_counted_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two may hang here; the third scoring is refused until one has come back."""
    monkeypatch.setattr(scorings, "MAX_STUCK_THREADS", 2)
    release, runs = threading.Event(), []

    def scorer(_episode: Episode) -> Score:
        runs.append(1)
        assert release.wait(20)
        return GOOD

    async def go() -> None:
        scoring = Scoring(scorer, 0.05)
        for stuck in (1, 2):
            with pytest.raises(RewardTimeout, match="Scoring took longer"):
                await scoring.score(EPISODE)
            assert scoring._stuck == stuck
        with pytest.raises(RewardTimeout) as refused:
            await scoring.score(EPISODE)
        assert refused.value.message == "Too many earlier scorings never returned."
        assert refused.value.info.hint == "Fix the reward that hangs." and len(runs) == 2
        release.set()
        async with asyncio.timeout(10):
            while scoring._stuck:  # noqa: ASYNC110 - threads change it
                await asyncio.sleep(0.01)
        assert len(scoring._idle) == 2
        assert await scoring.score(EPISODE) is GOOD and len(scoring._idle) == 2
        scoring.close()

    asyncio.run(go())
    assert MAX_STUCK_THREADS == 32


def test_a_scoring_that_is_cancelled_leaves_its_thread_for_the_next() -> None:
    release = threading.Event()

    def scorer(_episode: Episode) -> Score:
        assert release.wait(20)
        return GOOD

    async def go() -> None:
        scoring = Scoring(scorer, 30.0)
        task = asyncio.create_task(scoring.score(EPISODE))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert scoring._idle == [] and scoring._stuck == 0
        release.set()
        async with asyncio.timeout(10):
            while not scoring._idle:  # noqa: ASYNC110 - threads change it
                await asyncio.sleep(0.01)
        scoring.close()

    asyncio.run(go())


def test_a_thread_that_outlives_the_event_loop_ends_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    release, threads = threading.Event(), []

    def scorer(_episode: Episode) -> Score:
        threads.append(threading.current_thread())
        assert release.wait(20)
        return GOOD

    with pytest.raises(TiltyardError):
        score(scorer, 0.05)
    assert threads[0].daemon and threads[0].name == "scoring"  # it does not keep the trainer from ending
    release.set()
    threads[0].join(10)
    assert not threads[0].is_alive() and "Exception" not in capfd.readouterr().err
