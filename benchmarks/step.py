"""CPU seconds of a GRPO step: ours against TRL's own trainer. ``python benchmarks/step.py [--steps N]``.

The same starter, prompts and sizes (8 prompts × 8 generations of at most 64 tokens, one turn, no environment); ours
writes its journal and every figure as in a run, TRL logs nothing. The first steps are left out. Time is the
process's CPU time, so a busy machine changes little. Prints JSON.
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
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

PROMPTS, GENERATIONS, TOKENS, WARM = 8, 8, 64, 3


def ours(starter: Path, folder: Path, steps: int) -> tuple[list[float], float]:
    """CPU seconds of each step, and the mean length of a completion."""
    from tests.training.algorithms.test_sampler_check import by_length
    from tests.training.helpers import demonstration_rows, job_config, write_rows
    from training.algorithms.grpo import run_grpo
    from training.algorithms.job import Job
    from training.journal import Journal

    data = write_rows(folder / "rows.jsonl", demonstration_rows(), prompts_only=True)
    config = job_config(
        model={"source": str(starter)},
        data={"train": str(data)},
        rollout={
            "prompts_per_step": PROMPTS,
            "num_generations": GENERATIONS,
            "max_turns": 1,
            "max_turn_tokens": TOKENS,
            "max_completion_tokens": TOKENS,
        },
        run={"max_steps": steps, "threads": 1, "save_every_minutes": 0},
    )
    job = Job(config, folder / "run", Journal(folder / "run"), threading.Event(), 1)
    at, lengths, write = [], [], job.journal.write

    def watch(event: Any) -> None:
        write(event)
        if event.type == "metrics":
            at.append(time.process_time())
            lengths.append(event.values["completions/mean_length"])

    job.journal.write = watch  # type: ignore[method-assign]
    run_grpo(job, scorer=by_length)
    return [later - earlier for earlier, later in pairwise(at)], statistics.fmean(lengths)


def theirs(starter: Path, folder: Path, steps: int) -> tuple[list[float], float]:
    """The same by TRL's own trainer."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from training.data.reader import load_rows

    tokenizer = AutoTokenizer.from_pretrained(starter, padding_side="left")
    rows = load_rows(folder / "rows.jsonl")
    prompts = [[{"role": m.role, "content": m.content} for m in row.messages if m.role != "assistant"] for row in rows]
    at, lengths = [], []

    class Watch(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            at.append(time.process_time())

    def reward(completions: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        lengths.extend(len(ids) for ids in completion_ids)
        return [float(len(completion[0]["content"])) for completion in completions]

    arguments = GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=PROMPTS * GENERATIONS,
        num_generations=GENERATIONS,
        max_completion_length=TOKENS,
        max_steps=steps,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        logging_steps=1000,
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(starter),
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        callbacks=[Watch()],
    )
    trainer.train()
    return [later - earlier for earlier, later in pairwise(at)], statistics.fmean(lengths)


def main() -> int:
    """Print the figures."""
    import torch

    from tests.training.helpers import demonstration_rows
    from training.starter import build_starter

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder, starter = Path(temporary), Path(temporary) / "starter"
        build_starter(demonstration_rows(), starter, seed=3)
        mine, length = ours(starter, folder, steps)
        other, other_length = theirs(starter, folder, steps)
    own, bare = statistics.median(mine[WARM:]), statistics.median(other[WARM:])
    figures = {
        "ours_cpu_s": round(own, 3),
        "trl_cpu_s": round(bare, 3),
        "ours_over_trl": round(own / bare, 2),
        "mean_length": [round(length, 1), round(other_length, 1)],
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps({"step": figures}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
