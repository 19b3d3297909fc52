"""The trainer's values of each token of a sampling, gathered while it trains and kept in a file a step.

A row's values are those of its first forward: the ones that its first update is made with. Gathering costs a copy of
two figures a token from the device; TRL computes them anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.rollout.trajectory import Rollout, StepRollouts
from training.token_file import Spelling, TokenValues, flags_of, keep_newest, write_step

PLACE = "place"
"""The key under which each row of a sampling carries its place in it through TRL's shuffles and splits."""


class TokenRecord:
    """The values of one sampling at a time, below ``folder``; all files together hold at most ``limit`` bytes."""

    def __init__(self, folder: Path, limit: int, spell: Callable[[int], bytes]) -> None:
        self._folder, self._limit = folder, limit
        self._spelling = Spelling(folder, spell)
        self._bytes = keep_newest(folder, limit)
        self._sampling: StepRollouts | None = None
        self._step = 0
        self._rows: dict[int, dict[str, Any]] = {}

    def sampled(self, step: int, sampling: StepRollouts) -> None:
        """A sampling whose rows the trainer is about to get, in this order."""
        self._step, self._sampling, self._rows = step, sampling, {}

    def dealt(self, batch: dict[str, Any]) -> None:
        """The advantages of a micro batch, (rows,) or (rows, tokens), and which of its rows are learned from."""
        mask = (batch["completion_mask"] * batch.get("tool_mask", 1)).any(-1).tolist()
        for place, advantage, learned in zip(batch[PLACE].tolist(), batch["advantages"].cpu(), mask, strict=True):
            self._rows[place] = {"advantage": advantage.numpy(), "learned": int(learned)}

    def seen(self, places: torch.Tensor, logprobs: torch.Tensor, entropies: torch.Tensor) -> None:
        """The trainer's log-probabilities and entropies of a micro batch, each (rows, tokens)."""
        chosen, spread = logprobs.detach().float().cpu().numpy(), entropies.detach().float().cpu().numpy()
        for row, place in enumerate(places.tolist()):
            known = self._rows.setdefault(place, {"advantage": None, "learned": 1})
            known.setdefault("logprob", chosen[row])
            known.setdefault("entropy", spread[row])

    def write(self) -> None:
        """Keep what was gathered of the sampling, and drop the oldest steps beyond the limit."""
        if self._sampling is None:
            return
        rollouts, size = self._sampling.rollouts, len(self._sampling.rollouts) // len(self._sampling.groups)
        held = [
            (place // size, place % size, _values(rollout, self._rows.get(place, {})))
            for place, rollout in enumerate(rollouts)
            if rollout.trajectory.prompt_ids
        ]
        self._spelling.tell(
            {n for each in rollouts for n in each.trajectory.prompt_ids + each.trajectory.completion_ids}
        )
        self._bytes += write_step(self._folder, self._step, held).stat().st_size
        if self._bytes > self._limit:
            self._bytes = keep_newest(self._folder, self._limit)
        self._sampling, self._rows = None, {}


def _values(rollout: Rollout, known: dict[str, Any]) -> TokenValues:
    """A rollout's tokens with what the trainer saw of them. An excluded one was never trained on."""
    trajectory = rollout.trajectory
    count = len(trajectory.completion_ids)
    sampled = np.asarray(trajectory.logprobs, np.float32)
    mask = np.asarray(trajectory.mask, np.uint8)
    advantage, seen = known.get("advantage"), rollout.parts is not None and len(known.get("logprob", ())) >= count
    ratio, entropy = np.ones(count, np.float32), np.zeros(count, np.float32)
    if seen and count:
        ratio = np.exp(np.clip(known["logprob"][:count] - sampled, -80, 80))
        entropy = known["entropy"][:count]
    if isinstance(advantage, np.ndarray):
        advantage = advantage[:count] if advantage.ndim else float(advantage)
    return TokenValues(
        prompt=np.asarray(trajectory.prompt_ids, np.uint32),
        ids=np.asarray(trajectory.completion_ids, np.uint32),
        flags=flags_of(mask, known.get("learned", 0) if rollout.parts is not None else 0, int(seen)),
        logprob=sampled * mask,
        entropy=entropy * mask,
        ratio=np.where(mask == 1, ratio, 1.0).astype(np.float32),
        advantage=advantage if rollout.parts is not None else None,
    )


def speller(tokenizer: Any) -> Callable[[int], bytes]:
    """The bytes that an id spells: of a byte-level tokenizer those of the piece itself, which may be half a character;
    of others the text that it decodes to."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    byte_level = "ByteLevel" in repr(getattr(backend, "decoder", None))
    special = set(tokenizer.all_special_ids)
    bytes_of = _byte_letters()

    def spell(number: int) -> bytes:
        piece = tokenizer.convert_ids_to_tokens(number)
        if byte_level and number not in special and piece is not None and all(letter in bytes_of for letter in piece):
            return bytes(bytes_of[letter] for letter in piece)
        return str(tokenizer.decode([number], skip_special_tokens=False)).encode()

    return spell


def _byte_letters() -> dict[str, int]:
    """The letter that byte-level BPE writes each byte with (Radford et al. 2019): printable ones as they are, the
    others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}
