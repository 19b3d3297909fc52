"""The five systems with turns that the real vLLM samples, each from its YAML: ``pytest -m vllm``.

Their own environment servers, dialects and rewards; two steps after a short warm-up. What the in-process sampler
makes of the same chains is in ``test_demos.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.demos import DEMOS, play
from tests.training.algorithms.test_real_vllm import GAP, MOST_GAP, needs_vllm
from tests.training.helpers import of_type
from training.config import JobConfig
from training.presets import presets

pytestmark = needs_vllm
WARM_UP_STEPS, STEPS = 40, 2


def sampled_by_vllm(config: JobConfig) -> None:
    """A short warm-up; then two steps whose turns vLLM samples."""
    if not config.method.plays:
        config.run.max_steps = WARM_UP_STEPS
        return
    config.run.max_steps, config.rollout.engine = STEPS, "vllm"


@pytest.mark.parametrize("name", DEMOS)
def test_a_system_trains_on_turns_of_vllm(name: str, tmp_path: Path) -> None:
    found = play(presets()[name], tmp_path, 42, sampled_by_vllm)
    run_dir = tmp_path / name
    assert found["steps"] == STEPS and found["excluded"] == 0
    gaps = [event.values[GAP] for event in of_type(run_dir, "metrics")]
    assert len(gaps) == STEPS and 0 < max(gaps) <= MOST_GAP, gaps
    ended = of_type(run_dir, "rollout_finished")
    assert all(event.error is None and event.tokens > 0 for event in ended)
    # Each step's turns were drawn with the weights that the step before it left.
    assert {event.policy_step for event in ended} == set(range(STEPS))
    print(name, "gaps", gaps, "seconds", found["seconds"])
