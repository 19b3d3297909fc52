"""Holding tasks out of a dataset so that no equal task is trained on, and looking for those that leak all the same.

A row's *key* is what its task says. Equal keys are one group and stay on one side. Which side hangs on the key alone,
so a row that is held out stays held out when the dataset grows, is shuffled, or is used with another seed.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from training.data.schema import Row

WORDS_IN_A_ROW = 8
ALIKE_SHARE = 0.8
LOOKED_AT_ROWS = 20_000
_WORD = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")  # of scripts without spaces each character is a word


class Split(NamedTuple):
    """Places of the rows on each side, in order, and how many groups of equal tasks are held out."""

    train: list[int]
    held_out: list[int]
    groups: int


class Leaks(NamedTuple):
    """Held-out tasks that the training rows have too.

    ``same``: positions of those with an equal key. ``alike``: how many others share ``ALIKE_SHARE`` of their sequences
    of ``WORDS_IN_A_ROW`` words with rows that are trained on; of these ``looked_at`` were read.
    """

    same: list[int]
    alike: int
    looked_at: int


def task_key(row: Row) -> str:
    """What the task of a row says, apart from case and white space: its user's words, else the whole row."""
    said = [message.content for message in row.messages if message.role == "user" and message.content]
    return plain_text(
        "\n".join(said) or json.dumps(row.raw or row.extra, sort_keys=True, ensure_ascii=False, default=str)
    )


def plain_text(text: str) -> str:
    """A text apart from case, white space and Unicode forms."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def split_rows(rows: Sequence[Row], share: float) -> Split:
    """Hold out about ``share`` (0 to 1) of the groups, one at least. Both sides may be uneven: groups are not cut."""
    keys = [task_key(row) for row in rows]
    places = {key: _unit_hash(key) for key in set(keys)}
    chosen = {key for key, place in places.items() if place < share}
    if not chosen and places and share > 0:
        chosen = {min(places, key=lambda key: places[key])}
    train = [number for number, key in enumerate(keys) if key not in chosen]
    held_out = [number for number, key in enumerate(keys) if key in chosen]
    return Split(train, held_out, len(chosen))


def _unit_hash(key: str) -> float:
    """A number from 0 to 1 that the key alone decides."""
    return place_bits(key) / 2**64


def place_bits(key: str) -> int:
    """The same as 64 bits."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def leaks(held_out: Sequence[Row], train: Sequence[Row]) -> Leaks:
    """Look for the tasks of ``held_out`` among the rows of ``train``."""
    keys = [task_key(row) for row in held_out]
    wanted = [frozenset(_sequences(key)) for key in keys]
    all_wanted = frozenset().union(*wanted)
    trained: set[str] = set()
    found: set[int] = set()
    for number, row in enumerate(train):
        key = task_key(row)
        trained.add(key)
        if number < LOOKED_AT_ROWS:
            found.update(each for each in _sequences(key) if each in all_wanted)
    same = [number for number, key in enumerate(keys) if key in trained]
    alike = sum(
        1
        for key, its in zip(keys, wanted, strict=True)
        if key not in trained and its and len(its & found) >= ALIKE_SHARE * len(its)
    )
    return Leaks(same, alike, min(len(train), LOOKED_AT_ROWS))


def _sequences(key: str) -> Iterator[int]:
    words = _WORD.findall(key)
    for start in range(len(words) - WORDS_IN_A_ROW + 1):
        yield hash(tuple(words[start : start + WORDS_IN_A_ROW]))
