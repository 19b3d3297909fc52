"""The past of rollouts that continue from a turn of a recorded one: the file that a job of kind `evaluate` gets.

Each of its rollouts begins as the recorded one did, with its row and seed; the recorded turns are taken again on a
session of its own, and the contestant plays from there. The turns of the past are the rollout's turns too: rewards see
the whole episode, as they saw the recorded one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from training.errors import CannotContinue
from training.rollout.rewinding import Recording

MAX_PAST_BYTES = 32 << 20


@dataclass(frozen=True)
class Past:
    """Where rollouts continue from: behind all turns of ``recording``, whose policy wrote ``tokens`` in each of them.

    ``row`` is the task's place in the dataset, from 0.
    """

    row: int
    recording: Recording
    tokens: list[int]

    @property
    def seed(self) -> int:
        """The seed of the episode."""
        return self.recording.reset.seed


_adapter = TypeAdapter(Past)


def write_past(path: Path, past: Past) -> None:
    """Write it for a job to read; a file that is there is replaced whole."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_suffix(".new")
    new.write_bytes(_adapter.dump_json(past))
    new.replace(path)


def read_past(path: Path) -> Past:
    """Read what ``write_past`` wrote. Raises ``CannotContinue``."""
    try:
        if path.stat().st_size > MAX_PAST_BYTES:
            raise CannotContinue("The recorded rollout is too large to continue from.")
        return _adapter.validate_json(path.read_bytes())
    except (OSError, ValidationError) as exc:
        raise CannotContinue("The recorded rollout that this job continues from cannot be read.") from exc


# --- Seeds ----------------------------------------------------------------------------------------------------------
# Seeds of rollouts.


def mix_seed(*parts: int) -> int:
    """A 56-bit seed from several numbers, the same on every machine."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
