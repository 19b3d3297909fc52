"""The loss weighs what another than the trainer's arithmetic has sampled, by the ratio of both, and says so."""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length
from tests.training.algorithms.test_kept_rows import norm, watch_gradients
from tests.training.helpers import of_type, scripted_server
from training.algorithms import rollouts
from training.algorithms.grpo import run_grpo
from training.algorithms.sampler import JobSampler
from training.algorithms.values import TRUNCATED, truncated_share

pytestmark = pytest.mark.usefixtures("no_health")

RATIO, DIFFERENCE = "sampling/importance_sampling_ratio", "sampling/sampling_logp_difference"


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    return watch_gradients(monkeypatch)


@pytest.fixture
def ratio(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the sampler is to say: the trainer's probability of each token divided by the last of these."""
    ratios = [1.0]
    original = rollouts.trl_batch

    def shifted(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        found["logprobs"] = [[each - math.log(ratios[-1]) for each in row] for row in found["logprobs"]]
        return found

    monkeypatch.setattr(rollouts, "trl_batch", shifted)
    monkeypatch.setattr(JobSampler, "differs", lambda sampler, model, autocast: True)
    return ratios


def figures(make_job: MakeJob, name: str, url: str, **over: Any) -> dict[str, float]:
    over["grpo"] = {"loss_type": "grpo", **over.get("grpo", {})}
    optim = {"micro_batch_size": 2, "max_grad_norm": 1000.0}
    rewards = {"components": COMPONENTS}
    job = make_job(name, environment={"url": url}, rewards=rewards, optim=optim, run={"max_steps": 1}, **over)
    run_grpo(job, scorer=by_length)
    (event,) = of_type(job.run_dir, "metrics")
    values: dict[str, float] = event.values
    return values


@pytest.mark.parametrize(
    ("mode", "factors", "shares"),
    [("token_truncate", [2.0, 3.0], [0.0, 1.0]), ("token_mask", [2.0, 0.0], [0.0, 1.0])],
)
def test_each_token_counts_by_the_ratio_and_at_most_by_the_limit(
    make_job: MakeJob,
    gradients: list[dict[str, torch.Tensor]],
    ratio: list[float],
    mode: str,
    factors: list[float],
    shares: list[float],
) -> None:
    chosen = {"sampler_correction": mode, "sampler_ratio_max": 3.0}
    with scripted_server() as url:
        even = figures(make_job, "even", url, grpo=chosen)
        for each_ratio, factor, share in zip([2.0, 10.0], factors, shares, strict=True):
            ratio.append(each_ratio)
            found = figures(make_job, f"ratio{each_ratio:g}", url, grpo=chosen)
            assert norm(gradients[-1]) / norm(gradients[0]) == pytest.approx(factor, abs=1e-3)
            assert found[TRUNCATED] == share
            assert found[f"{RATIO}/mean"] == pytest.approx(factor, abs=1e-3)
            assert found[f"{DIFFERENCE}/mean"] == pytest.approx(math.log(each_ratio), abs=1e-3)
    assert even[TRUNCATED] == 0.0 and even[f"{DIFFERENCE}/max"] <= 1e-4
    assert even[f"{RATIO}/min"] == pytest.approx(1.0, abs=1e-4) == even[f"{RATIO}/max"]


def test_in_process_only_half_precision_is_corrected(make_job: MakeJob, starter_folder: Any) -> None:
    half = {"source": str(starter_folder), "dtype": "bfloat16"}
    with scripted_server() as url:
        whole = figures(make_job, "whole", url)
        corrected = figures(make_job, "half", url, model=half)
        off = figures(make_job, "off", url, model=half, grpo={"sampler_correction": "off"})
    assert not [name for name in (*whole, *off) if name.startswith((RATIO, DIFFERENCE, TRUNCATED))]
    assert 0.5 < corrected[f"{RATIO}/mean"] < 2.0 and 0 < corrected[f"{DIFFERENCE}/mean"] < 0.05
    assert corrected[TRUNCATED] == 0.0


def test_what_share_of_the_ratios_was_above_the_limit() -> None:
    mask = {
        "completion_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]),
        "tool_mask": torch.tensor([[1, 0, 1, 1]] * 2),
    }
    tokens = torch.tensor([[3.0, 3.0, 1.0, 3.0], [0.5, 3.0, 3.0, 3.0]])
    assert truncated_share({"importance_sampling_ratio": tokens, **mask}, 3.0, "token_truncate") == pytest.approx(1 / 3)
    rows = torch.tensor([[0.0], [1.5]])
    assert truncated_share({"importance_sampling_ratio": rows, **mask}, 3.0, "sequence_mask") == 0.5
    nothing = {"completion_mask": torch.zeros(2, 4), "importance_sampling_ratio": tokens}
    assert truncated_share(nothing, 3.0, "token_truncate") is None and truncated_share(mask, 3.0, "token_mask") is None


def test_this_is_the_trl_that_it_was_made_for() -> None:
    """``_last_loaded_step`` is TRL's own affair: another version may ask its vLLM for more."""
    assert version("trl") == "1.16.0"
