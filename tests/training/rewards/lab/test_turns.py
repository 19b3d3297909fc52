"""What the lab says of credit to turns, against ``training/rewards/turns.py`` rollout by rollout, and by hand."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.training.rewards.episodes import episode, says
from training.config import RewardComponent
from training.rewards.combining import Scale, group_statistics, reward_std, terms_of, total_of
from training.rewards.lab.figures import Scored, advantages, scored, turn_advantages, turn_report, turns_of
from training.rewards.lab.table import KNOWN, Column, Table, table_load
from training.rewards.lab.writing import Recorded, SetWriter
from training.rewards.turns import gains_of, turn_credit

SPEC = [
    RewardComponent.model_validate(item)
    for item in (
        {
            "name": "paid",
            "function": "task_success",
            "weight": 2.0,
            "clip": [-1, 1],
            "scale": [0, 2],
            "schedule": {"end": 3, "last": 0.5},
            "gate": {"component": "shape", "above": 0.2},
        },
        {"name": "shape", "weight": 0.5},
    )
]
Said = list[float | None]


def made(folder: Path, rewards_of_turns: list[Said | None], size: int, dead: frozenset[int] = frozenset()) -> Table:
    with SetWriter(folder) as writer:
        for place, rewards in enumerate(rewards_of_turns):
            group, index = divmod(place, size)
            error = "The server died." if place in dead else ""
            where = {"step": group // 2, "group": group % 2, "index": index, "error": error}
            writer.add(Recorded(uuid.UUID(int=place), turn_rewards=rewards, **where), episode("q", says("a")))
        writer.finish()
    return table_load(folder)


def under(table: Table, values: dict[str, list[float]], spec: list[RewardComponent]) -> Scored:
    held = {name: Column(np.array(found), np.full(table.size, KNOWN, np.int32), []) for name, found in values.items()}
    return scored(table, spec, held)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("discount", [1.0, 0.0])
def test_columns_are_the_rollouts_own(tmp_path: Path, scale: Scale, discount: float) -> None:
    draw, size = random.Random(7), 5
    rewards_of_turns: list[Said | None] = []
    for _ in range(40):
        turns = draw.randrange(0, 5)
        row: Said = [draw.choice([None, None, 0.25]), *(draw.choice([None, 0.5, -2.0, 1.5]) for _ in range(turns))]
        rewards_of_turns.append(None if draw.random() < 0.1 else row)
    dead = frozenset({3, 11, 12})
    table = made(tmp_path, rewards_of_turns, size, dead)
    values = {
        "paid": [draw.uniform(-1, 1) for _ in rewards_of_turns],
        "shape": [draw.random() for _ in rewards_of_turns],
    }
    found = under(table, values, SPEC)
    advantage = advantages(table, found, "sum_then_normalize", scale)
    turns_found = turns_of(table, found)
    assert turns_found is not None
    credit = turn_advantages(table, found, turns_found, advantage, scale, discount)
    wanted: list[tuple[int, int, float]] = []
    parts = [{name: column[place] for name, column in values.items()} for place in range(len(rewards_of_turns))]
    rewards = [
        None if place in dead else total_of(terms_of(parts[place], SPEC, place // size // 2), SPEC)
        for place in range(len(rewards_of_turns))
    ]
    for start in range(0, len(rewards_of_turns), size):
        members, step = range(start, start + size), start // size // 2
        gains = [
            None
            if place in dead or rewards_of_turns[place] is None
            else gains_of(
                rewards_of_turns[place] or [], len(rewards_of_turns[place] or []) - 1, SPEC, parts[place], step
            )
            for place in members
        ]
        group = rewards[start : start + size]
        batch = reward_std(rewards[step * 2 * size : (step + 1) * 2 * size])
        of_rollouts = group_statistics(group, scale=scale, batch_std=batch).advantages
        options = {"weight": 1.0, "discount": discount, "scale": scale, "batch_std": batch}
        credits = turn_credit(group, of_rollouts, gains, **options)  # type: ignore[arg-type]
        for place, one, value in zip(members, credits, of_rollouts, strict=True):
            if one is not None and value is not None:
                wanted += [(place, turn + 1, own) for turn, own in enumerate(one.of(value))]
    got = list(zip(turns_found.rollout.tolist(), turns_found.turn.tolist(), credit.tolist(), strict=True))
    assert [(place, turn) for place, turn, _ in got] == [(place, turn) for place, turn, _ in wanted]
    assert [value for *_, value in got] == pytest.approx([value for *_, value in wanted], abs=1e-9)
    assert len(wanted) > 40


PLAIN = [RewardComponent(name="task_success", weight=1.0)]
FOUR: list[Said | None] = [[None, 1.0, 1.0, 2.0], [None, 0.0, 1.0, 1.0], [None, 0.0, None, 3.0], [None, 1.0, 0.0]]


def test_the_report_by_hand(tmp_path: Path) -> None:
    """The group of ``test_turns.py``: rewards 2, 1, 3 and 0, of which two have the other sign at some turn."""
    table = made(tmp_path, FOUR, 4)
    found = under(table, {"task_success": [2.0, 1.0, 3.0, 0.0]}, PLAIN)
    report = turn_report(table, found, advantages(table, found, "sum_then_normalize", "none"), "none")
    assert {name: report[name] for name in ("recorded", "rollouts", "several", "silent", "pays", "hidden")} == {
        "recorded": 4, "rollouts": 4, "several": 4, "silent": 0, "pays": True, "hidden": 0,
    }  # fmt: skip
    first, second, third = report["rows"]
    assert first == {
        "turn": 1, "rollouts": 4, "gain": 0.5, "spread": pytest.approx(np.std([1, 0, 0, 1], ddof=1)),
        "turned_1": 0.0, "turned_0": 0.0,
    }  # fmt: skip
    # Paid before the second turn: 1, 0, 0, 1, so 0.5, -0.5, 1.5 and -1.5 become 0, 0, 2 and -2. The answers to the
    # other turns but the last paid as much, and the last turn of the fourth is not compared by its own.
    assert (second["rollouts"], second["turned_1"], second["turned_0"]) == (4, 0.0, 0.0)
    assert second["gain"] == pytest.approx(1 / 3)  # 0, 1 and 0: the last one's has none
    assert (third["rollouts"], third["gain"], third["spread"]) == (3, None, None)
    assert third["turned_1"] == pytest.approx(1 / 3)  # 0.5, -0.5 and 1.5 become -1/3, -4/3 and 5/3
    # A rollout with the highest reward that earned all of it at once has nothing to be praised for afterwards.
    early = made(tmp_path / "early", [[None, 2.0, 2.0], [None, 0.0, 1.0]], 2)
    found = under(early, {"task_success": [2.0, 1.0]}, PLAIN)
    report = turn_report(early, found, advantages(early, found, "sum_then_normalize", "group"), "group")
    assert [row["turned_1"] for row in report["rows"]] == [0.0, 1.0]


def test_a_rollout_without_a_record_has_no_turns(tmp_path: Path) -> None:
    some: list[Said | None] = [[None, 1.0, 1.0], [None, 0.0, 1.0], None, [None]]
    table = made(tmp_path, [some[3], *some[:3]], 4)
    found = under(table, {"task_success": [0.0, 1.0, 1.0, 0.5]}, PLAIN)
    turns = turns_of(table, found)
    assert turns is not None and turns.rollout.tolist() == [1, 1, 2, 2] and turns.turn.tolist() == [1, 2, 1, 2]


def test_it_says_what_it_does_not_know(tmp_path: Path) -> None:
    silent: list[Said | None] = [[None, None, 1.0], [0.5, None, None, 0.0], None, [None, 1.0]]
    table = made(tmp_path, silent, 4)
    found = under(table, {"task_success": [1.0, 0.0, 1.0, 1.0]}, PLAIN)
    advantage = advantages(table, found, "sum_then_normalize", "group")
    report = turn_report(table, found, advantage, "group")
    assert report == {"recorded": 3, "rollouts": 4, "several": 2, "silent": 2, "pays": True, "rows": []}
    old = replace(table, said=None, said_ends=None)
    assert turn_report(old, found, advantage, "group")["recorded"] == 0
    other = under(table, {"exact_match": [1.0, 0.0, 1.0, 1.0]}, [RewardComponent(name="exact_match", weight=1.0)])
    assert turn_report(table, other, advantage, "group")["pays"] is False


def test_long_rollouts_are_shown_up_to_a_limit(tmp_path: Path) -> None:
    long: list[Said | None] = [[0.0, *(float(place % 3) for place in range(count))] for count in (21, 20)]
    table = made(tmp_path, long, 2)
    found = under(table, {"task_success": [1.0, 0.0]}, PLAIN)
    report = turn_report(table, found, advantages(table, found, "sum_then_normalize", "group"), "group")
    assert len(report["rows"]) == 20 and report["hidden"] == 1
    assert report["rows"][-1]["rollouts"] == 2
