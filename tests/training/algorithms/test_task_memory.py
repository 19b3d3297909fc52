"""What a run remembers of its tasks: what is evidence and what is not, what is drawn, and what a checkpoint keeps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from envs.wire import Message
from tests.training.algorithms.conftest import MakeJob
from tests.training.rollout.test_signal import group
from training.algorithms.drawing import (
    NONE,
    TASKS_NAME,
    Drawing,
    Evidence,
    Memory,
    entered,
    keys_of,
    read_memory,
    worth,
)
from training.algorithms.saving import Saver
from training.config import DataConfig, JobConfig
from training.data.schema import Row
from training.rollout.trajectory import Rollout
from training.words import complaint_of, option_of

PASS_RATE = {"draw": "pass_rate"}


def rows(count: int) -> list[Row]:
    return [Row(messages=[Message(role="user", content=f"Task {number}")]) for number in range(count)]


def drawing(count: int = 4, memory: Memory | None = None, **options: Any) -> Drawing:
    given = {"draw": "pass_rate", "draw_half_life": 0, **options}
    return Drawing(DataConfig.model_validate(given), rows(count), range(count), 7, memory)


def played(place: int, rewards: list[float | None], verdicts: list[float | None] | None = None) -> list[Rollout]:
    members = group(rewards, verdicts or [None] * len(rewards))
    for rollout in members:
        rollout.row = place
    return members


def evidence(found: Drawing, place: int) -> Evidence:
    return found.memory.tasks.get(found._keys[place], NONE)


# --- what is evidence ------------------------------------------------------------------------------------------------


def test_verdicts_of_the_environment_count_and_rewards_do_not() -> None:
    found = drawing()
    found.took(1, played(2, [0.1, 0.9, 0.2, 0.3], [1.0, 0.0, 1.0, 1.0]))
    assert evidence(found, 2) == Evidence(4.0, 3.0, 3.0, 1)
    assert (found.memory.low, found.memory.high) == (None, None)


def test_without_a_verdict_rewards_count_between_the_lowest_and_the_highest_until_now() -> None:
    found = drawing()
    found.took(1, [*played(0, [2.0, 4.0]), *played(1, [3.0, 6.0])])
    assert evidence(found, 0) == Evidence(2.0, 0.5, 0.25, 1)  # (2 − 2) / 4 and (4 − 2) / 4
    assert evidence(found, 1) == Evidence(2.0, 1.25, 1.0625, 1)
    found.took(2, played(2, [10.0, 2.0]))
    assert evidence(found, 2) == Evidence(2.0, 1.0, 1.0, 2) and (found.memory.low, found.memory.high) == (2.0, 10.0)
    assert evidence(found, 0) == Evidence(2.0, 0.5, 0.25, 1)  # what was recorded of it stays
    found.took(3, played(3, [4.0, 8.0]))  # inside of the range, which stays
    assert evidence(found, 3) == Evidence(2.0, 1.0, 0.625, 3) and (found.memory.low, found.memory.high) == (2.0, 10.0)


def test_an_excluded_rollout_is_no_evidence_and_never_a_failure() -> None:
    found = drawing()
    found.took(1, [*played(0, [None, 1.0], [1.0, 1.0]), *played(1, [None, None]), *played(2, [None, None], [0.0, 0.0])])
    assert evidence(found, 0) == Evidence(1.0, 1.0, 1.0, 1)
    assert evidence(found, 1) == evidence(found, 2) == NONE and found.known == 1
    assert found.memory.low is None
    without_parts = played(3, [0.2, 0.8])
    without_parts[0].parts = None  # whatever reward it may have kept
    found.took(2, without_parts)
    assert evidence(found, 3).rollouts == 1.0 and (found.memory.low, found.memory.high) == (0.8, 0.8)


def test_rollouts_without_a_verdict_are_no_evidence_where_others_have_one() -> None:
    found = drawing()
    found.took(1, played(0, [0.3, 0.4, 0.5], [1.0, None, 0.0]))
    assert evidence(found, 0) == Evidence(2.0, 1.0, 1.0, 1) and found.memory.low is None


def test_verdicts_outside_of_0_to_1_count_as_the_nearest() -> None:
    found = drawing()
    found.took(1, played(0, [1.0, 1.0, 1.0], [1.5, -2.0, 0.25]))
    assert evidence(found, 0) == Evidence(3.0, 1.25, 1.0625, 1)


def test_groups_of_a_refill_are_evidence_too() -> None:
    found = drawing()
    assert set(found.tasks_of(1, 2)) <= set(range(4))
    found.took(1, [*played(0, [1.0], [1.0]), *played(1, [1.0], [0.0]), *played(3, [1.0], [1.0])])
    assert found.known == 3 and evidence(found, 3) == Evidence(1.0, 1.0, 1.0, 1)


def test_evidence_fades_with_the_samplings_that_are_taken() -> None:
    found = drawing(draw_half_life=2)
    found.took(5, played(0, [1.0] * 4, [1.0] * 4))
    for step in (9, 13):
        found.took(step, [])
    found.took(17, played(0, [1.0], [0.0]))
    assert evidence(found, 0) == pytest.approx(Evidence(4 * 0.5**1.5 + 1, 4 * 0.5**1.5, 4 * 0.5**1.5, 4))


def test_what_is_believed_fades_while_other_tasks_are_played() -> None:
    found = drawing(2, draw_half_life=1)
    assert found.took(1, played(0, [1.0] * 8, [0.0] * 8))["tasks/hopeless_share"] == 0.5
    assert found.took(2, played(1, [1.0], [1.0]))["tasks/hopeless_share"] == 0.5  # (0 + ½) / (4 + 1)
    assert found.took(3, [])["tasks/hopeless_share"] == 0.0  # (0 + ½) / (2 + 1)


# --- what is drawn ---------------------------------------------------------------------------------------------------


def test_tasks_that_are_solved_sometimes_are_drawn_more_and_none_never() -> None:
    found = drawing(10, draw_even_share=0.1)
    for place in range(10):
        verdicts: list[float | None] = [1.0, 0.0] * 8 if place == 3 else [float(place % 2)] * 16
        found.took(place + 1, played(place, [1.0] * 16, verdicts))
    times = Counter(place for step in range(1000) for place in found.tasks_of(100 + step, 1))
    useful, other = worth(Evidence(16, 8, 8, 1), 1.0), worth(Evidence(16, 16, 16, 1), 1.0)
    chance = 0.9 * useful / (useful + 9 * other) + 0.01
    assert times[3] / 1000 == pytest.approx(chance, abs=0.06) and chance > 0.45
    assert len(times) == 10 and min(times.values()) > 20


def test_before_anything_is_known_all_are_drawn_evenly() -> None:
    found = drawing(5)
    times = Counter(place for step in range(1000) for place in found.tasks_of(step + 1, 1))
    assert max(times.values()) < 250 and min(times.values()) > 150


@pytest.mark.parametrize("verdict", [0.0, 1.0], ids=["all hopeless", "all solved"])
def test_where_all_are_alike_all_are_drawn_evenly(verdict: float) -> None:
    found = drawing(5)
    found.took(1, [each for place in range(5) for each in played(place, [1.0] * 8, [verdict] * 8)])
    times = Counter(place for step in range(1000) for place in found.tasks_of(step + 2, 1))
    assert max(times.values()) < 250 and min(times.values()) > 150
    figures = found.took(2, [])
    assert (figures["tasks/solved_share"], figures["tasks/hopeless_share"]) == (verdict, 1.0 - verdict)


def test_one_task_is_drawn_always() -> None:
    found = drawing(1)
    assert found.tasks_of(1, 3) == [0, 0, 0]
    found.took(1, played(0, [1.0] * 6, [1.0] * 6))
    assert found.tasks_of(2, 1) == [0]


def test_only_the_given_places_are_drawn() -> None:
    found = Drawing(DataConfig(draw="pass_rate"), rows(6), [1, 4], 7)
    assert {place for step in range(20) for place in found.tasks_of(step, 2)} == {1, 4}


def test_what_is_planned_stays_whatever_is_learned_meanwhile() -> None:
    found = drawing(20)
    early = [found.tasks_of(step, 3) for step in (1, 2, 3)]
    for place in range(20):
        found.took(1, played(place, [1.0] * 8, [1.0, 0.0] * 4 if place > 17 else [0.0] * 8))
    assert [found.tasks_of(step, 3) for step in (2, 3)] == early[1:]
    assert found.tasks_of(1, 3) != early[0]  # it was taken, so it is drawn again


def test_the_draw_depends_on_seed_step_and_evidence_alone() -> None:
    draws = [drawing(30).tasks_of(step, 5) for step in (4, 4, 5)]
    assert draws[0] == draws[1] != draws[2]
    options = DataConfig(draw="pass_rate")
    assert Drawing(options, rows(30), range(30), 8).tasks_of(4, 5) != draws[0]


def test_tasks_of_a_refill_follow_those_of_the_sampling() -> None:
    """The draw continues, so the sampling's own are the same with and without."""
    found, without = drawing(20), drawing(20)
    own = found.tasks_of(1, 3, 6)
    assert own == without.tasks_of(1, 3) and without.spare_of(1, 3) == []
    spare = found.spare_of(1, 3)
    assert len(spare) == 6 and len({*own, *spare}) == 9
    assert found.tasks_of(1, 3, 6) == own and found.spare_of(1, 3) == spare
    assert found.tasks_of(1, 3, 3) == own and found.spare_of(1, 3) == spare[:3]


def test_figures_of_a_sampling() -> None:
    found = drawing(4)
    figures = found.took(1, [*played(0, [1.0] * 4, [1.0] * 4), *played(3, [1.0] * 3, [0.0] * 3)])
    assert figures == {
        "tasks/new_share": 1.0,
        "tasks/drawn_distinct": 2.0,
        "tasks/solved_share": 0.25,
        "tasks/hopeless_share": 0.0,  # three failures leave (0 + ½) / 4
    }
    figures = found.took(2, [*played(3, [1.0], [0.0]), *played(1, [1.0], [0.0]), *played(2, [None])])
    assert figures == {
        "tasks/new_share": 2 / 3,
        "tasks/drawn_distinct": 3.0,
        "tasks/solved_share": 0.25,
        "tasks/hopeless_share": 0.25,
    }
    assert "tasks/new_share" not in found.took(3, [])


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_a_memory_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    found = drawing(6, draw_half_life=3)
    for step in range(1, 8):
        found.tasks_of(step, 2)
        found.took(step, [each for place in found.tasks_of(step + 1, 2) for each in played(place, [0.1 * step, 0.7])])
    found.memory.write(tmp_path)
    back = read_memory(tmp_path)
    assert back == found.memory and back is not None
    again = drawing(6, back, draw_half_life=3)
    assert [again.tasks_of(step, 2) for step in range(8, 20)] == [found.tasks_of(step, 2) for step in range(8, 20)]


@pytest.mark.parametrize(
    "text", [None, "{", '{"version": 2}', '{"tasks": {"a": [1, "x", 0, 0]}}', '{"low": NaN}'], ids=str
)
def test_what_is_no_memory_of_this_version_is_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / TASKS_NAME).write_text(text)
    assert read_memory(tmp_path) is None


def test_a_copy_stays_as_it_was() -> None:
    found = drawing()
    found.tasks_of(2, 2)
    copy = found.memory.copied()
    found.took(2, played(0, [1.0], [1.0]))
    assert copy.tasks == {} and list(copy.planned) == [2] and copy.samplings == 0
    assert list(found.memory.tasks) == [found._keys[0]] and found.memory.planned == {}


def test_a_save_that_comes_later_keeps_what_was_known_at_its_border(make_job: MakeJob) -> None:
    """Two updates a sampling: the weights are at step 2 until the first update of the next sampling."""
    saver = Saver(make_job(), updates=2)
    saver.drawing = found = drawing()
    saver.updated(2)
    found.took(3, played(0, [1.0], [1.0]))
    found.tasks_of(5, 2)
    saver.updated(3)
    assert saver._memory == Memory()
    saver.updated(4)
    assert saver._memory == found.memory != Memory()


def test_tasks_are_known_in_another_order_and_spelling_and_equal_ones_apart() -> None:
    words = ["one", "two", "one", "three"]
    given = [Row(messages=[Message(role="user", content=word)]) for word in words]
    names = keys_of(given)
    assert len(set(names)) == 4 and names[2] == f"{names[0]}.1"
    assert keys_of([given[3], given[0]]) == [names[3], names[0]]
    assert keys_of([Row(messages=[Message(role="user", content="  ONE ")])]) == [names[0]]


def test_evidence_of_a_task_follows_it_to_another_place() -> None:
    found = drawing(4)
    found.took(1, played(3, [1.0, 1.0], [1.0, 0.0]))
    moved = Drawing(DataConfig(draw="pass_rate"), rows(4)[::-1], range(4), 7, found.memory)
    assert evidence(moved, 0) == Evidence(2.0, 1.0, 1.0, 1) and moved.known == 1


def test_planned_tasks_that_are_gone_or_too_few_are_drawn_again() -> None:
    found = drawing(6)
    planned = found.tasks_of(9, 3)
    assert drawing(6, found.memory.copied()).tasks_of(9, 3) == planned
    assert len(drawing(6, found.memory.copied()).tasks_of(9, 4)) == 4
    fewer = Drawing(DataConfig(draw="pass_rate"), rows(6), [place for place in range(6) if place not in planned], 7)
    fewer.memory = found.memory.copied()
    assert not set(fewer.tasks_of(9, 3)) & set(planned)


def test_a_change_of_stage_keeps_evidence_and_drops_the_plan_and_the_range() -> None:
    tasks = {"a": Evidence(2.0, 1.0, 1.0, 3)}
    memory = Memory(samplings=3, stage="one", low=-1.0, high=5.0, tasks=tasks, planned={4: ["a"]})
    assert entered(memory, "one") is memory and entered(None, "one") is None
    assert entered(memory, "two") == Memory(samplings=3, stage="two", tasks=tasks)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sft", "dpo", "sample", "evaluate"])
def test_only_what_learns_from_rollouts_draws_by_pass_rate(kind: str) -> None:
    for data in (PASS_RATE, {**PASS_RATE, "train": "rows.jsonl"}):  # without a dataset the environment draws
        with pytest.raises(ValidationError) as found:
            JobConfig.model_validate({"kind": kind, "data": data})
        (error,) = found.value.errors(include_url=False)
        assert option_of(error) == "data.draw" and "learns from rollouts" in complaint_of(error)
    JobConfig.model_validate({"kind": kind, "data": {"draw": "order", "draw_even_share": 0.5}})


@pytest.mark.parametrize("kind", ["grpo", "rloo", "ppo"])
def test_tasks_drawn_by_pass_rate_have_no_order_of_the_file(kind: str) -> None:
    JobConfig.model_validate({"kind": kind, "data": PASS_RATE})
    with pytest.raises(ValidationError) as found:
        JobConfig.model_validate({"kind": kind, "data": {**PASS_RATE, "shuffle": False}})
    (error,) = found.value.errors(include_url=False)
    assert option_of(error) == "data.shuffle" and "no order of the file" in complaint_of(error)
    JobConfig.model_validate({"kind": kind, "data": {"shuffle": False}})


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("draw_even_share", (0.0, 1.0), (-0.01, 1.01)),
        ("draw_prior", (0.01, 100.0), (0.0, 100.5)),
        ("draw_half_life", (0, 1_000_000), (-1, 1_000_001)),
    ],
)
def test_limits(name: str, good: tuple[float, float], bad: tuple[float, float]) -> None:
    for value in good:
        DataConfig.model_validate({name: value})
    for value in bad:
        with pytest.raises(ValidationError):
            DataConfig.model_validate({name: value})
