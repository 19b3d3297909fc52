"""Does the memory of two depths predict that of the whole model? ``python benchmarks/depth.py [--rank N]``.

Twelve models × four lengths × with and without checkpointing, one row, float32 weights under bfloat16's autocast as on
a GPU (with ``--rank`` an adapter over bfloat16 weights). Each is predicted as the table of memory predicts it, and
traced at its full depth; both on tensors without content. Prints JSON: the largest relative difference, and the five
largest.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from training.memory import tracing
from training.memory.devices import KNOWN
from training.memory.tracing import How, Precision, Shape, step_bytes

MODELS = (
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen2.5-3B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3-1.7B",
    "Qwen/Qwen3-4B",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-14B",
    "deepseek-ai/deepseek-llm-7b-chat",
    "meta-llama/Llama-3.1-8B-Instruct",
)
LENGTHS = (512, 2048, 4096, 16384)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, default=0)
    rank = parser.parse_args().rank
    precision, lora = Precision(torch.float32, torch.bfloat16), None
    if rank:
        from peft import LoraConfig

        precision = Precision(torch.bfloat16, torch.bfloat16)
        lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    found, predicted_s, full_s = [], 0.0, 0.0
    for name in MODELS:
        for length in LENGTHS:
            for recompute in (False, True):
                config, shape = KNOWN[name].config(), Shape(1, length // 2, length - length // 2)
                began = time.process_time()
                predicted = step_bytes(config, shape, precision, How(lora, recompute)).whole
                middle = time.process_time()
                full = max(tracing._any_most(config, shape, precision, How(lora, recompute)))
                predicted_s, full_s = predicted_s + middle - began, full_s + time.process_time() - middle
                found.append((abs(predicted / full - 1), name, length, recompute, round(predicted / full, 4)))
    worst = sorted(found, reverse=True)[:5]
    figures = {
        "cases": len(found),
        "largest_difference": round(worst[0][0], 5),
        "worst": [case[1:] for case in worst],
        "cpu_s_told": round(predicted_s, 1),
        "cpu_s_full": round(full_s, 1),
    }
    print(json.dumps({"depth": figures}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
