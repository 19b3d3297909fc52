"""Is the table of memory true? ``python benchmarks/memory.py [--device cuda] [--cases N]``.

For each case a process of its own trains two real GRPO steps (the second has the optimiser's moments) on random
weights, with rollouts exactly as long as the options allow and nothing sampled. What it held at the moment of most is
compared with the table of ``training/memory``, which has seen only the model's ``config.json``. On a processor that is
resident memory (the kernel's ``VmHWM``); on a GPU what PyTorch reserved, and besides the bytes of its tensors, which is
what the table counts without the program. Prints JSON: bytes of both and their ratio for each case, and the largest
deviation.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

CHILD_LIMIT_S = 900
# family, hidden size, inner size, layers, heads, key heads, words
SHAPES: dict[str, tuple[str, int, int, int, int, int, int]] = {
    "qwen3": ("qwen3", 512, 1536, 12, 8, 4, 24000),
    "llama": ("llama", 768, 2048, 12, 12, 12, 32000),
    "qwen2, deep": ("qwen2", 384, 1024, 24, 6, 2, 4000),
    "mistral, wide": ("mistral", 1024, 3584, 5, 16, 4, 8000),
    "gemma3": ("gemma3_text", 512, 2048, 8, 8, 2, 24000),
}
ON_A_GPU: dict[str, tuple[str, int, int, int, int, int, int]] = {
    "qwen3, 0.6b": ("qwen3", 1024, 3072, 28, 16, 8, 151936),
    **SHAPES,
}
ROWS, PROMPTS, MICRO = 8, 2, 4
LENGTHS = {"cpu": (256, 640), "cuda": (1024, 3072)}
"""Tokens of a rollout. A GPU has room for what people train; a processor takes minutes for it."""
_TORCH = threading.Lock()
"""Seeds and traced models belong to one thread at a time."""


OTHERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("qwen3", {"method": "ppo"}),
    ("mistral, wide", {"method": "ppo", "lora_rank": 16}),
    ("qwen2, deep", {"method": "ppo", "recompute": True}),
    ("llama", {"beta": 0.05}),
    ("gemma3", {"beta": 0.05, "recompute": True}),
    ("mistral, wide", {"beta": 0.05, "lora_rank": 16}),
    ("llama", {"optimizer": "adamw_bf16"}),
    ("qwen3", {"optimizer": "adamw_offload"}),
    ("mistral, wide", {"optimizer": "adafactor"}),
    ("llama", {"micro": 1}),
    ("qwen3", {"micro": 1, "recompute": True}),
    ("gemma3", {"micro": 8}),
    ("qwen2, deep", {"lora_rank": 16, "recompute": True}),
    ("llama", {"lora_rank": 16, "recompute": True}),
)
"""Besides the plain ones: a value head, a reference, other optimisers, other micro batches."""


def cases(device: str) -> list[dict[str, Any]]:
    """Every shape with all weights and with LoRA, short and long; the long ones recompute in one more case. Then
    ``OTHERS``, which are long."""
    found = []
    for name in ON_A_GPU if device == "cuda" else SHAPES:
        for rank in (0, 16):
            for length in LENGTHS[device]:
                found.append({"shape": name, "lora_rank": rank, "length": length, "recompute": False})
        found.append({"shape": name, "lora_rank": 0, "length": LENGTHS[device][-1], "recompute": True})
    for name, over in OTHERS:
        found.append({"shape": name, "lora_rank": 0, "length": LENGTHS[device][-1], "recompute": False, **over})
    return [{**case, "device": device} for case in found]


def config_of(shape: tuple[str, int, int, int, int, int, int]) -> Any:
    """A model's config of a shape."""
    from transformers import AutoConfig

    family, hidden, inner, layers, heads, key_heads, words = shape
    return AutoConfig.for_model(
        family,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        head_dim=hidden // heads,
        vocab_size=words,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
    )


def make_model(folder: Path, shape: tuple[str, int, int, int, int, int, int]) -> None:
    """Random weights of a shape, with the starter's tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM

    from tests.training.helpers import demonstration_rows
    from training.starter import build_starter

    build_starter(demonstration_rows(), folder, seed=1)
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config_of(shape), dtype=torch.float32).save_pretrained(folder)


class Longest:
    """An engine whose turns are exactly as long as they may be."""

    version = 0

    def __init__(self) -> None:
        from training.policy.engine import EngineFigures

        self.figures = EngineFigures()

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Any:
        """Random ids, none of which ends the turn."""
        from training.policy.engine import Sample

        drawn = random.Random(seed)
        return Sample([drawn.randrange(300, 700) for _ in range(max_tokens)], [-6.0] * max_tokens, False)

    def release(self, episode: str) -> None:
        """Nothing is kept."""

    def sampling(self) -> Any:
        """Nothing to prepare."""
        return nullcontext()

    def weights_changed(self) -> int:
        """Nothing depends on them."""
        self.version += 1
        return self.version

    def close(self) -> None:
        """Nothing was started."""


def child(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    """Train two steps; what was resident at most, and before the weights were loaded."""
    from training.algorithms.grpo import run_grpo, run_ppo
    from training.algorithms.job import Job
    from training.config import JobConfig
    from training.journal import Journal
    from training.rewards.base import Score

    import trl.trainer.grpo_trainer  # noqa: F401  isort: skip  # what the program is before it has a model

    config = JobConfig.model_validate(job_of(folder, case))
    (folder / "tasks.jsonl").write_text(
        "".join(json.dumps({"messages": [{"role": "user", "content": f"Say {n}."}]}) + "\n" for n in range(8))
    )
    on_gpu = case["device"] == "cuda"
    before = resident("VmRSS")
    if not on_gpu:
        Path("/proc/self/clear_refs").write_text("5")
    job = Job(config, folder, Journal(folder), threading.Event())

    def score(episode: Any) -> Any:
        value = random.random()
        return Score({config.rewards.components[0].name: value}, value)

    run = run_ppo if config.learns_values else run_grpo
    run(job, scorer=score, engine=Longest())
    if not on_gpu:
        return {"program": before, "most": resident("VmHWM")}
    import torch

    free, total = torch.cuda.mem_get_info()
    program = case.get("program") or total - free - torch.cuda.memory_reserved()
    most = program + torch.cuda.max_memory_reserved()
    return {"program": program, "most": most, "tensors": torch.cuda.max_memory_allocated()}


def job_of(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    """The job of a case."""
    method = case.get("method", "grpo")
    return {
        "kind": method,
        method: {"beta": case.get("beta", 0.0)},
        "model": {
            "source": str(folder),
            "lora_rank": case["lora_rank"],
            "gradient_checkpointing": case["recompute"],
        },
        "data": {"train": str(folder / "tasks.jsonl")},
        "rewards": {"components": [{"name": "repetition", "function": "repetition", "weight": 1.0}]},
        "rollout": {
            "prompts_per_step": PROMPTS,
            "num_generations": ROWS // PROMPTS,
            "max_turns": 1,
            "max_turn_tokens": case["length"],
            "max_completion_tokens": case["length"],
            "max_prompt_tokens": 16,
        },
        "optim": {
            "micro_batch_size": case.get("micro", MICRO),
            "optimizer": case.get("optimizer", "adamw"),
        },
        "run": {"max_steps": 2, "device": case["device"], "save_every": 0},
    }


def resident(name: str) -> int:
    """Bytes of this process, as the kernel counts them."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """One case: the table's bytes and the measured ones."""
    from training.config import JobConfig
    from training.memory.devices import device_here
    from training.memory.table import Model, memory_of

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with _TORCH:
            make_model(folder, ON_A_GPU[case["shape"]])
        command = [sys.executable, __file__, "--child", str(folder), json.dumps(case)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_LIMIT_S, cwd=ROOT, check=False)
        if done.returncode:
            raise SystemExit(f"{case}: {done.stderr[-2000:]}")
        with _TORCH:  # after the child: this process holds memory of the GPU too once it has looked at it
            device = device_here(case["device"])
            model = Model.of(str(folder))
            assert model is not None, "its folder was just written"
            need = memory_of(JobConfig.model_validate(job_of(folder, case)), model, device)
    found = json.loads(done.stdout.splitlines()[-1])
    predicted, measured = need.learning, found["most"]
    if "tensors" in found:
        program = next(term.bytes for term in need.terms if term.key == "program")
        found["ratio_of_tensors"] = round((predicted - program) / found["tensors"], 3)
    print(f"{case}: predicted {predicted >> 20} MiB, measured {measured >> 20} MiB", file=sys.stderr, flush=True)
    terms = {term.key: term.bytes for term in need.terms}
    return {
        **case,
        "told": predicted,
        "measured": measured,
        "ratio": round(predicted / measured, 3),
        "terms": terms,
    } | found


def main() -> None:
    """Measure all cases, or some, and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--cases", type=int, default=0, help="only so many, drawn evenly (default all)")
    parser.add_argument("--at-once", type=int, default=1, help="cases that run at the same time, on a GPU")
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(Path(options.child[0]), json.loads(options.child[1]))))
        return
    chosen = cases(options.device)
    if options.cases:
        chosen = chosen[:: max(1, len(chosen) // options.cases)][: options.cases]
    found = [measure(chosen[0])]  # alone, so that what the device holds for a program can be seen
    more = [{**case, "program": found[0]["program"]} for case in chosen[1:]]
    with ThreadPoolExecutor(options.at_once) as pool:
        found += pool.map(measure, more)
    worst = max(abs(item["ratio"] - 1) for item in found)
    print(json.dumps({"cores": os.cpu_count(), "cases": found, "largest_deviation": round(worst, 3)}, indent=2))


if __name__ == "__main__":
    main()
