"""The contract of a sampling engine. A new sampler is one module that keeps it and one line of ``make``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from training.errors import ModelError


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn. ``top_k`` 0 and ``top_p`` 1 are off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True)
class Sample:
    """One sampled turn.

    ``ids`` as sampled, the end-of-turn id included when there is one; ``logprobs`` of each, in nats, of the
    temperature-scaled distribution before top-p and top-k cut it (the one that TRL's loss computes too).
    ``finished`` says whether the turn ended by itself; otherwise the token limit cut it. ``version`` is the engine's
    while it was sampled.
    """

    ids: list[int]
    logprobs: list[float]
    finished: bool
    version: int = 0


@dataclass(frozen=True)
class Watch:
    """A turn that a caller watches: ``on_token`` is called with each id as it is drawn, from the engine's own thread,
    so it must be quick and raise nothing. ``params`` draw this turn in the place of the engine's own.
    """

    on_token: Callable[[int], None]
    params: SamplingParams


@dataclass(frozen=True)
class EngineFigures:
    """The work of an engine since it was made.

    ``busy_seconds``: wall time in which it was computing, work in progress included. ``memory_retries``: how often it
    ran out of memory and continued with fewer rows. ``synced_seconds``: wall time in which new weights were handed
    over, where they are.
    """

    busy_seconds: float = 0.0
    turns: int = 0
    tokens: int = 0
    memory_retries: int = 0
    synced_seconds: float = 0.0


class Engine(Protocol):
    """Samples turns. Any number of ``generate`` calls may be awaited at once; the engine batches them as it likes."""

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        """Sample one turn after ``prompt_ids``.

        Turns of one ``episode`` continue each other: what the engine computed for the earlier ones it may keep until
        ``release``.
        ``seed`` fixes the draw: the same ids, weights and seed give the same turn (up to float noise of the batch)
        independent of what else is sampled with it. Raises ``PolicyFault``.
        """
        ...

    def release(self, episode: str) -> None:
        """The episode has no further turn. Calling it for an unknown one does nothing."""
        ...

    def sampling(self) -> AbstractContextManager[None]:
        """The block in which turns may be sampled; the model must not be trained in it."""
        ...

    def weights_changed(self) -> int:
        """The model has new weights: forget what was computed with the old ones. Gives the new ``version``.

        Called after each change of weights and before the next turn. An engine with weights of its own waits for the
        turns in flight, and has new ones wait for it.
        """
        ...

    @property
    def version(self) -> int:
        """How often the weights have changed since the engine was made."""
        ...

    @property
    def figures(self) -> EngineFigures:
        """The engine's work until now."""
        ...

    def close(self) -> None:
        """End what the engine started. Calling it twice does nothing."""
        ...


@dataclass(frozen=True)
class Turn:
    """A turn to be sampled: what ``Engine.generate`` is given."""

    prompt_ids: list[int]
    max_tokens: int
    seed: int
    episode: str = ""


ALONE = 1
"""How many turns ``draw_turns`` samples with no other turn in their batch."""


async def draw_turns(turns: Sequence[Turn], ask: Callable[[Turn], Awaitable[Sample]]) -> list[Sample]:
    """The turns, in their order: the first ``ALONE`` one after another, the others together.

    Which turns share a batch depends on when each arrives, and a batch of another shape computes other last bits. Only
    a turn that was sampled alone has the same bits whenever the weights are the same.
    """
    alone = [await ask(turn) for turn in turns[:ALONE]]
    return [*alone, *await asyncio.gather(*(ask(turn) for turn in turns[ALONE:]))]


class CopyEngine(Engine, Protocol):
    """An engine that samples from a copy of the weights, and can sample during training."""

    def write_weights(self) -> None:
        """Write new weights, if there are any, while turns are still sampled from the old ones: the next handover only
        has to load them. Raises ``StorageFull``.
        """
        ...

    def hand_over(self, turns: Sequence[Turn]) -> list[Sample]:
        """``weights_changed``, and these turns, by ``draw_turns``.

        They are the first of the new weights and sampled with no other turns, so the same weights give the same bits of
        those that are drawn alone. May be called from any thread. Raises as ``generate`` does.
        """
        ...


class WatchedEngine(Engine, Protocol):
    """An engine whose turns can be watched while they are sampled. Watching changes nothing of what is drawn."""

    async def generate(
        self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "", watch: Watch | None = None
    ) -> Sample:
        """See ``Engine.generate``."""
        ...


# Which model families the sampler is right for, and by which path.
#
# A family is one ``model_type`` of transformers. It is listed here once the log-probabilities of its sampled tokens
# were equal to those of a training forward (3 turns × 6 rows with pauses between, tiny random weights, transformers
# 5.17): at most 3e-5 nats apart, where a wrong mask gave 0.01 to 5 (qwen3_5 and qwen3_next with several turns and a
# temperature of 0.9: 1.2e-4 and 2.5e-4 at most, 1e-5 on average, because a chunked rule rounds otherwise than a
# recurrent one). The others are refused by name, because a run that learns from wrong log-probabilities looks healthy.
#
# - *fast*: the cache of an episode waits for its next turn, which feeds only what is new. Full attention and sliding
#   windows.
# - *plain*: each turn feeds the whole prompt. For layers with a state, where the padding between the turns of a row
#   would leave a trace (linear attention, convolutions), and for masks that count columns (chunks, ALiBi of MPT).

SamplingPath = Literal["fast", "plain"]

_FAST = """
afmoe apertus arcee axk1 biogpt bitnet bloom codegen cohere cohere2 cohere2_moe cwm deepseek_v2 deepseek_v3
diffllama dots1 ernie4_5 ernie4_5_moe exaone4 exaone_moe flex_olmo gemma gemma2 gemma3 gemma3_text gemma3n_text
gemma4 gemma4_text gemma4_unified gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite gpt2 gpt_bigcode gpt_neox
gpt_oss gptj granite granite_swa granitemoe granitemoe_swa granitemoeshared helium hrm_text hunyuan_v1_dense
hunyuan_v1_moe hy_v3 hyperclovax jais2 jetmoe laguna llama mellum mimo_v2_flash minicpm3 minimax_m2
ministral ministral3 mistral mixtral nanochat nemotron olmo olmo2 olmo3 olmoe opt persimmon phi
phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe seed_oss smollm3 solar_open stablelm starcoder2 vaultgemma xglm youtu
"""
_PLAIN = """
bamba falcon_h1 gpt_neo granitemoehybrid jamba lfm2 lfm2_moe llama4 llama4_text mpt nemotron_h olmo_hybrid qwen3_5
qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_next zamba2 zaya
"""
_PATHS: dict[str, SamplingPath] = {
    **dict.fromkeys(_FAST.split(), "fast"),
    **dict.fromkeys(_PLAIN.split(), "plain"),
}


def sampling_path(model_type: str) -> SamplingPath | None:
    """How models of a family are sampled; ``None`` if they cannot be sampled right."""
    return _PATHS.get(model_type)


def sampled_families() -> list[str]:
    """All model types that can be sampled."""
    return list(_PATHS)


def known_path(model_type: str) -> SamplingPath:
    """``sampling_path``. Raises ``ModelError`` that names a family which cannot be sampled."""
    path = sampling_path(model_type)
    if path is None:
        raise ModelError(
            f"Models of the family {model_type} cannot be sampled correctly: the sampler's log-probabilities are not "
            "shown to equal those of a training forward.",
            hint="Choose a model of another family, such as qwen3, qwen3_5, llama, mistral or gpt_oss.",
        )
    return path
