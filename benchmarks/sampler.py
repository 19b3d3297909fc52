"""Tokens that a CPU second samples: ours against ``generate`` of transformers. ``python benchmarks/sampler.py``.

64 rollouts of three turns on the starter's shape, rows of different lengths, words of an environment between the turns;
both sample at temperature 1 and return the log-probability of each token, both up to the same number of tokens a turn.
Time is the process's CPU time, so a busy machine changes little. Prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

ROWS, TURNS, TOKENS, FIRST, BETWEEN, ROUNDS = 64, 3, 40, 120, 24, 5


def words(row: int, count: int) -> list[int]:
    """Ids of a prompt or of an environment's answer."""
    generator = torch.Generator().manual_seed(row)
    found: list[int] = torch.randint(10, 200, (count,), generator=generator).tolist()
    return found


def first_prompts() -> list[list[int]]:
    """Rows of different lengths."""
    return [words(row, FIRST + row % 16) for row in range(ROWS)]


def ours(model: Any) -> int:
    """All rollouts by our engine; the tokens sampled."""
    from tests.training.helpers import job_config
    from training.policy.make import make_engine
    from training.rollout.tokens import turn_ends

    tokenizer: Any = SimpleNamespace(eos_token_id=None)
    model.generation_config.eos_token_id = None
    engine = make_engine(job_config(), model, turn_ends(tokenizer), autocast=None, log=print)

    async def one(row: int, ids: list[int]) -> int:
        count = 0
        for turn in range(TURNS):
            sample = await engine.generate(ids, max_tokens=TOKENS, seed=row * TURNS + turn, episode=f"row {row}")
            count += len(sample.ids)
            ids = ids + sample.ids + words(row + turn, BETWEEN)
        engine.release(f"row {row}")
        return count

    async def together() -> int:
        return sum(await asyncio.gather(*(one(row, ids) for row, ids in enumerate(first_prompts()))))

    try:
        with engine.sampling():
            return asyncio.run(together())
    finally:
        engine.close()


def theirs(model: Any) -> int:
    """The same rollouts, a turn of all of them in one batch that is padded on the left."""
    rows, count = first_prompts(), 0
    model.eval()
    for turn in range(TURNS):
        width = max(len(ids) for ids in rows)
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        options = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": True, "top_k": 0, "pad_token_id": 0}
        with torch.no_grad():
            made = model.generate(
                input_ids=ids, attention_mask=mask, return_dict_in_generate=True, output_logits=True, **options
            )
        drawn = made.sequences[:, width:]
        torch.stack(made.logits, 1).log_softmax(-1).gather(2, drawn.unsqueeze(2))
        count += drawn.numel()
        rows = [
            row + new + words(place + turn, BETWEEN)
            for place, (row, new) in enumerate(zip(rows, drawn.tolist(), strict=True))
        ]
    return count


def tokens_a_cpu_second(play: Callable[[Any], int], model: Any) -> float:
    """Of one round."""
    began = time.process_time()
    return play(model) / (time.process_time() - began)


def main() -> int:
    """Print the figures."""
    from transformers import AutoModelForCausalLM

    from tests.training.helpers import demonstration_rows
    from training.starter import build_starter

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        build_starter(demonstration_rows(), Path(folder), seed=3)
        model = AutoModelForCausalLM.from_pretrained(folder)
    model.generation_config.eos_token_id = None
    for play in (ours, theirs):
        play(model)  # warms caches
    pairs = [(tokens_a_cpu_second(ours, model), tokens_a_cpu_second(theirs, model)) for _ in range(ROUNDS)]
    figures = {
        "ours_tokens_a_cpu_second": round(statistics.median(mine for mine, _ in pairs)),
        "generate_tokens_a_cpu_second": round(statistics.median(other for _, other in pairs)),
        "ours_over_generate": round(statistics.median(mine / other for mine, other in pairs), 2),
        "rounds": [round(mine / other, 2) for mine, other in pairs],
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps({"sampler": figures}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
