"""The sampler check: silent on float noise, loud on planted faults in both precisions."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.policy.families import played, tiny_model
from tests.training.policy.test_families import engine_of
from training.errors import SamplerDisagrees
from training.journal import SamplerChecked
from training.policy import attention
from training.policy.check import SamplerCheck, forward_logprobs, measure_gap, tolerance_for

PRECISIONS = [None, torch.bfloat16]


def peaked(family: str) -> Any:
    """A tiny model whose distribution is as peaked as a trained one's, so that a wrong context costs as much."""
    model = tiny_model(family)
    with torch.no_grad():
        model.lm_head.weight.mul_(8.0)
    return model


BY_TOKENS = attention._by_tokens


def shorter_window(make: Any) -> Any:
    """A sampler whose windows are a quarter of the model's, as gaps that count as columns make them."""
    mask = BY_TOKENS(make)
    return lambda *args, local_size=None, **kwargs: mask(*args, local_size=local_size and local_size // 4, **kwargs)


def rollouts_of(model: Any, autocast: torch.dtype | None = None) -> list[Any]:
    """The sampled turns in the shape of trajectories."""
    engine = engine_of(model, autocast)
    try:
        turns = played(engine)
    finally:
        engine.close()
    return [
        SimpleNamespace(prompt_ids=ids, completion_ids=s.ids, mask=[1] * len(s.ids), logprobs=s.logprobs)
        for ids, s in turns
    ]


def check_of(model: Any, autocast: torch.dtype | None, written: list[SamplerChecked]) -> SamplerCheck:
    model.eval()
    logprobs = forward_logprobs(model, temperature=1.0, autocast=autocast)
    return SamplerCheck(logprobs, tolerance_for(model, autocast), written.append)


@pytest.mark.parametrize("autocast", PRECISIONS)
def test_a_right_sampler_passes_and_its_figures_are_journalled_once(autocast: torch.dtype | None) -> None:
    model, written = peaked("gpt_oss"), []
    rollouts = rollouts_of(model, autocast)
    check = check_of(model, autocast, written)
    figures = check(3, rollouts)
    assert check(4, rollouts) == {} and len(written) == 1
    (event,) = written
    assert event.step == 3 and event.tokens > 8 * 5 and event.mean_gap <= event.max_gap
    assert figures == {"sampling/logprob_gap_max": event.max_gap}
    assert event.max_gap <= (1e-4 if autocast is None else 1.0)
    check.renew()
    assert check(5, rollouts) == figures and [event.step for event in written] == [3]  # the metrics have the others
    check.renew()
    for rollout in rollouts:
        rollout.logprobs = [logprob - 3 for logprob in rollout.logprobs]
    with pytest.raises(SamplerDisagrees):
        check(6, rollouts)
    assert [event.step for event in written] == [3, 6]


@pytest.mark.parametrize("autocast", PRECISIONS)
@pytest.mark.parametrize("fault", ["window", "output layer"])
def test_a_planted_fault_is_found(fault: str, autocast: torch.dtype | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of the wrong length, and an output layer that the sampler did not get: reward may rise with both."""
    model, written = peaked("gpt_oss"), []
    if fault == "window":
        monkeypatch.setattr(attention, "_by_tokens", shorter_window)
    rollouts = rollouts_of(model, autocast)
    if fault == "output layer":
        with torch.no_grad():
            model.lm_head.weight.add_(torch.randn_like(model.lm_head.weight), alpha=0.1)
    check = check_of(model, autocast, written)
    with pytest.raises(SamplerDisagrees) as found:
        check(1, rollouts)
    (event,) = written
    assert f"{event.mean_gap:.3g} nats on average" in found.value.message
    assert f"{event.max_gap:.3g} at most" in found.value.message
    assert found.value.pauses and "Nothing was learned" in found.value.hint


def test_what_is_not_a_number_disagrees() -> None:
    model, written = tiny_model("qwen3"), []
    rollouts = rollouts_of(model)
    rollouts[0].logprobs[0] = math.nan
    with pytest.raises(SamplerDisagrees):
        SamplerCheck(
            lambda prompt, completion: next(r.logprobs for r in rollouts if r.prompt_ids == prompt),
            tolerance_for(model, None),
            written.append,
        )(1, rollouts[:8])
    assert math.isnan(written[0].max_gap)


def test_at_most_eight_rollouts_are_compared_the_longest_and_short_ones_among_them() -> None:
    rollouts = [
        SimpleNamespace(prompt_ids=[1] * size, completion_ids=[5, 6, 7], mask=[1, 0, 1], logprobs=[-1.0, 0.0, -2.0])
        for size in range(1, 41)
    ]
    silent = SimpleNamespace(prompt_ids=[1] * 99, completion_ids=[5], mask=[0], logprobs=[0.0])
    asked: list[int] = []

    def logprobs(prompt: list[int], completion: list[int]) -> list[float]:
        asked.append(len(prompt))
        return [-1.25, -9.0, -2.0]

    gap = measure_gap([*rollouts, silent], logprobs)
    assert gap == (16, 0.25, 0.125)  # the environment's ids count for nothing
    assert len(asked) == 8 and max(asked) == 40 and min(asked) <= 5
    assert measure_gap([silent], logprobs) is None
