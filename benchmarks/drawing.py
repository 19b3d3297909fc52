"""Does drawing tasks by their own pass rate learn faster? ``python benchmarks/drawing.py [--seeds 0 1] [--steps 40]``.

A planted set of 80 tasks, of which 8 can be learned: they are solved by one of five answers that a warmed-up starter
gives about equally often. Of the others half are solved and half are failed by any answer. The model is trained by GRPO
for as many steps of 8 groups of 8 rollouts, with the tasks in order and drawn by pass rate, from the same weights and
seeds. Measured is the success on 24 held-out tasks of the kind that can be learned, 8 tries each, after the last step,
and the share of groups with non-zero variance. On the whole set, where one task in ten can be learned and 45% are
solved anyway, success is 0.45 + 0.1 × that. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

USEFUL, OTHERS, HELD_OUT, TRIES = 8, 72, 24, 8
DRAWS = ("order", "pass_rate")
KINDS = ("useful", "solved", "hopeless")
ANSWERS = ("red", "green", "blue", "black", "white")
LEARNING_RATE = 1e-4
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""The 97.5% point of Student's t by the number of seeds."""


def rows_of(kind: str, numbers: range, answer: str = "") -> list[Any]:
    """Tasks of one kind, each with a number of its own, and an answer where they are demonstrations."""
    from envs.wire import Message
    from training.data.schema import Row

    answers = [Message(role="assistant", content=answer)] if answer else []
    return [Row(messages=[Message(role="user", content=f"{kind} {number}"), *answers]) for number in numbers]


def solved(task: str, answer: str) -> float:
    """The verdict on an answer."""
    return float(answer == ANSWERS[1] if task == "useful" else task == "solved")


def warmed_up(folder: Path) -> Path:
    """A starter that gives every answer to every task about equally often."""
    from tests.training.helpers import job_config, write_rows
    from training.algorithms.job import Job
    from training.algorithms.sft import run_sft
    from training.journal import Journal

    numbers = range(0, 1000 + HELD_OUT, 31)
    rows = [row for kind in KINDS for answer in ANSWERS for row in rows_of(kind, numbers, answer)]
    folder.mkdir()
    config = job_config(
        kind="sft",
        model={"source": "starter"},
        data={"train": str(write_rows(folder / "demonstrations.jsonl", rows))},
        sft={"batch_size": 16, "max_length": 64},
        optim={"learning_rate": 3e-3},
        run={"max_steps": 60, "seed": 0, "save_every": 0, "save_every_minutes": 0},
    )
    run_sft(Job(config, folder, Journal(folder), threading.Event()))
    return folder / "model"


class Planted:
    """The environment: one turn, judged by the kind of its task."""

    def __init__(self) -> None:
        self._tasks: dict[Any, str] = {}

    async def behave(self, socket: Any, frame: dict[str, Any], _turn: int) -> str:
        """Answer a frame."""
        from tests.training.helpers import observation

        if frame["type"] == "reset":
            messages = frame["data"]["task"]["messages"]
            self._tasks[socket] = messages[0]["content"].split()[0]
            return observation(messages=messages)
        verdict = solved(self._tasks[socket], frame["data"]["message"].strip())
        return observation(messages=[], done=True, reward=verdict, reward_parts={"task_success": verdict})


def trained(folder: Path, starter: Path, url: str, draw: str, seed: int, steps: int) -> dict[str, float]:
    """One run, and what came of it."""
    from tests.training.helpers import job_config, of_type, write_rows
    from training.algorithms import grpo
    from training.algorithms.job import Job
    from training.journal import Journal

    half = USEFUL + OTHERS // 2
    ranges = (range(USEFUL), range(USEFUL, half), range(half, USEFUL + OTHERS))
    tasks = [row for kind, numbers in zip(KINDS, ranges, strict=True) for row in rows_of(kind, numbers)]
    run_dir = folder / f"{draw}-{seed}"
    run_dir.mkdir()
    held_out = rows_of("useful", range(1000, 1000 + HELD_OUT))
    config = job_config(
        model={"source": str(starter)},
        data={"train": str(write_rows(run_dir / "tasks.jsonl", tasks)), "draw": draw},
        environment={"url": url},
        rollout={"prompts_per_step": 8, "num_generations": 8, "max_turns": 1, "max_turn_tokens": 12},
        evaluate={"every": steps, "data": str(write_rows(run_dir / "exam.jsonl", held_out)), "samples": TRIES},
        optim={"learning_rate": LEARNING_RATE, "schedule": "constant"},
        run={"max_steps": steps, "seed": seed, "save_every": 0, "save_every_minutes": 0},
    )
    grpo.check_environment = lambda config: None  # type: ignore[assignment]  # the scripted server has no health route
    began = time.monotonic()
    grpo.run_grpo(Job(config, run_dir, Journal(run_dir), threading.Event()))
    values = [event.values for event in of_type(run_dir, "metrics")]
    success = [each["heldout/success"] for each in values if "heldout/success" in each]
    spread = [1 - each["groups/zero_variance_share"] for each in values if "groups/zero_variance_share" in each]
    return {
        "success_before": round(success[0], 3),
        "success_after": round(success[-1], 3),
        "groups_with_spread": round(sum(spread) / len(spread), 3),
        "seconds": round(time.monotonic() - began, 1),
    }


def measured(folder: Path, seeds: list[int], steps: int) -> dict[str, Any]:
    """Both ways of drawing over the seeds; ``lift`` is how much more of the learnable tasks is solved, seed by seed."""
    from tests.training.helpers import scripted_server

    starter = warmed_up(folder / "warm-up")
    with scripted_server(Planted().behave) as url:
        runs = {draw: {seed: trained(folder, starter, url, draw, seed, steps) for seed in seeds} for draw in DRAWS}
    lifts = [runs["pass_rate"][seed]["success_after"] - runs["order"][seed]["success_after"] for seed in seeds]
    return {"steps": steps, "runs": runs, "lift": [round(lift, 3) for lift in lifts], "mean_lift": mean_of(lifts)}


def mean_of(lifts: list[float]) -> dict[str, float]:
    """The mean over the seeds, and its 95% interval by Student's t where there are several."""
    mean, count = statistics.fmean(lifts), len(lifts)
    if count < 2:
        return {"n": count, "mean": round(mean, 3)}
    reach = STUDENT[count] * statistics.stdev(lifts) / count**0.5
    return {"n": count, "mean": round(mean, 3), "low": round(mean - reach, 3), "high": round(mean + reach, 3)}


def main() -> None:
    """Print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        print(json.dumps(measured(Path(temporary), options.seeds, options.steps), indent=2))


if __name__ == "__main__":
    main()
