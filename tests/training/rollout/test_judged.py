"""What judges cost is recorded with the step that they judged, and later attempts are not asked again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.training.helpers import job_config, scripted_server
from tests.training.rewards.test_judge import Judge
from tests.training.rewards.test_judge import judge as judge  # the fixture
from tests.training.rollout.test_collector import Bench
from training.algorithms.job import Job
from training.config import RewardComponent
from training.journal import Journal
from training.rewards.base import Episode, Score
from training.rewards.judge import replies
from training.rewards.scoring import score_episode


def test_a_step_records_what_its_judge_was_asked(tmp_path: Path, tokenizer: Any, judge: Judge) -> None:
    params = {"url": judge.url, "model": "priced", "price_in": 1.0, "price_out": 10.0, "timeout_s": 5}

    def scorer(episode: Episode) -> Score:
        return score_episode(episode, [RewardComponent(name="judge", weight=1, params=params)])

    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url, scorer=scorer)
        first = bench.collect().figures
        again = bench.collect(step=2).figures
    asked = len(judge.asked)
    assert 0 < asked == first["judge/requests"] and not first.get("judge/failures")  # 0 where others failed before
    assert first["judge/prompt_tokens"] == 200 * asked and first["judge/completion_tokens"] == 10 * asked
    assert abs(first["judge/cost"] - asked * (200 * 1.0 + 10 * 10.0) / 1e6) < 1e-12
    assert (again["judge/requests"], again["judge/cost"]) == (0, 0) and again["judge/cached"] > 0


def test_a_later_attempt_knows_what_judges_said_before(tmp_path: Path) -> None:
    def job(attempt: int) -> Job:
        folder = tmp_path / f"attempt {attempt}"  # a folder's name means nothing
        earlier = tuple(tmp_path / f"attempt {number}" for number in range(1, attempt))
        return Job(job_config(), folder, Journal(folder), threading.Event(), attempt, earlier=earlier)

    try:
        job(1).keep_replies()
        replies.put("asked", 0.7)
        replies.clear()  # the process ended
        assert replies.get("asked") is None
        job(2).keep_replies()
        replies.put("new", 0.2)
        replies.clear()
        job(3).keep_replies()
        assert (replies.get("asked"), replies.get("new")) == (0.7, 0.2)
    finally:
        replies.keep_in(None)
        replies.clear()
