"""Seeds of rollouts."""

from __future__ import annotations

import hashlib


def mix_seed(*parts: int) -> int:
    """A 56-bit seed from several numbers, the same on every machine."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
