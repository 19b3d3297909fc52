"""Is what is learned from what was played? ``python benchmarks/truth.py``, by the tests' own parts.

``gradient_ratio``: norm of the gradient with half of the rollouts excluded over that without them, by loss type and
micro batch (1.00). ``sampler_gap_nats``: the largest difference of a sampled token's log-probability from that of a
training forward over the same ids, 3 turns × 6 rows, by family in float32 (≤ 1e-4). ``hostile_cpu_ms``: CPU time of the
worst texts (≤ 100 ms each). ``advantages_gap``: ours from TRL's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest

YAML_BYTES = 64 * 1024


def gradient_ratios(folder: Path) -> dict[str, float]:
    """By loss type and micro batch."""
    from tests.training.algorithms.conftest import job_maker
    from tests.training.algorithms.test_kept_rows import CASES, norm, pair, watch_gradients
    from tests.training.helpers import demonstration_rows
    from training.starter import build_starter

    build_starter(demonstration_rows(), folder / "starter", seed=3)
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.algorithms.grpo.check_environment", lambda config: None)
        gradients = watch_gradients(patch)
        for loss, micro in CASES:
            place = folder / f"{loss}-{micro}"
            place.mkdir()
            without, half = pair(job_maker(place, folder / "starter"), gradients, loss, micro)
            found[f"{loss}, micro batch {micro or 'whole'}"] = round(norm(half) / norm(without), 6)
    return found


def sampler_gaps() -> dict[str, float]:
    """By family."""
    from tests.training.helpers import job_config
    from tests.training.policy.families import FAMILIES, gaps, played, tiny_model
    from training.policy.make import make_engine
    from training.rollout.tokens import turn_ends

    tokenizer: Any = SimpleNamespace(eos_token_id=2)
    found = {}
    for family in FAMILIES:
        model = tiny_model(family)
        engine = make_engine(job_config(), model, turn_ends(tokenizer), autocast=None, log=lambda _line: None)
        try:
            found[family] = float(f"{max(gaps(model, played(engine))):.1e}")
        finally:
            engine.close()
    return found


def advantages_gap() -> float:
    """Largest difference of an advantage from TRL's own lines over 1,000 random groups of eight."""
    import random

    from tests.training.rollout.test_advantages import trl_advantages
    from training.rewards.combining import group_statistics

    rng, worst = random.Random(1), 0.0
    for _ in range(1000):
        rewards = [rng.random() if rng.random() > 0.2 else None for _ in range(8)]
        ours = [value or 0.0 for value in group_statistics(rewards).advantages]
        theirs = trl_advantages(rewards, 8, "group")
        worst = max([worst, *(abs(own - other) for own, other in zip(ours, theirs, strict=True))])
    return float(f"{worst:.1e}")


def hostile_texts() -> dict[str, float]:
    """The slowest of six environments for each of the two texts of the bar, the slowest of all texts, and the YAML."""
    from envs.toolbench.bench import open_bench
    from envs.webshop.generator import generated_catalogue
    from envs.webshop.session import Shop
    from envs.wire import StepRequest
    from tests.envs.test_hostile_text import REPEATS, TEXTS, makers, play
    from tests.growth import seconds
    from tests.security import test_hostile_yaml as yaml

    worst = dict.fromkeys(TEXTS, 0.0)
    for make in makers(open_bench(), Shop(generated_catalogue(50))).values():
        play(make, StepRequest(message="warm"))
        for name, text in TEXTS.items():
            request = StepRequest(message=text(2 * REPEATS))
            took = min(seconds(lambda made=make, request=request: play(made, request)) for _ in range(3))  # type: ignore[misc]
            worst[name] = max(worst[name], took)
    readers = (yaml.config_from_yaml, yaml.config_from_text)
    brackets = max(min(seconds(yaml.refused(read, "[" * YAML_BYTES)) for _ in range(3)) for read in readers)
    slowest = max(worst, key=lambda name: worst[name])
    found = {
        "<think> x 32,000": worst["<think>"],
        "Thought: x 32,000": worst["Thought:"],
        f"slowest of {len(TEXTS)} texts ({slowest})": worst[slowest],
        "64 KB of [ as YAML": brackets,
    }
    return {name: round(seconds * 1000, 1) for name, seconds in found.items()}


def main() -> int:
    """Print the figures."""
    with tempfile.TemporaryDirectory(prefix="tiltyard-truth-") as folder:
        os.environ |= {"TILTYARD_DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "webapp.settings"}
        import django

        django.setup()
        texts, gaps = hostile_texts(), sampler_gaps()
        ratios = gradient_ratios(Path(folder))
    figures = {
        "advantages_gap": advantages_gap(),
        "gradient_ratio": ratios,
        "sampler_gap_nats": gaps,
        "hostile_cpu_ms": texts,
    }
    print(json.dumps({"truth": figures}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
