"""Several environments in one run, on the real trainer: groups by weight, each with its part's environment and
components, and a run that is cut continues as one that was not."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from envs.wire import Message
from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import by_length, parameters_of
from tests.training.algorithms.test_held_out import Server
from tests.training.algorithms.test_resume import figures, stop_after
from tests.training.algorithms.test_stages import asked, tasks
from tests.training.helpers import of_type, scripted_server
from training.algorithms.grpo import run_grpo
from training.algorithms.held_out import choose_tasks
from training.algorithms.job import Job, row_order
from training.algorithms.stages import Segment, dealt, order_of
from training.config import JobConfig
from training.data.identity import split_rows
from training.data.reader import load_rows
from training.data.schema import Row
from training.errors import ConfigError, DataError, StopRequested
from training.rollout.tokens import ChatTemplate

pytestmark = pytest.mark.usefixtures("no_health")

COLOURS = ("red", "green", "blue")
NUMBERS = ("12", "345", "6", "7")
SUCCESS = [{"name": "task_success", "weight": 1.0}]
NO_SAVES = {"save_every": 0, "save_every_minutes": 0}


def mixed(make_job: MakeJob, tmp_path: Path, urls: list[str], name: str = "run", **groups: Any) -> Job:
    """Colours with three quarters of the groups, numbers with one; each in an environment of its own."""
    parts = [
        {"name": "colours", "weight": 3, "data": {"train": tasks(tmp_path, "colours", COLOURS)},
         "environment": {"url": urls[0]}, "rewards": {"components": SUCCESS}},
        {"name": "numbers", "weight": 1, "data": {"train": tasks(tmp_path, "numbers", NUMBERS)},
         "environment": {"url": urls[1]},
         "rewards": {"components": [{"name": "spoken", "function": "final_answer", "weight": 0.5}]}},
    ]  # fmt: skip
    own = groups.pop("parts", [{}, {}])
    parts = [{**part, **more} for part, more in zip(parts, own, strict=True)]
    return make_job(name, **{"mix": {"parts": parts}, "run": {"max_steps": 4, **NO_SAVES}, **groups})


def played(job: Job, *, held_out: bool = False) -> list[tuple[int, int, str, int]]:
    """Step, group, part and row of each group that was played."""
    found = {
        (e.step, e.group, e.part, e.row) for e in of_type(job.run_dir, "rollout_started") if e.held_out is held_out
    }
    return sorted(found)


# --- Dealing --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("weights", "order"),
    [
        ([1.0, 1.0], [0, 1, 0, 1, 0, 1, 0, 1]),
        ([3.0, 1.0], [0, 0, 0, 1, 0, 0, 0, 1]),
        ([0.75, 0.25], [0, 0, 0, 1, 0, 0, 0, 1]),
        ([1.0, 0.0], [0, 0, 0, 0, 0, 0, 0, 0]),
        ([0.0, 2.0, 2.0], [1, 2, 1, 2, 1, 2, 1, 2]),
        ([5.0, 2.0, 1.0], [0, 0, 1, 0, 0, 1, 0, 2]),
    ],
)
def test_groups_are_dealt_by_weight_worked_out_by_hand(weights: list[float], order: list[int]) -> None:
    assert dealt(weights, 8) == order


def test_no_part_is_ever_a_whole_group_off_its_share() -> None:
    """Any number of parts and weights; a sum of tenths is no whole number in floats, and is one here."""
    draw = random.Random(5)
    cases = [[0.1] * 10, [0.7, 0.2, 0.1], [1e6, 1e-3], [1.0] * 20]
    cases += [[round(draw.uniform(0, 5), draw.randrange(4)) for _ in range(draw.randrange(2, 9))] for _ in range(60)]
    for weights in (case for case in cases if sum(case)):
        exact = [Fraction(str(weight)) for weight in weights]
        counts = [0] * len(weights)
        for number, part in enumerate(dealt(weights, 300), start=1):
            counts[part] += 1
            for count, weight in zip(counts, exact, strict=True):
                assert abs(count - number * weight / sum(exact)) < 1, (weights, number)
        assert all(count == 0 for count, weight in zip(counts, weights, strict=True) if not weight)


def test_a_longer_deal_begins_like_a_shorter_one() -> None:
    """So a run that is given more steps continues where it was."""
    assert dealt([0.61, 0.27, 0.12], 400)[:123] == dealt([0.61, 0.27, 0.12], 123)


def segments(*sizes: int, weights: tuple[float, ...], shuffle: bool = True) -> list[Segment]:
    config = JobConfig.model_validate({"data": {"shuffle": shuffle}})
    found, begin = [], 0
    for number, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        found.append(Segment(f"p{number}", config, [], weight, begin, begin + size))
        begin += size
    return found


def test_each_part_goes_through_its_tasks_as_a_run_of_it_alone_would() -> None:
    parts = segments(5, 4, weights=(2.0, 1.0))
    order = order_of(parts, list(range(9)), 30, seed=3)
    assert [place for place in order if place < 5] == row_order(5, 20, seed=3, shuffle=True)
    assert [place - 5 for place in order if place >= 5] == row_order(4, 10, seed=3, shuffle=True)
    plain = order_of(segments(2, 2, weights=(1.0, 1.0), shuffle=False), [0, 1, 3], 6, seed=3)
    assert plain == [0, 3, 1, 3, 0, 3]  # row 2 is held out
    alone = order_of(segments(5, weights=(1.0,)), [0, 2, 4], 7, seed=3)
    assert alone == [[0, 2, 4][place] for place in row_order(3, 7, seed=3, shuffle=True)]


def test_a_part_with_a_share_needs_a_task() -> None:
    with pytest.raises(ConfigError, match="Part p1 has no task to learn from"):
        order_of(segments(2, 2, weights=(1.0, 1.0)), [0, 1], 4, seed=1)
    assert order_of(segments(2, 2, weights=(1.0, 0.0), shuffle=False), [0, 1], 4, seed=1) == [0, 1, 0, 1]


# --- Runs -----------------------------------------------------------------------------------------------------------
def test_each_part_has_its_own_tasks_environment_and_components(make_job: MakeJob, tmp_path: Path) -> None:
    one, two = Server([0.25]), Server([0.75])
    with scripted_server(one.behave) as first, scripted_server(two.behave) as second:
        job = mixed(make_job, tmp_path, [first, second])
        run_grpo(job)
    assert asked(one) == set(COLOURS) and asked(two) <= set(NUMBERS)
    found = played(job)
    assert Counter(part for _step, _group, part, _row in found) == {"colours": 6, "numbers": 2}
    assert [[part for step, _group, part, _row in found if step == each] for each in (1, 2, 3, 4)] == [
        ["colours", "colours"], ["colours", "numbers"], ["colours", "colours"], ["colours", "numbers"],
    ]  # fmt: skip
    orders = {part: [row for _s, _g, name, row in found if name == part] for part in ("colours", "numbers")}
    assert orders == {
        "colours": row_order(3, 6, seed=7, shuffle=True), "numbers": row_order(4, 2, seed=7, shuffle=True),
    }  # fmt: skip
    part_of = {event.rollout: event.part for event in of_type(job.run_dir, "rollout_started")}
    for event in of_type(job.run_dir, "rollout_finished"):
        assert list(event.parts) == [{"colours": "task_success", "numbers": "spoken"}[part_of[event.rollout]]]
        assert event.env_parts["task_success"] == {"colours": 0.25, "numbers": 0.75}[part_of[event.rollout]]
    values = {event.step: event.values for event in of_type(job.run_dir, "metrics")}
    assert values[1]["parts/colours/share"] == 1.0 and values[1]["parts/numbers/share"] == 0.0
    assert "parts/numbers/reward" not in values[1] and "parts/numbers/success" not in values[1]
    assert values[2]["parts/colours/share"] == values[2]["parts/numbers/share"] == 0.5
    assert (values[2]["parts/colours/success"], values[2]["parts/numbers/success"]) == (0.25, 0.75)
    assert values[2]["parts/colours/reward"] == 0.25
    halves = (values[2]["parts/colours/reward"] + values[2]["parts/numbers/reward"]) / 2
    assert values[2]["reward"] == pytest.approx(halves, abs=1e-6)
    assert values[2]["rewards/task_success/mean"] == pytest.approx(0.25)


def test_groups_of_other_parts_change_no_baseline(make_job: MakeJob, tmp_path: Path) -> None:
    """The advantages of a group are those of its own rewards, whatever the other parts pay; with batch scaling they
    depend on all, as TRL computes them."""
    with scripted_server(Server([0.5]).behave) as first, scripted_server(Server([0.5]).behave) as second:
        for scale in ("group", "batch"):
            job = mixed(
                make_job,
                tmp_path,
                [first, second],
                scale,
                grpo={"scale_rewards": scale},
                run={"max_steps": 2, **NO_SAVES},
            )
            run_grpo(job)
            rewards = {e.rollout: e.reward for e in of_type(job.run_dir, "rollout_finished")}
            batch = [rewards[name] for e in of_type(job.run_dir, "group_scored") if e.step == 2 for name in e.rollouts]
            for event in (e for e in of_type(job.run_dir, "group_scored") if e.step == 2):
                own = [rewards[name] for name in event.rollouts]
                spread = torch.tensor(own if scale == "group" else batch).std().item()
                expected = [(reward - sum(own) / len(own)) / (spread + 1e-4) for reward in own]
                assert event.advantages == pytest.approx(expected, abs=1e-5)


def test_a_run_cut_in_two_is_bitwise_the_same(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"max_steps": 6, "save_every": 3, "keep_last": 0}
    with scripted_server(Server().behave) as first, scripted_server(Server().behave) as second:
        urls = [first, second]
        whole = mixed(make_job, tmp_path, urls, "whole", run=run)
        run_grpo(whole, scorer=by_length)
        begun = mixed(make_job, tmp_path, urls, "begun", run=run)
        stop_after(begun, 3, monkeypatch)
        with pytest.raises(StopRequested):
            run_grpo(begun, scorer=by_length)
        rest = mixed(make_job, tmp_path, urls, "rest", run=run, resume_from=begun.run_dir)
        run_grpo(rest, scorer=by_length)
    assert sorted([*played(begun), *played(rest)]) == played(whole)
    assert figures(begun, "loss") | figures(rest, "loss") == figures(whole, "loss")
    one, other = parameters_of(whole.run_dir / "model"), parameters_of(rest.run_dir / "model")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_held_out_tasks_of_each_part_with_figures_of_each_and_of_all(make_job: MakeJob, tmp_path: Path) -> None:
    """A task that both parts have is on one side in both; nothing is learned from a part of weight 0."""
    words = tuple(f"word{number}" for number in range(20))
    one, two = Server([1.0]), Server([0.0])
    with scripted_server(one.behave) as first, scripted_server(two.behave) as second:
        own = [{"data": {"train": tasks(tmp_path, "one", words)}},
               {"data": {"train": tasks(tmp_path, "two", words[5:])}, "weight": 0}]  # fmt: skip
        groups = {"evaluate": {"every": 2, "share": 0.3, "tasks": 3}, "parts": own, "run": {"max_steps": 2, **NO_SAVES}}
        job = mixed(make_job, tmp_path, [first, second], **groups)
        run_grpo(job)
    rows = [load_rows(Path(part["data"]["train"])) for part in own]  # type: ignore[index]
    held = [set(split_rows(each, 0.3).held_out) for each in rows]
    events = of_type(job.run_dir, "tasks_held_out")
    assert [(event.part, len(event.rows)) for event in events] == [("colours", 3), ("numbers", 3)]
    assert all(set(event.rows) <= own_held for event, own_held in zip(events, held, strict=True))
    evaluated = played(job, held_out=True)
    assert {(part, row) for _s, _g, part, row in evaluated} == {
        (event.part, row) for event in events for row in event.rows
    }
    assert {part for _s, _g, part, _r in played(job)} == {"colours"}
    assert held[0].isdisjoint(row for _s, _g, _part, row in played(job))
    values = next(e.values for e in of_type(job.run_dir, "metrics") if e.step == 2 and "heldout/success" in e.values)
    assert values["parts/colours/heldout_success"] == 1.0 and values["parts/numbers/heldout_success"] == 0.0
    assert values["heldout/success"] == 0.5
    assert values["parts/colours/heldout_reward"] == 1.0 and values["parts/numbers/heldout_reward"] > 0
    reports = of_type(job.run_dir, "held_out_evaluated")
    assert [event.report["tasks"] for event in reports] == [6, 6]
    assert of_type(job.run_dir, "run_started")[0].rows == 20 - len(held[0])


def test_a_task_that_one_part_holds_out_is_trained_on_in_none(make_job: MakeJob, tokenizer: Any) -> None:
    """A small part holds out its lowest task, which the large one by itself would train on."""
    rows = [Row(messages=[Message(role="user", content=f"Say word{number} please.")]) for number in range(12)]
    rows += [rows[place] for place in split_rows(rows, 0.05).train[:2]]
    job = make_job(evaluate={"every": 2, "share": 0.05})
    chosen = choose_tasks(job, rows, ChatTemplate(tokenizer), (), segments(12, 2, weights=(1.0, 1.0)))
    held = {rows[place].messages[0].content for place in chosen.played if place >= 12}
    assert len(held) == 1 and held < {row.messages[0].content for row in rows[:12]}
    assert held.isdisjoint(rows[place].messages[0].content for place in chosen.train)
    assert {place >= 12 for place in chosen.train} == {True, False}


def test_held_out_tasks_meet_the_seeds_of_a_run_of_their_part_alone(make_job: MakeJob, tmp_path: Path) -> None:
    words = tuple(f"word{number}" for number in range(12))
    alone, one, two = Server(), Server(), Server()
    held = {"evaluate": {"every": 2, "share": 0.3}, "run": {"max_steps": 1, **NO_SAVES}}
    with (
        scripted_server(one.behave) as first,
        scripted_server(two.behave) as second,
        scripted_server(alone.behave) as url,
    ):
        data = tasks(tmp_path, "two", words)
        run_grpo(mixed(make_job, tmp_path, [first, second], parts=[
            {"data": {"train": tasks(tmp_path, "one", tuple(f"other{n}" for n in range(9)))}, "weight": 0},
            {"data": {"train": data}},
        ], **held))  # fmt: skip
        run_grpo(make_job("alone", data={"train": data}, environment={"url": url}, **held))
    share = len(split_rows(load_rows(Path(data)), 0.3).held_out) * 2  # before the first step and after the last
    assert share >= 2
    assert Counter(two.asked) - Counter(alone.asked) == Counter() and len(two.asked) == len(alone.asked)


def test_what_is_wrong_with_a_part_is_reported_with_its_name(make_job: MakeJob, tmp_path: Path) -> None:
    def run(**own: Any) -> None:
        run_grpo(mixed(make_job, tmp_path, ["http://127.0.0.1:1", "http://127.0.0.1:1"], parts=[{}, own]))

    with pytest.raises(DataError) as lost:
        run(data={"train": str(tmp_path / "none.jsonl")})
    assert lost.value.message == "Part numbers: The file cannot be opened: it does not exist."
    with pytest.raises(ConfigError, match="`task_success` of part numbers differs from the one") as caught:
        run(rewards={"components": [{"name": "task_success", "weight": 0.5}]})
    assert caught.value.option == "mix.parts"
    with pytest.raises(ConfigError) as caught:
        run(rewards={"components": [{"name": "unheard_of", "weight": 0.5}]})
    assert caught.value.option == "mix.parts.1.rewards.components"
