"""The sampler check: its log-probabilities held against those of a training forward over the same ids.

GRPO's loss takes it that the tokens were drawn from the distribution that it computes. Where the sampler is wrong (a
mask, a stale output layer, old weights) the run learns from something else, and its reward may rise all the same: only
this comparison shows it. It is made at the first sampled step of each attempt; a sampler that gets its weights by copy
is to be checked after each copy, over turns drawn for it where the step's own are of older weights (``draw_probes``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from training.errors import SamplerDisagrees
from training.journal import SamplerChecked
from training.policy.engine import Engine, Sample

MOST_ROLLOUTS = 8
PROBE_TOKENS = 32
GAP_METRIC = "sampling/logprob_gap_max"


class Sampled(Protocol):
    """What a rollout's trajectory has: ``mask`` is 1 on the completion's ids that the model sampled."""

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float]


@dataclass
class Probe:
    """One turn that was drawn to be checked, and for nothing else."""

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float]


TrainingLogprobs = Callable[[list[int], list[int]], list[float]]
"""Log-probabilities of a completion's ids, from the prompt's ids and the completion's, in nats."""


class Tolerance(NamedTuple):
    """The gaps that are still float noise, in nats: of the mean over all tokens and of the largest."""

    mean: float
    largest: float


FULL = Tolerance(mean=1e-3, largest=0.05)
"""float32. Measured 5e-7 at most over fifteen families, 3e-5 over all; a wrong window gave 3e-3 on average and 0.08 at
most for the least peaked model, 0.8 to 5 nats for trained ones."""
COPIED = Tolerance(mean=1e-4, largest=1e-3)
"""float32, sampled by vLLM. Measured 2.4e-5 at most over 20 steps with an adapter swapped at each, 4e-6 with all
weights; weights that were one step old gave 0.15 at most and 0.0055 on average at a learning rate of 2e-4."""
HALF = Tolerance(mean=0.05, largest=2.0)
"""bfloat16 and float16. A logit between 16 and 32 has steps of 0.125 in bfloat16, and an expert that is chosen
differently may shift a token by a nat: single tokens differ without a fault, so the mean decides. Measured as noise:
0.001 to 0.006 on average, 0.03 (0.24 at most) for a random model of 16 layers made far more peaked than a trained one;
a wrong window or output layer in a model as peaked as a trained one: 0.1 on average and more."""


class Gap(NamedTuple):
    """How far sampler and training forward are apart over so many tokens, in nats."""

    tokens: int
    largest: float
    mean: float


def tolerance_for(model: Any, autocast: torch.dtype | None, *, vllm: bool = False) -> Tolerance:
    """The tolerance of the precision that the model computes in, and of who samples."""
    dtype = autocast or next(model.parameters()).dtype
    if dtype not in (torch.float32, torch.float64):
        return HALF
    return COPIED if vllm else FULL


class SamplerCheck:
    """The check of one attempt: made once, and again after each ``renew``. The first one is journalled, and one that
    fails; what the others found stands among the metrics."""

    def __init__(
        self, logprobs: TrainingLogprobs, tolerance: Tolerance, write: Callable[[SamplerChecked], None]
    ) -> None:
        self._logprobs = logprobs
        self._tolerance = tolerance
        self._write = write
        self._due = self._first = True

    def renew(self) -> None:
        """Check again at the next step: the sampler got new weights by copy."""
        self._due = True

    def __call__(self, step: int, rollouts: Sequence[Sampled]) -> dict[str, float]:
        """Check a step if a check is due and anything was sampled, and give its figure.

        Raises ``SamplerDisagrees`` beyond the tolerance.
        """
        gap = measure_gap(rollouts, self._logprobs) if self._due else None
        if gap is None:
            return {}
        allowed = self._tolerance
        agrees = gap.mean <= allowed.mean and gap.largest <= allowed.largest
        if self._first or not agrees:
            gaps = {"max_gap": gap.largest, "mean_gap": gap.mean, "tolerance": allowed.largest}
            self._write(SamplerChecked(step=step, tokens=gap.tokens, **gaps))
        self._due = self._first = False
        if agrees:
            return {GAP_METRIC: gap.largest}
        raise SamplerDisagrees(
            f"The sampler's log-probabilities differ from those of a training forward over the same {gap.tokens} "
            f"tokens by {gap.mean:.3g} nats on average and {gap.largest:.3g} at most; {allowed.mean:g} and "
            f"{allowed.largest:g} are allowed.",
            hint="Nothing was learned from these rollouts. Resuming checks again. If it fails again, use another model "
            "and report this one's family with both numbers.",
        )


def measure_gap(rollouts: Sequence[Sampled], logprobs: TrainingLogprobs) -> Gap | None:
    """Compare a few of the rollouts, long and short ones; ``None`` if none has a sampled token."""
    sampled = sorted((r for r in rollouts if any(r.mask)), key=lambda r: len(r.prompt_ids) + len(r.completion_ids))
    if not sampled:
        return None
    count = min(MOST_ROLLOUTS, len(sampled))
    chosen = [sampled[len(sampled) - 1 - place * len(sampled) // count] for place in range(count)]
    gaps = [gap for rollout in chosen for gap in _gaps(rollout, logprobs(rollout.prompt_ids, rollout.completion_ids))]
    apart = torch.tensor(gaps, dtype=torch.float64)
    return Gap(len(gaps), float(apart.max()), float(apart.mean()))  # a NaN stays one in both


def draw_probes(engine: Engine, prompts: Sequence[list[int]]) -> list[Probe]:
    """One short turn after each prompt. Raises what the engine raises."""

    async def draw() -> list[Sample]:
        turns = (
            engine.generate(ids, max_tokens=PROBE_TOKENS, seed=place, episode=f"probe-{place}")
            for place, ids in enumerate(prompts)
        )
        return await asyncio.gather(*turns)

    drawn = asyncio.run(draw())
    for place in range(len(prompts)):
        engine.release(f"probe-{place}")
    return [Probe(ids, s.ids, [1] * len(s.ids), s.logprobs) for ids, s in zip(prompts, drawn, strict=True)]


def forward_logprobs(model: Any, *, temperature: float, autocast: torch.dtype | None) -> TrainingLogprobs:
    """A plain forward of the model as it is, without a cache, where there is no trainer to ask."""

    def logprobs(prompt: list[int], completion: list[int]) -> list[float]:
        device = next(model.parameters()).device
        ids = torch.tensor([prompt + completion], device=device)
        with torch.no_grad(), torch.autocast(device.type, autocast, enabled=autocast is not None):
            output = model(input_ids=ids, attention_mask=torch.ones_like(ids), logits_to_keep=len(completion) + 1)
        scores = torch.log_softmax(output.logits[0, :-1].float() / temperature, dim=-1)
        found: list[float] = scores.gather(1, ids[0, len(prompt) :].unsqueeze(1)).squeeze(1).tolist()
        return found

    return logprobs


def trainer_logprobs(trainer: Any) -> TrainingLogprobs:
    """What TRL's loss will compute, in eval mode: dropout is no disagreement."""

    def logprobs(prompt: list[int], completion: list[int]) -> list[float]:
        ids = torch.tensor([prompt + completion], device=trainer.accelerator.device)
        training = [module for module in trainer.model.modules() if module.training]
        trainer.model.eval()
        try:
            with torch.no_grad():
                scores, *_ = trainer._get_per_token_logps_and_entropies(
                    trainer.model, ids, torch.ones_like(ids), len(completion), batch_size=1
                )
        finally:
            for module in training:
                module.training = True
        found: list[float] = scores[0].float().tolist()
        return found

    return logprobs


def _gaps(rollout: Sampled, training: list[float]) -> list[float]:
    pairs = zip(rollout.logprobs, training, rollout.mask, strict=True)
    return [abs(ours - theirs) for ours, theirs, drawn in pairs if drawn]
