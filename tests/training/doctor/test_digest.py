"""What is kept of a step, by hand-made rollouts."""

from __future__ import annotations

import math

import pytest

from training.doctor.digest import RolloutFact, StepFacts, digest_of, kind_of, repetition
from training.doctor.history import KEEP, History
from training.doctor.options import DoctorOptions


def group(*pairs: tuple[float, float | None], number: int = 0) -> list[RolloutFact]:
    return [
        RolloutFact(name=f"g{number}-i{index}", group=number, reward=reward, success=success)
        for index, (reward, success) in enumerate(pairs)
    ]


@pytest.mark.parametrize(
    ("pairs", "kinds"),
    [
        ([(0.5, 0.0), (0.5, 1.0)], ["flat"]),
        ([(0.5, None), (0.5, None)], ["flat"]),
        ([(0.2, 0.0), (0.3, 0.0)], ["phantom"]),
        ([(0.9, 1.0), (0.8, 1.0)], ["phantom"]),
        ([(0.2, None), (0.3, 0.0)], []),
        ([(0.2, 0.0), (0.9, 1.0)], ["mixed"]),
        ([(0.9, 0.0), (0.2, 1.0)], ["mixed", "inverted"]),
        ([(0.9, 0.0), (0.9, 1.0), (0.1, 0.0)], ["mixed"]),
        ([(0.4, 0.5), (0.3, 0.2)], ["mixed"]),
    ],
)
def test_what_a_group_is(pairs: list[tuple[float, float | None]], kinds: list[str]) -> None:
    assert kind_of(group(*pairs)) == kinds


def test_a_step_is_counted_and_excluded_rollouts_count_only_as_lost() -> None:
    rollouts = [
        RolloutFact(
            "a", 0, 0.2, 0.0, truncated=True, parse_errors=2, calls=4, failed_calls=1, repetition=0.7, loops=True
        ),
        RolloutFact("b", 0, 0.9, 1.0, tokens=90, calls=1, failed_calls=0, repetition=0.1, loops=True),
        RolloutFact("c", 1, 0.5, 0.0, seconds=9, calls=2, failed_calls=2),
        RolloutFact("d", 1, None, None, seconds=30, excluded=True, parse_errors=1, calls=3, failed_calls=3),
        RolloutFact("e", 1, math.nan, 0.0),
    ]
    found = digest_of(StepFacts(7, {"entropy": 0.4, "kl": math.nan, "loss": 1.0}, rollouts), DoctorOptions())
    assert found.figures == {
        "entropy": 0.4,
        "rollouts": 5,
        "kept": 3,
        "excluded": 1,
        "truncated": 1,
        "unread": 1,
        "texts": 2,
        "repeating": 1,
        "acting": 2,
        "looping": 1,
        "calls": 10,
        "failed_calls": 6,
        "success": pytest.approx(1 / 3),
        "groups": 1,
        "flat": 0,
        "phantom": 0,
        "mixed": 1,
        "inverted": 0,
        "lost_tries": 1,
        "lost_solved": 0.0,
        "whole_tries": 2,
        "whole_solved": 1.0,
    }
    assert found.witnesses == {
        "excluded": ["d"],
        "truncated": ["a"],
        "unread": ["a"],
        "repeating": ["a"],
        "looping": ["a"],
        "failed_calls": ["a", "c", "d"],
        "longest": ["b", "a", "c"],
        "slowest": ["d", "c", "a"],
        "paid": ["c", "a"],
        "failed": ["a", "c"],
        "mixed": ["a", "b"],
    }


def test_repetition_is_the_share_of_word_4_grams_that_came_before() -> None:
    assert repetition("too short to say anything at all") is None
    assert repetition(" ".join(str(number) for number in range(40))) == 0
    assert repetition("over and over again " * 10) == pytest.approx(1 - 4 / 37)
    assert repetition("再来一次" * 10) == pytest.approx(1 - 4 / 37)


def test_what_is_remembered_is_bounded_and_a_step_that_is_trained_again_replaces_what_followed() -> None:
    history = History(window=5)
    for step in range(1, 201):
        history.add(digest_of(StepFacts(step, {"kl": float(step)}, group((0.1, 0.0), (0.2, 0.0))), DoctorOptions()))
    assert len(history.digests) == KEEP and history.points("kl")[0] == (137, 137.0)
    assert history.recent("kl") == [196, 197, 198, 199, 200]
    assert history.before("kl") == list(range(171, 191))
    assert history.trailing("kl") == list(range(180, 200))
    assert sum(bool(each.witnesses) for each in history.digests) == 5
    history.add(digest_of(StepFacts(190, {"kl": 0.5}), DoctorOptions()))
    assert history.points("kl")[-2:] == [(189, 189.0), (190, 0.5)]
    history.add(digest_of(StepFacts(191, {"kl": 0.6}), DoctorOptions()), stage=2)
    assert history.points("kl") == [(191, 0.6)] and history.before("kl") == []
