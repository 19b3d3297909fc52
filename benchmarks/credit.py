"""Does credit to turns lift a task that it should lift? ``python benchmarks/credit.py [--seeds 1 2] [--steps N]``.

Planted tasks of four turns, in each of which the policy picks one of four words; it begins as one that picks them
evenly. In ``late`` the first two turns pay plus or minus 3 by chance and the third pays 1 for its right word; in
``early`` the first pays for its right word and the next two by chance. In ``each`` nothing is left to chance: every
turn has a right word and pays a quarter for it. The same runs, seeds and options but for the credit: of whole
rollouts, to turns, and to turns that have nothing to do with one another (discount 0). Prints JSON: the share of
right words over all steps, and over the first and the last ten.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

WORDS, TURNS, WINDOW = ("red", "green", "blue", "pink"), 4, 10
CREDITS: dict[str, dict[str, Any]] = {
    "rollout": {"credit": "rollout"},
    "turns": {"credit": "turns"},
    "turns, discount 0": {"credit": "turns", "credit_discount": 0.0},
}
DECIDES = {"late": range(2, 3), "early": range(1), "each": range(TURNS)}
CHANCE = {"late": (0, 1), "early": (1, 2), "each": ()}
STAKE = 3.0
RATE = 1e-3


def ask(turn: int) -> str:
    """The environment's text before a turn, from 0."""
    return f"Turn {turn + 1}: pick a word."


class Game:
    """The environment of one run. ``right`` has a step's number of right words after each episode."""

    def __init__(self, task: str, seed: int) -> None:
        self._task, self._seed = task, seed
        self._episodes: dict[int, dict[str, Any]] = {}
        self.right: list[tuple[int, int]] = []

    async def __call__(self, socket: Any, frame: dict[str, Any], turn: int) -> str:
        """The answer to a frame, as ``tests.training.helpers.scripted_server`` asks for it."""
        from tests.training.helpers import observation

        if frame["type"] == "reset":
            name = frame["data"]["episode_id"]
            chance = random.Random(f"{self._seed} {name}")
            step = int(name.split("-s")[1].split("-")[0])
            self._episodes[id(socket)] = {"paid": 0.0, "right": 0, "chance": chance, "step": step}
            return observation(messages=[])
        played, place = self._episodes[id(socket)], turn - 1
        hit = frame["data"]["message"].strip() == WORDS[place]
        if place in DECIDES[self._task]:
            played["right"] += hit
            played["paid"] += hit / len(DECIDES[self._task])
        elif place in CHANCE[self._task]:
            played["paid"] += played["chance"].choice((-STAKE, STAKE))
        over = place == TURNS - 1 or frame["data"].get("final", False)
        if over:
            self.right.append((played["step"], played["right"]))
        messages = [] if over else [{"role": "user", "content": ask(place + 1)}]
        return observation(messages=messages, done=over, reward=played["paid"])

    def shares(self) -> list[float]:
        """The share of right words of each step."""
        steps = sorted({step for step, _right in self.right})
        of_step = {step: [right for at, right in self.right if at == step] for step in steps}
        return [sum(found) / len(found) / len(DECIDES[self._task]) for found in of_step.values()]


def conversations(count: int) -> list[Any]:
    """Demonstrations of a policy that picks its words evenly."""
    from envs.wire import Message
    from training.data.schema import Row

    draw, rows = random.Random(0), []
    for _ in range(count):
        messages: list[Message] = []
        for turn in range(TURNS):
            messages += [Message(role="user", content=ask(turn)), Message(role="assistant", content=draw.choice(WORDS))]
        rows.append(Row(messages=messages, tools=None))
    return rows


def taught(folder: Path) -> Path:
    """A starter that picks words evenly."""
    from tests.training.helpers import job_config, write_rows
    from training.algorithms.job import Job
    from training.algorithms.sft import run_sft
    from training.journal import Journal
    from training.starter import build_starter

    rows = conversations(256)
    build_starter(rows, folder / "starter", seed=3)
    config = job_config(
        kind="sft",
        model={"source": str(folder / "starter")},
        data={"train": str(write_rows(folder / "demonstrations.jsonl", rows))},
        sft={"batch_size": 32, "max_length": 256},
        optim={"learning_rate": 5e-3},
        run={"max_steps": 60},
    )
    run_sft(Job(config, folder / "sft", Journal(folder / "sft"), threading.Event()))
    return folder / "sft" / "model"


def learned(
    folder: Path, model: Path, task: str, seed: int, steps: int, credit: dict[str, Any], prompts: int = 2
) -> list[float]:
    """The share of right words of each step of a GRPO run."""
    from tests.training.helpers import job_config, scripted_server, write_rows
    from training.algorithms import grpo
    from training.algorithms.job import Job
    from training.journal import Journal

    game = Game(task, seed)
    folder.mkdir(parents=True)
    with scripted_server(game) as url:
        config = job_config(
            model={"source": str(model)},
            data={"train": str(write_rows(folder / "tasks.jsonl", conversations(1), prompts_only=True))},
            environment={"url": url},
            rollout={"prompts_per_step": prompts, "num_generations": 8, "max_turns": TURNS, "max_turn_tokens": 12},
            grpo=credit,
            optim={"learning_rate": RATE},
            run={"max_steps": steps, "seed": seed, "save_every_minutes": 0, "no_gradient_updates": 0},
        )
        check, grpo.check_environment = grpo.check_environment, lambda _place: None
        try:
            grpo.run_grpo(Job(config, folder / "run", Journal(folder / "run"), threading.Event(), 1))
        finally:
            grpo.check_environment = check
    return game.shares()


def summed_up(shares: list[float]) -> dict[str, float]:
    """Means over all steps, the first and the last ten."""
    parts = {"mean": shares, "first10": shares[:WINDOW], "last10": shares[-WINDOW:]}
    return {name: round(sum(part) / len(part), 3) for name, part in parts.items()}


def main() -> int:
    """Print one JSON object."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--prompts", type=int, default=2, help="of a step, with eight rollouts each")
    parser.add_argument("--tasks", nargs="+", default=["late", "early"], choices=list(DECIDES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = taught(folder)
        for task in options.tasks:
            for name, credit in CREDITS.items():
                for seed in options.seeds:
                    place = folder / f"{task}-{name.replace(', ', '-').replace(' ', '')}-{seed}"
                    shares = learned(place, model, task, seed, options.steps, credit, options.prompts)
                    found.setdefault(task, {}).setdefault(name, {})[f"seed {seed}"] = summed_up(shares)
                    print(task, name, seed, summed_up(shares), file=sys.stderr, flush=True)
    print(json.dumps({"steps": options.steps, "rollouts": 8 * options.prompts, "right_words": found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
