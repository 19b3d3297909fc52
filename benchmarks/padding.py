"""Token cells that the trainer computes for each token that exists. ``python benchmarks/padding.py [--micro N]``.

One GRPO step of a long-tailed sampling: 4 prompts of 527, 29, 30 and 30 tokens × 8 rollouts, of which one has 240
tokens and seven have 16. Counted are the ids that enter the model: in the forward of the loss, and in the two without
a gradient (old log-probabilities, because a step has two mini batches, and the reference, because β is not 0). Besides
micro batches of rows, the same with a limit of tokens, and packed (there with the 208 cells of the trial before the
run). ``untrimmed`` is what TRL's one width for all would be. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

PROMPTS, LENGTHS = (527, 29, 30, 30), [240, *[16] * 7]
EXIST = sum(len(LENGTHS) * prompt + sum(LENGTHS) for prompt in PROMPTS)
UNTRIMMED = len(PROMPTS) * len(LENGTHS) * (max(PROMPTS) + max(LENGTHS))


def prompt_of(tokenizer: Any, tokens: int) -> str:
    """A question whose prompt has as many tokens."""
    from envs.wire import Message
    from training.rollout.tokens import ChatTemplate

    template = ChatTemplate(tokenizer)
    for count in range(tokens):
        for end in ("", "."):
            text = f"Say{' 7' * count}{end}"
            if len(template.prompt_ids([Message(role="user", content=text)], None)) == tokens:
                return text
    raise ValueError(f"No question of {tokens} tokens was found.")


def counted(starter: Path, folder: Path, optim: dict[str, Any]) -> dict[str, float]:
    """Token cells with and without a gradient over the tokens that exist."""
    import torch
    from transformers import AutoTokenizer

    from envs.wire import Message
    from tests.training.helpers import TailedEngine, job_config, write_rows
    from training.algorithms import grpo
    from training.algorithms.job import Job
    from training.data.schema import Row
    from training.journal import Journal
    from training.rewards.base import Episode, Score

    tokenizer = AutoTokenizer.from_pretrained(starter)
    texts = [prompt_of(tokenizer, tokens) for tokens in PROMPTS]
    rows = [Row(messages=[Message(role="user", content=text)]) for text in texts]
    data = write_rows(folder / "rows.jsonl", rows, prompts_only=True)
    sizes = {"prompts_per_step": len(PROMPTS), "num_generations": len(LENGTHS), "max_turns": 1}
    config = job_config(
        model={"source": str(starter)},
        data={"train": str(data), "shuffle": False},
        rollout={**sizes, "max_prompt_tokens": 1024, "max_turn_tokens": 256, "max_completion_tokens": 256},
        grpo={"beta": 0.01},
        optim={"mini_batch_size": 16, "learning_rate": 1e-4, **optim},
        run={"max_steps": 2},
    )
    cells, load = {True: 0, False: 0}, grpo.load_model

    def watched(*given: Any, **named: Any) -> Any:
        def count(_module: Any, _args: Any, found: dict[str, Any]) -> None:
            cells[torch.is_grad_enabled()] += found["input_ids"].numel()

        model = load(*given, **named)
        model.base_model.register_forward_pre_hook(count, with_kwargs=True)
        return model

    score = iter(range(1 << 20))

    def scorer(_episode: Episode) -> Score:
        value = next(score) % 3 / 2
        return Score(parts={"task_success": value}, total=value)

    grpo.load_model = watched
    try:
        job = Job(config, folder / f"run{len(list(folder.iterdir()))}", Journal(folder), threading.Event(), 1)
        grpo.run_grpo(job, scorer=scorer, engine=TailedEngine(LENGTHS, tokenizer.eos_token_id))
    finally:
        grpo.load_model = load
    return {"loss": round(cells[True] / EXIST, 3), "without_gradient": round(cells[False] / EXIST, 3)}


def main() -> int:
    """Print the figures."""
    import torch

    from tests.training.helpers import demonstration_rows
    from training.starter import build_starter

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--micro", type=int, default=2)
    micro = parser.parse_args().micro
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder, starter = Path(temporary), Path(temporary) / "starter"
        build_starter(demonstration_rows(), starter, seed=3)
        figures: dict[str, Any] = {"tokens": EXIST, "untrimmed": round(UNTRIMMED / EXIST, 2)}
        figures[f"micro_batches_of_{micro}"] = counted(starter, folder, {"micro_batch_size": micro})
        figures["tokens_of_a_micro_batch_1536"] = counted(starter, folder, {"max_tokens_per_micro_batch": 1536})
        figures["packed"] = counted(starter, folder, {"max_tokens_per_micro_batch": 1536, "packing": True})
    print(json.dumps({"cells_over_tokens": figures}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
