"""The sampler check: silent on float noise, loud on planted faults in both precisions."""

from __future__ import annotations

import asyncio
import copy
import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.training.policy.families import played, tiny_model
from tests.training.policy.test_families import engine_of
from training.errors import SamplerDisagrees
from training.journal import SamplerChecked
from training.policy import attention
from training.policy.check import (
    COPIED,
    FULL,
    GROWTH,
    HALF,
    Echo,
    Probe,
    SamplerCheck,
    Tolerance,
    draw_probes,
    forward_logprobs,
    measure_gap,
    tolerance_for,
)
from training.policy.engine import Engine, Sample

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
    assert figures == {"sampling/logprob_gap_max": event.max_gap, "sampling/logprob_gap_mean": event.mean_gap}
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


# Later handovers against the first


def apart_by(gap: float) -> Any:
    """A turn of four tokens whose log-probabilities are all ``gap`` away from the trainer's -1."""
    return SimpleNamespace(prompt_ids=[1], completion_ids=[5] * 4, mask=[1] * 4, logprobs=[-1.0 - gap] * 4)


def check_with(tolerance: Tolerance, *, copies: bool = True) -> SamplerCheck:
    return SamplerCheck(lambda _prompt, ids: [-1.0] * len(ids), tolerance, lambda _event: None, copies=copies)


@pytest.mark.parametrize(
    ("first", "most"), [(0.004, 0.02), (1e-4, HALF.floor), (0.04, HALF.mean), (0.0, HALF.floor), (4.1e-4, 2.05e-3)]
)
def test_a_later_mean_is_held_against_the_first_of_the_attempt(first: float, most: float) -> None:
    """Five times the first, never less than the floor, never more than the constant."""
    check = check_with(HALF)
    assert check(1, [apart_by(first)])["sampling/logprob_gap_mean"] == pytest.approx(first)
    check.renew()
    assert check(2, [apart_by(0.999 * most)])["sampling/logprob_gap_mean"] == pytest.approx(0.999 * most)
    check.renew()
    with pytest.raises(SamplerDisagrees, match=f"{most:.3g}"):
        check(3, [apart_by(1.001 * most)])


def test_the_first_is_held_against_the_constant_and_every_precision_has_a_floor() -> None:
    for tolerance in (FULL, COPIED, HALF):
        assert 0 < tolerance.floor < tolerance.mean
        assert tolerance.after(0.0).mean == tolerance.floor and tolerance.after(1.0).mean == tolerance.mean
        with pytest.raises(SamplerDisagrees):
            check_with(tolerance)(1, [apart_by(1.01 * tolerance.mean)])
        assert tolerance.after(tolerance.mean / GROWTH / 2).mean == pytest.approx(
            max(tolerance.floor, tolerance.mean / 2)
        )


def test_a_copy_names_the_handover_and_the_trainers_own_sampler_the_family() -> None:
    for copies, cause in ((True, "the likely cause is the handover"), (False, "report this one's family")):
        with pytest.raises(SamplerDisagrees) as found:
            check_with(HALF, copies=copies)(1, [apart_by(1.0)])
        assert cause in found.value.hint and "Nothing was learned" in found.value.hint


# The same questions after each handover


def probes_of(*ends: float) -> list[Probe]:
    return [Probe([1, place], [5, 6], [1, 1], [-1.0, end]) for place, end in enumerate(ends)]


class Trainer:
    """Log-probabilities that ``moved`` of the tokens have changed by, in the order that they are asked for."""

    def __init__(self) -> None:
        self.weights = 0
        self.still = 0

    def __call__(self, prompt: list[int], completion: list[int]) -> list[float]:
        first = -1.0 if prompt[1] < self.still else -1.0 - 1e-7 * self.weights
        return [first, -2.0 - 1e-7 * self.weights]


def test_a_sampler_that_answers_as_before_an_update_is_found_whatever_its_size() -> None:
    trainer = Trainer()
    echo = Echo(trainer)
    assert not echo.unmoved(probes_of(-1.0, -2.0)), "there is nothing before the first"
    assert not echo.unmoved(probes_of(-1.0, -2.0)), "an update that moved nothing"
    trainer.weights = 1
    assert echo.unmoved(probes_of(-1.0, -2.0))
    trainer.weights = 2
    assert not echo.unmoved(probes_of(-1.0, math.nextafter(-2.0, 0))), "one bit of one answer is another"
    trainer.weights = 3
    assert not echo.unmoved(probes_of(-1.0)), "other questions"


@pytest.mark.parametrize(("still", "found"), [(1, True), (2, False)])
def test_most_of_the_trainers_tokens_have_to_have_moved(still: int, found: bool) -> None:
    trainer = Trainer()
    trainer.still = still
    echo = Echo(trainer)
    echo.unmoved(probes_of(-1.0, -2.0))
    trainer.weights = 1
    assert echo.unmoved(probes_of(-1.0, -2.0)) is found


def test_a_trainer_that_is_not_the_same_twice_proves_nothing() -> None:
    numbers = iter(range(100))
    echo = Echo(lambda _prompt, ids: [-1.0 - 1e-6 * next(numbers)] * len(ids))
    assert not echo.unmoved(probes_of(-1.0)) and not echo.unmoved(probes_of(-1.0))


class Busy:
    """An engine that notes how many other turns each one was sampled with."""

    def __init__(self) -> None:
        self.running = 0
        self.shared: dict[str, bool] = {}

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        self.running += 1
        self.shared[episode] = self.running > 1
        await asyncio.sleep(0)
        self.shared[episode] |= self.running > 1
        self.running -= 1
        return Sample([5] * max_tokens, [-float(seed)] * max_tokens, finished=False)

    def release(self, episode: str) -> None:
        self.shared[f"{episode} released"] = True


def test_the_first_probe_is_sampled_alone_and_they_keep_their_order() -> None:
    """Which turns share a batch depends on when they arrive, and a batch of another shape computes other last bits."""
    engine = Busy()
    probes = draw_probes(cast(Engine, engine), [[7, 8], [9], [10, 11]])
    assert [probe.prompt_ids for probe in probes] == [[7, 8], [9], [10, 11]]
    assert [probe.logprobs[0] for probe in probes] == [-0.0, -1.0, -2.0]
    assert [engine.shared[f"probe-{place}"] for place in range(3)] == [False, True, True]
    assert all(engine.shared[f"probe-{place} released"] for place in range(3))


@pytest.mark.parametrize(("stays", "found"), [(0, True), (1, False)])
def test_only_a_probe_that_was_sampled_alone_proves_old_weights(stays: int, found: bool) -> None:
    """The bits of those that share a batch may differ with the same weights."""
    trainer = Trainer()
    check = SamplerCheck(trainer, HALF, lambda _event: None, copies=True)
    check.prove(1, probes_of(-2.0, -2.0))
    trainer.weights = 1
    ends = [-2.0, -2.0]
    ends[1 - stays] = math.nextafter(-2.0, 0)
    with pytest.raises(SamplerDisagrees, match="step 2") if found else nullcontext():
        check.prove(2, probes_of(*ends))


def test_stale_weights_of_a_small_update_are_named_in_bfloat16() -> None:
    """A learning rate of 1e-5 moves a log-probability by a fraction of bfloat16's noise."""
    model = tiny_model("llama").eval()
    logprobs = forward_logprobs(model, temperature=1.0, autocast=torch.bfloat16)
    engine = engine_of(copy.deepcopy(model), torch.bfloat16)
    check = SamplerCheck(logprobs, tolerance_for(model, torch.bfloat16, vllm=True), lambda _event: None, copies=True)
    prompts = [[7, 8, 9], [11, 12], [13, 14, 15, 16]]

    def handed_over(step: int) -> None:
        check.renew()
        with engine.sampling():
            probes = draw_probes(engine, prompts)
        check(step, probes)
        check.prove(step, probes)

    try:
        handed_over(1)
        handed_over(2)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter).sign(), alpha=4e-5)  # four updates of AdamW at 1e-5
        with pytest.raises(SamplerDisagrees, match="to the last bit") as found:
            handed_over(3)
    finally:
        engine.close()
    assert "the handover" in found.value.hint
