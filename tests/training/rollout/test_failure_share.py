"""Steps in which most rollouts failed, and what the journal says of those that did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import (
    call_text,
    of_type,
    scripted_server,
)
from tests.training.rollout.bench import Bench
from training.errors import (
    RewardFault,
    TooManyFailures,
)
from training.rewards.base import Episode, Score


def test_three_bad_steps_take_a_minute_and_then_the_run_pauses(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that took no time burnt the three of ``failure_pause_steps`` in 5 s. A judge may be back by then."""

    def no_judge(episode: Episode) -> Score:
        raise RewardFault("The judge cannot be reached.")

    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url, scorer=no_judge)
        waited: list[float] = []
        monkeypatch.setattr(bench.stop, "wait", lambda seconds: bool(waited.append(seconds)))
        bench.collect(1)
        bench.collect(2)
        with pytest.raises(
            TooManyFailures, match="in 3 steps in a row; 24 failures at the boundary 'reward'"
        ) as caught:
            bench.collect(3)
    assert caught.value.pauses and caught.value.boundary == "reward"
    assert len(waited) == 2 and all(15 < seconds <= 20 for seconds in waited)
    held = bench.held()
    assert [event.error.code if event.error else None for event in held] == ["reward_fault", None] * 2


@pytest.mark.parametrize(("share", "bad"), [(0.5, False), (0.49, True)])
def test_exactly_the_failure_share_is_not_more_than_it(tmp_path: Path, tokenizer: Any, share: float, bad: bool) -> None:
    """No test tried "more than this share" at equality."""

    def first_group_fails(episode: Episode) -> Score:
        if "red" in episode.messages[0].content:
            raise RewardFault("no")
        return Score(parts={"task_success": 1.0}, total=1.0)

    limits = {"rollout": {"failure_pause_share": share, "failure_pause_steps": 1}}
    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url, scorer=first_group_fails, config=limits)
        if bad:
            with pytest.raises(TooManyFailures):
                bench.collect()
        else:
            assert bench.collect().figures["rollouts/excluded_share"] == 0.5


def test_the_tokens_of_a_finished_rollout_are_those_that_were_sampled(tmp_path: Path, tokenizer: Any) -> None:
    """The journal's last word on a rollout's tokens could be anything."""
    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url)
        result = bench.collect()
    texts = [call_text("hi") + "<|im_end|>", "It is hi.<|im_end|>"]
    sampled = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    assert sampled > 0
    assert {end.tokens for end in of_type(tmp_path, "rollout_finished")} == {sampled}
    assert {rollout.trajectory.sampled_tokens for rollout in result.rollouts} == {sampled}
