"""One decoding step of the sampler that runs in Python: ``python benchmarks/decoding.py [--device cuda] [--rows 64]``.

A batch of prompts of one length is prefilled and then decoded token by token, as ``training/policy`` does it for
rollouts: with all weights in float32 that are computed in bfloat16 (a GPU), and with a LoRA adapter over bfloat16.
Prints JSON: milliseconds of a step by the clock and of the thread's processor time, tokens a second, and on a GPU the
milliseconds in which it computed and the kernels of a step. Where the processor time is about the clock's, Python is
what the step waits for, and a larger model costs no more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import SHAPES, config_of  # noqa: E402
from training.policy.attention import DecodeBatch  # noqa: E402

WARM_UP = 8
WORDS = 4096


def model_of(size: str, lora_rank: int, device: torch.device) -> Any:
    """Random weights of a shape, as a trainer on this device would hold them."""
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3ForCausalLM

    torch.manual_seed(0)
    with device:
        model: Any = Qwen3ForCausalLM(config_of(SHAPES[size], WORDS))
    if lora_rank:
        adapter = LoraConfig(r=lora_rank, lora_alpha=2 * lora_rank, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model.to(torch.bfloat16), adapter)
    return model.to(device).eval()


def measure(model: Any, device: torch.device, rows: int, columns: int, steps: int) -> dict[str, Any]:
    """Medians over ``steps`` of a batch of ``rows`` that begins with ``columns`` of context."""
    prompts = [[(7 * row + place) % WORDS for place in range(columns - row % 2)] for row in range(rows)]
    on_gpu = device.type == "cuda"
    clock, processor = [], []
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
        batch = DecodeBatch.prefill(model, prompts, device, torch.bfloat16 if on_gpu else None)

        def step() -> None:
            batch.step(model, batch.logits.argmax(dim=-1))
            batch.logits.argmax(dim=-1).tolist()  # as the sampler reads what it drew

        for _ in range(WARM_UP):
            step()
        for _ in range(steps):
            began, worked = time.perf_counter(), time.thread_time()
            step()
            clock.append(time.perf_counter() - began)
            processor.append(time.thread_time() - worked)
        found = {
            "rows": rows,
            "context": columns,
            "clock_ms": round(1000 * statistics.median(clock), 2),
            "processor_ms": round(1000 * statistics.median(processor), 2),
            "tokens_a_second": round(rows / statistics.median(clock)),
        }
        return found | (_kernels(step) if on_gpu else {})


def _kernels(step: Any) -> dict[str, Any]:
    """The GPU's work in one step, and its longest kinds of kernel."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    rows = [row for row in seen.key_averages() if row.self_device_time_total > 0 and row.device_type.name == "CUDA"]
    rows.sort(key=lambda row: -row.self_device_time_total)
    return {
        "gpu_ms": round(sum(row.self_device_time_total for row in rows) / 1000, 2),
        "kernels": sum(row.count for row in rows),
        "longest": {row.key[:60]: [row.count, round(row.self_device_time_total / 1000, 2)] for row in rows[:6]},
    }


def main() -> None:
    """Each size, with all weights and with LoRA, and each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=list(SHAPES), default=["0.6b"])
    parser.add_argument("--lora", nargs="+", type=int, default=[0, 16], help="ranks; 0 is all weights")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--rows", nargs="+", type=int, default=[8, 64])
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    device = torch.device(options.device)
    for size in options.sizes:
        for rank in options.lora:
            model = model_of(size, rank, device)
            found = [measure(model, device, rows, options.context, options.steps) for rows in options.rows]
            name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
            print(
                json.dumps({"benchmark": f"decoding.{size}", "lora_rank": rank, "device": name, "cases": found}),
                flush=True,
            )
            del model


if __name__ == "__main__":
    main()
