"""Each loss against its paper's formula, computed token by token in plain Python.

The trainer is the real one with the arguments that a job gets; only the model's log-probabilities are given, so that
the ratio is not 1. Compared are the loss and its derivative with respect to each log-probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.helpers import job_config
from training.algorithms.grpo import grpo_arguments
from training.algorithms.kept_rows import KeptRowsTrainer

LOGPS = [[-0.5, -1.2, -0.1, -2.0], [-0.9, -0.4, -1.5, -0.7], [-0.3, -2.2, -0.6, -1.1]]
OLD = [[-0.6, -1.0, -0.9, -2.3], [-0.5, -0.4, -1.0, -0.1], [-0.8, -1.9, -0.65, -1.1]]
REFERENCE = [[-0.7, -1.1, -0.4, -2.0], [-0.8, -0.6, -1.4, -0.9], [-0.4, -2.0, -0.5, -1.2]]
ENTROPIES = [[0.2, 1.5, 0.1, 0.9], [1.1, 0.3, 0.7, 0.4], [0.6, 0.8, 0.05, 2.0]]
MASK = [[1, 1, 0, 1], [1, 1, 1, 0], [1, 0, 1, 1]]
"""The third token of the first row is the environment's, the last of the second is padding."""
ADVANTAGES = [1.2, -0.7, -1.6]
TOKENS, LENGTH = sum(map(sum, MASK)), 16
Weigh = Callable[[int, int], tuple[float, float]]
"""For (row, token): what it adds to the sum that is minimised, and that sum's derivative by its log-probability."""


def ratio(row: int, token: int) -> float:
    return math.exp(LOGPS[row][token] - OLD[row][token])


def whole_ratio(row: int, *, mean: bool) -> float:
    """Of the rollout's own tokens: the geometric mean, or the product."""
    logs = [LOGPS[row][t] - OLD[row][t] for t in range(4) if MASK[row][t]]
    return math.exp(sum(logs) / (len(logs) if mean else 1))


def clipped(row: int, token: int, low: float = 0.2, high: float = 0.2, limit: float = math.inf) -> tuple[float, float]:
    """Schulman et al. 2017, eq. 7, with the upper limit of Ye et al. 2020 where it is set."""
    r, a = ratio(row, token), ADVANTAGES[row]
    free, held = min(r, limit) * a, min(max(r, 1 - low), 1 + high) * a
    slope = r * a if free <= held and r <= limit else 0.0
    return -min(free, held), -slope


def gated(row: int, token: int) -> tuple[float, float]:
    """Gao et al. 2025 (SAPO): σ(τ(r − 1)) · 4/τ."""
    r, a = ratio(row, token), ADVANTAGES[row]
    temperature = 1.0 if a > 0 else 1.05
    sigma = 1 / (1 + math.exp(-temperature * (r - 1)))
    return -sigma * 4 / temperature * a, -4 * sigma * (1 - sigma) * r * a


def bounded(row: int, token: int) -> tuple[float, float]:
    """MiniMax 2025 (CISPO): the ratio is a weight that nothing flows through; no lower bound."""
    weight = min(ratio(row, token), 1.1)
    return -weight * ADVANTAGES[row] * LOGPS[row][token], -weight * ADVANTAGES[row]


def of_the_whole(row: int, token: int) -> tuple[float, float]:
    """Zheng et al. 2025 (GSPO); every token has the same share of the ratio's derivative."""
    r, a = whole_ratio(row, mean=True), ADVANTAGES[row]
    free, held = r * a, min(max(r, 0.8), 1.2) * a
    return -min(free, held), -(free if free <= held else 0.0)


def smooth(row: int, token: int) -> tuple[float, float]:
    """VESPO (arXiv 2602.10693): w^k · e^(λ(1 − w)) of the product of all ratios, as a weight."""
    w, a = whole_ratio(row, mean=False), ADVANTAGES[row]
    k, decay = (2.0, 3.0) if a >= 0 else (3.0, 2.0)
    weight = w**k * math.exp(decay * (1 - w))
    return -weight * a * LOGPS[row][token], -weight * a


def per_row(row: int) -> float:
    return 1 / (len(MASK) * sum(MASK[row]))


def expected(weigh: Weigh, share: Callable[[int], float], keep: Callable[[int, int], bool]) -> tuple[float, Any]:
    loss, slopes = 0.0, [[0.0] * 4 for _ in MASK]
    for row, marks in enumerate(MASK):
        for token, own in enumerate(marks):
            if own and keep(row, token):
                value, slope = weigh(row, token)
                loss += value * share(row)
                slopes[row][token] = slope * share(row)
    return loss, slopes


@pytest.fixture(scope="module")
def make_trainer(starter_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """The trainer of a job with these options, for micro batches of three rows."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig

    model = AutoModelForCausalLM.from_pretrained(starter_folder)
    tokenizer = AutoTokenizer.from_pretrained(starter_folder)

    def make(**options: Any) -> Any:
        rollout = {"prompts_per_step": 1, "num_generations": 3, "max_completion_tokens": LENGTH, "max_turn_tokens": 8}
        config = job_config(grpo=options, rollout=rollout)
        arguments = grpo_arguments(config, tmp_path_factory.mktemp("losses"), "cpu", [1.0])
        trainer = KeptRowsTrainer(
            model=model,
            reward_funcs=[lambda **_given: [0.0]],
            args=GRPOConfig(**arguments),
            train_dataset=Dataset.from_dict({"prompt": ["0"] * 4}),
            processing_class=tokenizer,
        )
        trainer.callback = SimpleNamespace(rows=None)
        trainer.current_gradient_accumulation_steps = 1
        return trainer

    return make


def computed(trainer: Any, **over: Any) -> tuple[float, Any]:
    """TRL's loss of the batch and its derivative by the log-probabilities."""
    logps = torch.tensor(LOGPS, dtype=torch.float64, requires_grad=True)
    trainer._get_per_token_logps_and_entropies = lambda *_args, **_given: (
        logps,
        torch.tensor(ENTROPIES).double(),
        None,
    )
    trainer.model.train()
    ids = torch.ones(3, 4, dtype=torch.long)
    inputs = {
        "prompt_ids": ids,
        "prompt_mask": ids,
        "completion_ids": ids,
        "completion_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]]),
        "tool_mask": torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 1, 1]]),
        "advantages": torch.tensor(ADVANTAGES, dtype=torch.float64),
        "old_per_token_logps": torch.tensor(OLD, dtype=torch.float64),
        "ref_per_token_logps": torch.tensor(REFERENCE, dtype=torch.float64),
        "num_items_in_batch": torch.tensor(TOKENS),
    }
    loss = trainer._compute_loss(trainer.model, inputs | over)
    loss.backward()
    assert logps.grad is not None
    return float(loss.detach()), logps.grad.tolist()


def always(_row: int, _token: int) -> bool:
    return True


def assert_same(found: tuple[float, Any], wanted: tuple[float, Any]) -> None:
    assert found[0] == pytest.approx(wanted[0], abs=1e-6)
    for own, other in zip(found[1], wanted[1], strict=True):
        assert own == pytest.approx(other, abs=1e-6)


FORMULAS: dict[str, tuple[dict[str, Any], Weigh, Callable[[int], float]]] = {
    "grpo": ({}, clipped, per_row),
    "gspo": ({"loss_type": "grpo", "importance_sampling": "sequence"}, of_the_whole, per_row),
    "bnpo": ({}, clipped, lambda _row: 1 / TOKENS),
    "dapo": (
        {"epsilon_high": 0.28, "delta": 1.5},
        lambda r, t: clipped(r, t, 0.2, 0.28, 1.5),
        lambda _row: 1 / TOKENS,
    ),
    "dr_grpo": ({}, clipped, lambda _row: 1 / (len(MASK) * LENGTH)),
    "cispo": ({"epsilon_high": 1.1}, bounded, lambda _row: 1 / TOKENS),
    "sapo": ({}, gated, per_row),
    "luspo": ({"importance_sampling": "sequence"}, of_the_whole, lambda _row: 1 / len(MASK)),
    "vespo": ({}, smooth, lambda _row: 1 / TOKENS),
}


@pytest.mark.parametrize("loss", FORMULAS)
def test_a_loss_is_its_papers_formula(make_trainer: Callable[..., Any], loss: str) -> None:
    options, weigh, share = FORMULAS[loss]
    found = computed(make_trainer(**{"loss_type": loss} | options))
    assert_same(found, expected(weigh, share, always))
    assert max(abs(slope) for row in found[1] for slope in row) > 0.01


@pytest.mark.parametrize("loss", ["grpo", "sapo", "vespo"])
def test_only_the_least_decided_tokens_are_learned_from(make_trainer: Callable[..., Any], loss: str) -> None:
    """Wang et al. 2025: the top share by entropy of the batch's own tokens, divided by all of them as before."""
    _options, weigh, share = FORMULAS[loss]
    own = sorted(e for row, marks in zip(ENTROPIES, MASK, strict=True) for e, m in zip(row, marks, strict=True) if m)
    kept = own[-3:]  # a third of nine
    found = computed(make_trainer(loss_type=loss, top_entropy_share=0.3))
    assert_same(found, expected(weigh, share, lambda row, token: ENTROPIES[row][token] in kept))


@pytest.mark.parametrize("loss", ["grpo", "cispo", "luspo"])
def test_bad_rollouts_far_from_the_policy_are_left_out(make_trainer: Callable[..., Any], loss: str) -> None:
    """DeepSeek-V3.2, eq. 9: the mean of log π_old − log π is 0.3 in the second row and −0.18 in the third."""
    options, weigh, share = FORMULAS[loss]
    gap = [sum(o - n for o, n, m in zip(*rows, strict=True) if m) / 3 for rows in zip(OLD, LOGPS, MASK, strict=True)]
    assert gap == pytest.approx([-0.2 / 3, 0.9 / 3, -0.55 / 3], abs=1e-9)
    found = computed(make_trainer(loss_type=loss, off_policy_limit=0.25, **options))
    assert_same(found, expected(weigh, share, lambda row, _token: row != 1))
    near = computed(make_trainer(loss_type=loss, off_policy_limit=0.35, **options))
    assert_same(near, expected(weigh, share, always))


def test_off_policy_is_measured_from_the_sampler_where_it_is_known(make_trainer: Callable[..., Any]) -> None:
    trainer = make_trainer(loss_type="grpo", off_policy_limit=0.25)
    near = torch.tensor(LOGPS, dtype=torch.float64)
    near[2] += 1.0
    found = computed(trainer, sampling_per_token_logps=near)
    assert_same(found, expected(clipped, per_row, lambda row, _token: row != 2))


@pytest.mark.parametrize("loss", FORMULAS)
def test_the_pull_of_the_reference_is_added_to_every_loss(make_trainer: Callable[..., Any], loss: str) -> None:
    """Schulman's estimator k3 times the ratio (DeepSeek-V3.2), averaged as the loss is."""
    options, weigh, share = FORMULAS[loss]
    whole = options.get("importance_sampling") == "sequence"

    def with_pull(row: int, token: int) -> tuple[float, float]:
        value, slope = weigh(row, token)
        gap = REFERENCE[row][token] - LOGPS[row][token]
        k3 = math.exp(gap) - gap - 1
        r = whole_ratio(row, mean=True) if whole else ratio(row, token)
        # Of the whole rollout's ratio each token moves a part, for the pulls of all tokens.
        own = [t for t in range(4) if MASK[row][t]]
        pulls = [math.exp(REFERENCE[row][t] - LOGPS[row][t]) - (REFERENCE[row][t] - LOGPS[row][t]) - 1 for t in own]
        of_ratio = sum(pulls) / len(own) * r if whole else k3 * r
        return value + 0.5 * r * k3, slope + 0.5 * (r * (1 - math.exp(gap)) + of_ratio)

    assert_same(
        computed(make_trainer(**{"loss_type": loss, "beta": 0.5} | options)), expected(with_pull, share, always)
    )


@pytest.mark.parametrize(
    ("grpo", "option"),
    [
        ({"loss_type": "cispo", "epsilon_high": 0.28}, "grpo.epsilon_high"),
        ({"loss_type": "luspo"}, "grpo.importance_sampling"),
        ({"loss_type": "vespo", "importance_sampling": "sequence"}, "grpo.importance_sampling"),
        ({"loss_type": "sapo", "delta": 4.0}, "grpo.delta"),
        ({"ref_sync_steps": 8}, "grpo.ref_sync_steps"),
    ],
)
def test_what_a_loss_would_leave_unused_is_refused(grpo: dict[str, Any], option: str) -> None:
    with pytest.raises(ValueError, match=option.replace(".", r"\.")):
        job_config(grpo=grpo)
    assert job_config(kind="sample", grpo=grpo).kind == "sample"


def test_a_reference_of_an_adapter_cannot_follow() -> None:
    with pytest.raises(ValueError, match="LoRA"):
        job_config(grpo={"beta": 0.1, "ref_sync_steps": 8}, model={"lora_rank": 8})


def test_the_options_reach_trl() -> None:
    def found(**grpo: Any) -> dict[str, Any]:
        return grpo_arguments(job_config(grpo=grpo), Path("/nowhere"), "cpu", [1.0])

    plain = found()
    assert (plain["loss_type"], plain["top_entropy_quantile"], plain["off_policy_mask_threshold"]) == (
        "dapo",
        1.0,
        None,
    )
    assert (plain["sync_ref_model"], plain["epsilon_high"]) == (False, None)
    assert (
        found(loss_type="cispo")["epsilon_high"] == 5.0
        and found(loss_type="cispo", epsilon_high=3)["epsilon_high"] == 3
    )
    follows = found(beta=0.1, ref_sync_steps=7, ref_sync_share=0.25)
    names = ("sync_ref_model", "ref_model_sync_steps", "ref_model_mixup_alpha")
    assert [follows[name] for name in names] == [True, 7, 0.25]
    tuned = {"sapo_temperature_pos": 2.0, "sapo_temperature_neg": 3.0, "vespo_k_pos": 1.5, "vespo_lambda_pos": 2.5}
    tuned |= {"vespo_k_neg": 3.5, "vespo_lambda_neg": 4.5}
    assert {name: found(**tuned)[name] for name in tuned} == tuned
