"""Facts of the trainer and of the agent loop by value, in verl's virtualenv and without a Ray.

Run with verl's Python: ``python -m tests.training.verl_backend.in_trainer``. It names each fact that held.
"""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.utils.tensordict_utils import get_tensordict

from training.errors import PolicyFault, SamplerDied
from training.verl_backend import loop, trainer
from training.verl_backend.actor import Lesson, error_of
from training.verl_backend.trainer import GroupTrainer, places_of

SIZE, PROMPTS = 2, 3


def bare(step: int = 4) -> Any:
    """A trainer of ``PROMPTS`` groups of ``SIZE`` in a step, of which nothing was set up."""
    made: Any = GroupTrainer.__new__(GroupTrainer)
    made.global_steps = step
    made.config = SimpleNamespace(data=SimpleNamespace(train_batch_size=PROMPTS))
    config = SimpleNamespace(rollouts_per_step=PROMPTS * SIZE)
    made._job = SimpleNamespace(config=config, log=lambda text: None)
    made._failures = SimpleNamespace(check=lambda *given: None)
    made._prove = lambda rows: None
    made._began = 0.0
    return made


def facts(name: str, reward: float | None) -> dict[str, Any]:
    """What a process that plays says of a rollout."""
    empty: dict[str, Any] = {"env_parts": {}, "env_errors": 0, "latencies": [], "parts": None, "error": None}
    return empty | {"status": "completed", "turns": 1, "name": name, "row": 0, "reward": reward, "tokens": 2}


class Rows:
    """A step's rows as verl keeps them, the last group first; of each group the first advantage is positive."""

    def __init__(self, silent: bool = False) -> None:
        self.keys = [f"s4-g{group}_{index}_0" for group in (2, 1, 0) for index in range(SIZE)]
        self.tags: list[dict[str, Any]] = [{} for _ in self.keys]
        self.partition_id = "train"
        masks = [[0, 0, 0] if silent or "g1_" in key else [1, 0, 1] for key in self.keys]
        self.extra = [
            {"advantage": (group + 1.0) * (1 - 2 * index), "facts": facts(f"a1-s4-g{group}-i{index}", float(group))}
            for group in (2, 1, 0)
            for index in range(SIZE)
        ]
        self.masks = torch.nested.as_nested_tensor([torch.tensor(mask) for mask in masks], layout=torch.jagged)

    def __len__(self) -> int:
        return len(self.keys)

    def get(self, **_asked: Any) -> dict[str, Any]:
        """In the place of ``tq.kv_batch_get``."""
        return dict.fromkeys(trainer.FIELDS, self.masks) | {"extra_fields": self.extra, "response_mask": self.masks}


def computed(made: Any, rows: Rows) -> tuple[list[list[float]], int]:
    """The advantages that verl is given for each row, and how often it computed its own."""
    given, own = [], []

    def put(keys: list[str], partition_id: str, fields: TensorDict) -> Any:
        assert keys == rows.keys and partition_id == "train"
        given.extend(row.tolist() for row in fields["advantages"].unbind())
        assert [row.tolist() for row in fields["returns"].unbind()] == given
        return rows

    def theirs(_trainer: Any, batch: Any, _metrics: Any) -> Any:
        own.append(batch)
        return batch

    with (
        patch.object(trainer.tq, "kv_batch_get", rows.get),
        patch.object(trainer.tq, "kv_batch_put", put),
        patch.object(PPOTrainerSync, "_compute_advantage", theirs),
    ):
        made._compute_advantage(rows, {})
    return given, len(own)


def names_and_places() -> None:
    """A group is named by its step and its number in the step, and a row's key says both and the rollout's index."""
    batch = get_tensordict({"place": torch.tensor([9, 10, 11])}, {})
    with patch.object(PPOTrainerSync, "_fetch_one_gen_batch", lambda _trainer: batch):
        found = bare()._fetch_one_gen_batch()
    assert list(found["uid"]) == ["s4-g0", "s4-g1", "s4-g2"], list(found["uid"])
    assert places_of(["s4-g2_1_0", "s4-g10_0_0"]) == [(2, 1), (10, 0)]


def advantages_are_ours() -> None:
    """Each row has the advantage that was computed where it was played, at the tokens that are learned from."""
    made = bare()
    given, own = computed(made, Rows())
    assert given == [[3, 0, 3], [-3, 0, -3], [0, 0, 0], [0, 0, 0], [1, 0, 1], [-1, 0, -1]], given
    assert own == 1 and made._teaches
    assert [rollout.name for rollout in made._rollouts] == [f"a1-s4-g{g}-i{i}" for g in range(3) for i in range(SIZE)]


def a_step_that_teaches_nothing() -> None:
    """Neither advantages of verl's nor an update: a mean over no token would be no number."""
    made = bare()
    given, own = computed(made, Rows(silent=True))
    assert own == 0 and not made._teaches and given == [[0, 0, 0]] * 6
    metrics: dict[str, Any] = {}
    with patch.object(PPOTrainerSync, "_update_actor", side_effect=AssertionError("it must not be asked")):
        made._update_actor(Rows(), metrics)
    assert metrics == {"actor/loss": 0.0, "actor/grad_norm": 0.0}


def rows_that_lack_or_fail() -> None:
    """Filled up or missing rows are no batch, and an error of a process that plays is the run's."""
    padded, short, failed = Rows(), Rows(), Rows()
    padded.tags[0] = {"is_padding": True}
    short.keys = short.keys[:-1]
    for rows in (padded, short):
        try:
            computed(bare(), rows)
        except PolicyFault as error:
            assert str(error).startswith("1 of 6 rollouts of step 4 did not come"), error
        else:
            raise AssertionError("it was taken for whole")
    failed.extra[3]["facts"] = {"fatal": error_of(SamplerDied("it is gone"))}
    try:
        computed(bare(), failed)
    except Exception as error:  # it is made again of its plain values
        assert getattr(error, "code", "") == SamplerDied.code, error
    else:
        raise AssertionError("the error was lost")


def a_rollout_of_the_loop() -> None:
    """The place says the group, and the row says of which weights it is: those of the step before."""
    asked: list[tuple[int, int, int]] = []

    class Plays:
        config = SimpleNamespace(rollout=SimpleNamespace(prompts_per_step=PROMPTS))

        async def play(self, step: int, group: int, index: int) -> Lesson:
            asked.append((step, group, index))
            return Lesson([1], [2, 3], [1, 0], [-0.5, 0.0], 0.75, {"reward": None, "turns": 2})

    made: Any = loop.PlayerLoop.__new__(loop.PlayerLoop)
    made._actor = Plays
    found = asyncio.run(made.run({}, global_steps=4, place=11, session_id=1))
    assert asked == [(4, 2, 1)]
    assert (found.prompt_ids, found.response_ids, found.response_mask) == ([1], [2, 3], [1, 0])
    assert (found.response_logprobs, found.reward_score, found.num_turns) == ([-0.5, 0.0], 0.0, 2)
    extra = found.extra_fields
    assert (extra["min_global_steps"], extra["max_global_steps"], extra["advantage"]) == (3, 3, 0.75)


FACTS = (
    names_and_places,
    advantages_are_ours,
    a_step_that_teaches_nothing,
    rows_that_lack_or_fail,
    a_rollout_of_the_loop,
)

if __name__ == "__main__":
    for fact in FACTS:
        fact()
        print(f"HELD {fact.__name__}", flush=True)
    sys.exit(0)
