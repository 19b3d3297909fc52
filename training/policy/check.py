"""The sampler check: its log-probabilities held against those of a training forward over the same ids.

GRPO's loss takes it that the tokens were drawn from the distribution that it computes. Where the sampler is wrong (a
mask, a stale output layer, old weights) the run learns from something else, and its reward may rise all the same: only
this comparison shows it. It is made at the first sampled step of each attempt; a sampler that gets its weights by copy
is to be checked after each copy, over turns drawn for it where the step's own are of older weights (``draw_probes``).

The first check of an attempt is held against constants. It is the noise of this model, in this precision, by this
sampler, with weights that are known to be right; so each later one may have ``GROWTH`` times its mean, if that is less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from training.errors import SamplerDisagrees
from training.journal import SamplerChecked
from training.policy.engine import ALONE, Engine, Sample, Turn, draw_turns

MOST_ROLLOUTS = 8
PROBE_TOKENS = 32
GAP_METRIC, MEAN_METRIC = "sampling/logprob_gap_max", "sampling/logprob_gap_mean"
GROWTH = 5.0
"""How many times the mean gap of an attempt's first check a later one may be."""


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
    """The gaps that are still float noise, in nats: of the mean over all tokens and of the largest.

    ``floor``: a mean that is never too much, however small the first one was.
    """

    mean: float
    largest: float
    floor: float

    def after(self, first: float) -> Tolerance:
        """What later checks may have, once the mean of the first was ``first``."""
        return self._replace(mean=min(self.mean, max(self.floor, GROWTH * first)))


FULL = Tolerance(mean=1e-3, largest=0.05, floor=1e-4)
"""float32. Measured 5e-7 at most over fifteen families, 3e-5 over all; a wrong window gave 3e-3 on average and 0.08 at
most for the least peaked model, 0.8 to 5 nats for trained ones."""
COPIED = Tolerance(mean=1e-4, largest=1e-3, floor=2e-5)
"""float32, sampled by vLLM. Measured 2.4e-5 at most over 20 steps with an adapter swapped at each, 4e-6 with all
weights; weights that were one step old gave 0.15 at most and 0.0055 on average at a learning rate of 2e-4."""
HALF = Tolerance(mean=0.05, largest=2.0, floor=2e-3)
"""bfloat16 and float16. A logit between 16 and 32 has steps of 0.125 in bfloat16, and an expert that is chosen
differently may shift a token by a nat: single tokens differ without a fault, so the mean decides. Measured as noise:
0.001 to 0.006 on average, 0.03 (0.24 at most) for a random model of 16 layers made far more peaked than a trained one;
a wrong window or output layer in a model as peaked as a trained one: 0.1 on average and more."""


FAMILY_HINT = (
    "Nothing was learned from these rollouts. Resuming checks again. If it fails again, use another model and report "
    "this one's family with both numbers."
)
HANDOVER_HINT = (
    "Nothing was learned from these rollouts. The sampler computes with a copy of the weights, so the likely cause is "
    "the handover: it took them in part, or still has older ones. Resuming hands them over again, a vLLM of the run's "
    "own is started again first; restart servers that run elsewhere. If it fails at the first step too, the model's "
    "family is the cause: report it with these numbers."
)


class Gap(NamedTuple):
    """How far sampler and training forward are apart over so many tokens, in nats."""

    tokens: int
    largest: float
    mean: float


ROUNDED = Tolerance(mean=0.5, largest=20.0, floor=2e-3)
"""Where trainer or sampler has its weights in 8 or 4 bits. How far that moves log-probabilities depends on the model,
so the first check only finds what has hardly to do with it, and later ones are held against the first."""


def tolerance_for(model: Any, autocast: torch.dtype | None, *, vllm: bool = False, rounded: bool = False) -> Tolerance:
    """The tolerance of the precision that the model computes in, and of who samples. ``rounded``: weights of either are
    quantised."""
    if rounded:
        return ROUNDED
    dtype = autocast or next(model.parameters()).dtype
    if dtype not in (torch.float32, torch.float64):
        return HALF
    return COPIED if vllm else FULL


class SamplerCheck:
    """The check of one attempt: made once, and again after each ``renew``. The first one is journalled, and one that
    fails; what the others found is among the metrics. ``copies``: the sampler gets its weights by copy."""

    def __init__(
        self,
        logprobs: TrainingLogprobs,
        tolerance: Tolerance,
        write: Callable[[SamplerChecked], None],
        *,
        copies: bool = False,
    ) -> None:
        self._logprobs = logprobs
        self._tolerance = tolerance
        self._write = write
        self.copies = copies
        self._echo = Echo(logprobs)
        self._due = self._first = True

    def renew(self) -> None:
        """Check again at the next step: the sampler got new weights by copy."""
        self._due = True

    def __call__(self, step: int, rollouts: Sequence[Sampled]) -> dict[str, float]:
        """Check a step if a check is due and anything was sampled, and give its figures.

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
        if not agrees:
            raise SamplerDisagrees(
                f"The sampler's log-probabilities differ from those of a training forward over the same {gap.tokens} "
                f"tokens by {gap.mean:.3g} nats on average and {gap.largest:.3g} at most; {allowed.mean:.3g} and "
                f"{allowed.largest:g} are allowed.",
                hint=HANDOVER_HINT if self.copies else FAMILY_HINT,
            )
        if self._first:
            self._tolerance = allowed.after(gap.mean)
        self._due = self._first = False
        return {GAP_METRIC: gap.largest, MEAN_METRIC: gap.mean}

    def prove(self, step: int, probes: Sequence[Probe]) -> None:
        """Hold the answers to the same prompts and seeds against those of the handover before: those that were drawn
        alone, whose bits depend on the weights only.

        Raises ``SamplerDisagrees`` where the trainer's weights have moved and the sampler's have not.
        """
        if self._echo.unmoved(probes[:ALONE]):
            raise SamplerDisagrees(
                f"At step {step} the sampler answers a prompt with the same tokens and log-probabilities, to the last "
                "bit, as before the last update; those of a training forward have changed.",
                hint=HANDOVER_HINT,
            )


class Echo:
    """Answers to the same prompts and seeds, from one handover of weights to the next.

    Float noise hides an update of a small learning rate: in bfloat16 it is a fraction of the gap that is there anyway.
    But a sampler that computes the same with the same weights answers with the same bits if it has not got new ones.
    """

    def __init__(self, logprobs: TrainingLogprobs) -> None:
        self._logprobs = logprobs
        self._before: list[tuple[Probe, list[float]]] = []

    def unmoved(self, probes: Sequence[Probe]) -> bool:
        """Whether every answer is the one of the handover before, and the trainer's log-probabilities of most of their
        tokens are not. Keeps these answers for the next."""
        before, self._before = self._before, [(probe, self._forward(probe)) for probe in probes]
        if not before or [probe for probe, _logprobs in before] != list(probes):
            return False
        if any(self._forward(probe) != logprobs for probe, logprobs in self._before):
            return False  # a trainer that says something else each time says nothing about its weights
        pairs = zip(before, self._before, strict=True)
        moved = [old != new for (_, olds), (_, news) in pairs for old, new in zip(olds, news, strict=True)]
        return 2 * sum(moved) > len(moved)

    def _forward(self, probe: Probe) -> list[float]:
        return self._logprobs(probe.prompt_ids, probe.completion_ids)


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


def probe_turns(prompts: Sequence[list[int]]) -> list[Turn]:
    """One short turn after each prompt, with the same seeds whenever it is asked for."""
    return [Turn(ids, PROBE_TOKENS, place, f"probe-{place}") for place, ids in enumerate(prompts)]


def draw_probes(engine: Engine, prompts: Sequence[list[int]]) -> list[Probe]:
    """One short turn after each prompt. Raises what the engine raises."""
    turns = probe_turns(prompts)

    def ask(turn: Turn) -> Coroutine[Any, Any, Sample]:
        return engine.generate(turn.prompt_ids, max_tokens=turn.max_tokens, seed=turn.seed, episode=turn.episode)

    return as_probes(engine, turns, asyncio.run(draw_turns(turns, ask)))


def as_probes(engine: Engine, turns: Sequence[Turn], drawn: Sequence[Sample]) -> list[Probe]:
    """The probes that were drawn; their episodes end here."""
    for turn in turns:
        engine.release(turn.episode)
    return [Probe(t.prompt_ids, s.ids, [1] * len(s.ids), s.logprobs) for t, s in zip(turns, drawn, strict=True)]


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
