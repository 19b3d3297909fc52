"""GRPO steps on a GPU: ``python benchmarks/gpu.py [--sizes 0.6b 1.7b] [--device cuda]``.

No model hub is needed: the models have the shapes of Qwen3 with random weights and the starter's small vocabulary, so
they never end a turn by themselves and every turn is as long as it may be. Each is trained for some steps against the
real tools environment by ``python -m training run``, all weights and with LoRA; prints JSON. The first step, which
warms up, does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.environment import environment_server  # noqa: E402
from benchmarks.learning import make_data  # noqa: E402
from training.journal import (  # noqa: E402
    Metrics,
    RolloutFinished,
    TurnAdded,
    read_events,
)

SAMPLE_EVERY_S = 3.0


class Shape(NamedTuple):
    """The sizes in which Qwen3 models differ."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    inner: int
    head: int = 128


SHAPES = {
    "tiny": Shape(128, 2, 4, 2, 384, 32),
    "0.6b": Shape(1024, 28, 16, 8, 3072),
    "1.7b": Shape(2048, 28, 16, 8, 6144),
    "4b": Shape(2560, 36, 32, 8, 9728),
}


def config_of(shape: Shape, words: int, **more: Any) -> Any:
    """A Qwen3 of this shape that knows so many words."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=words,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.head,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        **more,
    )


def build(shape: Shape, rows: Path, folder: Path) -> int:
    """Write a model of this shape with random weights; its number of parameters."""
    import torch
    from transformers import Qwen3ForCausalLM

    from training.data.reader import load_rows
    from training.starter import build_tokenizer

    tokenizer = build_tokenizer(load_rows(rows))
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = config_of(shape, len(tokenizer), **ends)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


class _Memory:
    """The most memory that the GPU held in use, in MiB; ``None`` where there is no ``nvidia-smi``."""

    def __init__(self) -> None:
        self.most: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Memory:
        if shutil.which("nvidia-smi"):
            self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _look(self) -> None:
        argv = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self._ended.wait(SAMPLE_EVERY_S):
            done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
            used = [float(line) for line in done.stdout.split() if line.strip().isdigit()]
            self.most = max([*used, self.most or 0.0])


def measure(model: Path, folder: Path, url: str, options: argparse.Namespace, lora_rank: int) -> dict[str, Any]:
    """Train it for some steps and read what its journal says."""
    config = {
        "kind": "grpo",
        "model": {"source": str(model), "lora_rank": lora_rank, "gradient_checkpointing": options.checkpointing},
        "data": {"train": str(folder / "tasks.jsonl")},
        "environment": {"name": "tools", "url": url},
        "rewards": {"components": [{"name": "coherence", "weight": 0.5}, {"name": "task_success", "weight": 0.5}]},
        "rollout": {
            "prompts_per_step": options.prompts,
            "num_generations": options.generations,
            "max_turns": 2,
            "max_turn_tokens": options.tokens,
            "max_completion_tokens": 2 * options.tokens + 256,
        },
        "optim": {"learning_rate": 1e-6, "micro_batch_size": options.micro},
        "run": {"max_steps": options.steps + 1, "device": options.device},
    }
    name = f"{model.name}-lora{lora_rank}"
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    words = [sys.executable, "-m", "training", "run", str(path), "--run-dir", str(folder / name)]
    log = folder / f"{name}.log"
    with _Memory() as memory, log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(words, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = process.wait(options.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    found: dict[str, Any] = {"lora_rank": lora_rank, "exit": code, "gpu_memory_mib": memory.most}
    if code:
        found["output"] = log.read_text(encoding="utf-8", errors="replace")[-1500:]
    return found | _figures(folder / name / "journal.jsonl")


def _figures(journal: Path) -> dict[str, Any]:
    """Of the steps after the first; of a run that was ended, those that it had finished, and what its first turns took.

    ``turn_tokens_a_second``: tokens of a turn by the seconds from its request to its end, waiting for others included.
    """
    events = [event for _, event in read_events(journal, max_bytes=1 << 30)]
    steps = [event for event in events if isinstance(event, Metrics) and event.step > 1]
    turns = [event for event in events if isinstance(event, TurnAdded) and event.tokens and event.seconds]
    paces = [event.tokens / event.seconds for event in turns]
    pace = {"turns": len(turns), "turn_tokens_a_second": round(statistics.median(paces), 1) if paces else None}
    if not steps:
        return {"steps": 0, **pace}
    last = max(event.step for event in steps)
    timed = tuple(f"a1-s{step}-" for step in range(2, last + 1))
    tokens = sum(e.tokens for e in events if isinstance(e, RolloutFinished) and e.rollout.startswith(timed))
    times = {
        f"{part}_s": round(statistics.median(event.values[f"timing/{part}"] for event in steps), 2)
        for part in ("step", "generation", "environment", "scoring", "training")
    }
    generating = sum(event.values["timing/generation"] for event in steps)
    return {
        "steps": len(steps),
        **pace,
        "rollouts": sum(isinstance(event, RolloutFinished) for event in events),
        "excluded": sum(event.values["rollouts/excluded"] for event in steps),
        **times,
        "sampled_tokens_per_s": round(tokens / generating) if generating else None,
        **{name: float(f"{value:.3g}") for name, value in steps[-1].values.items() if name.startswith("sampling/")},
    }


def _device(kind: str) -> str:
    """The device's name."""
    if kind == "cpu" or not shutil.which("nvidia-smi"):
        return kind
    argv = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=10).stdout.strip()


def main() -> int:
    """Measure each size with all weights and with LoRA."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=list(SHAPES), default=["0.6b", "1.7b"])
    parser.add_argument("--lora", nargs="+", type=int, default=[0, 16], help="ranks; 0 trains all weights")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128, help="of each of the two turns")
    parser.add_argument("--micro", type=int, default=16, help="rollouts in one forward and backward pass")
    parser.add_argument("--limit", type=float, default=1800, help="seconds of one run; what it did by then is printed")
    parser.add_argument("--checkpointing", action="store_true")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as temporary, environment_server("tools") as server:
        folder = Path(temporary)
        make_data("tasks", ("--count", "64"), folder / "tasks.jsonl")
        for size in options.sizes:
            model = folder / size
            parameters = build(SHAPES[size], folder / "tasks.jsonl", model)
            results = [measure(model, folder, server.url, options, rank) for rank in options.lora]
            failed = failed or any(result["exit"] for result in results)
            print(
                json.dumps(
                    {
                        "benchmark": f"gpu.{size}",
                        "device": _device(options.device),
                        "torch": version("torch"),
                        "cores": os.cpu_count(),
                        "parameters": parameters,
                        "rollouts_per_step": options.prompts * options.generations,
                        "tokens_per_turn": options.tokens,
                        "results": results,
                    }
                ),
                flush=True,
            )
            shutil.rmtree(model)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
