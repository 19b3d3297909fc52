"""The identity of a row and of its task, under any name: hashes to find duplicates, and tasks held out."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from training.data.schema import TASK_KEYS, Row
from training.rows import row_value

# Holding tasks out of a dataset so that no equal task is trained on, and looking for those that leak all the same.
#
# A row's *key* is what its task says. Equal keys are one group and stay on one side. The side depends on the key alone,
# so a row that is held out stays held out when the dataset grows, is shuffled, or is used with another seed.

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
    texts = [message.content for message in row.messages if message.role == "user" and message.content]
    return plain_text(
        "\n".join(texts) or json.dumps(row.raw or row.extra, sort_keys=True, ensure_ascii=False, default=str)
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


# Which row a row is under any name: what it asks and what it expects, as hashes that are kept next to the rows.
#
# *Asked* are the user's words before the first assistant turn; of a row that the environment opens, the values that
# name its task. *Expected* is the answer that the row carries, under any of the usual names; a demonstration carries
# none, and asks the same question. Blind to ids, names of columns and their order, case, white space and Unicode forms,
# the file's format, and to tools and system texts: they say how a question is answered, not which question it is.
#
# A question that a whole set shares ("Begin.") names no row: of such the system text and the answer must be equal too.

IDENTITIES_NAME = "rows.ids"
_MARK = b"rowids1\n"
_COLUMNS = 4
EXPECTED = (
    "reward_model.ground_truth", "ground_truth", "answer", "answers", "expected_answer", "expected", "expected_state",
    "final_answer", "gold", "gold_answer", "golden_answers", "target", "possible_answer", "reference_answer",
    "extra_info.answer", "solution",
)  # fmt: skip
"""Where a row carries what it expects; the first that says something counts."""
_OPENED_BY = (*TASK_KEYS, "catalogue", "seed", "initial_config")
"""What an environment opens a task with where no words of the row ask for anything."""
GENERIC_SHARE = 20
GENERIC_LEAST = 3
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_FINAL = "####"
"""GSM8K's mark before the final answer."""
Identities: TypeAlias = NDArray[np.uint64]
"""Shape (rows, 4): hashes of what is asked, of the system text and of what is expected (0: nothing), and the row's
place between 0 and 2^64, below which ``split_rows`` holds it out."""


class Identity(NamedTuple):
    """The four numbers of one row."""

    asked: int
    setting: int
    expected: int
    place: int


def identity_of(row: Row) -> Identity:
    """Which row this is."""
    before = _before_answer(row)
    asked = [text for role, text in before if role == "user" and text]
    setting = "\n".join(text for role, text in before if role == "system")
    words = "\n".join(asked) or _opened(row.extra) or setting or _text(row.extra)
    if not any(message.role == "user" and message.content for message in row.messages):
        row = row.model_copy(update={"raw": row.normal()})  # which is what a job reads, whatever the file spelled
    return Identity(_hash(words), _hash(setting), _expected(row.extra), place_bits(task_key(row)))


def _before_answer(row: Row) -> list[tuple[str, str]]:
    """Role and plain text of the messages before the first assistant turn."""
    roles = [message.role for message in row.messages]
    end = roles.index("assistant") if "assistant" in roles else len(roles)
    return [(message.role, plain_text(message.content)) for message in row.messages[:end]]


def _opened(extra: dict[str, Any]) -> str:
    found = {name: extra[name] for name in _OPENED_BY if extra.get(name) is not None}
    return _text(found) if found else ""


def _expected(extra: dict[str, Any]) -> int:
    found = (_canonical(row_value(extra, name)) for name in EXPECTED)
    value = next((value for value in found if value not in ("", [], {})), "")
    return _hash(_text(value)) if value else 0


def _canonical(value: Any) -> Any:
    """A value as every format spells it: JSON in texts read, lists of one opened, fields without a value left out."""
    if isinstance(value, str):
        return _plain_words(value)
    if isinstance(value, dict):
        kept = {str(name): _canonical(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in ("", [], {})}
    if isinstance(value, list | tuple):
        found = [_canonical(item) for item in value]
        return found[0] if len(found) == 1 else found
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else plain_text(str(value))


def _plain_words(text: str) -> Any:
    text = text.strip()
    if text[:1] in ("{", "["):
        try:
            return _canonical(json.loads(text))
        except (ValueError, RecursionError):
            pass
    return _THOUSANDS.sub("", plain_text(text.rpartition(_FINAL)[2]))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _hash(text: str) -> int:
    """64 bits that are the same in every process; never 0, which means nothing."""
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


class IdentityWriter:
    """The identities of rows in the order in which they come, 32 bytes each."""

    def __init__(self) -> None:
        self._numbers = array("Q")

    def add(self, row: Row) -> None:
        """Take the next row."""
        self._numbers.extend(identity_of(row))

    def write(self, path: Path) -> None:
        """Write the file whole or not at all. Raises ``OSError``."""
        part = path.with_name(path.name + ".part")
        part.write_bytes(_MARK + self._numbers.tobytes())
        part.replace(path)


def identities_write(rows: Iterable[Row], path: Path) -> None:
    """Write the identities of ``rows``. Raises ``OSError``, and what reading the rows raises."""
    writer = IdentityWriter()
    for row in rows:
        writer.add(row)
    writer.write(path)


def identities_read(path: Path) -> Identities | None:
    """The identities that a file keeps; ``None`` where there is no such file, or it is of another version."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    if not found.startswith(_MARK) or (len(found) - len(_MARK)) % (8 * _COLUMNS):
        return None
    return np.frombuffer(found, dtype=np.uint64, offset=len(_MARK)).reshape(-1, _COLUMNS)


def held_out(rows: Identities, share: float) -> NDArray[np.bool_]:
    """The rows that ``splitting.split_rows`` holds out for this share; none for 0."""
    places = rows[:, 3]
    if not share or not len(rows):
        return np.zeros(len(rows), dtype=bool)
    chosen = places / 2.0**64 < share
    return chosen if chosen.any() else places == places.min()


def known(rows: Identities, others: Identities) -> NDArray[np.bool_]:
    """Those of ``rows`` that are among ``others``: they ask the same, and expect the same where both say what."""
    if not len(rows) or not len(others):
        return np.zeros(len(rows), dtype=bool)
    asked, expected = rows[:, 0], rows[:, 2]
    same = np.isin(_joined(rows[:, [0, 2]]), _joined(others[:, [0, 2]]))
    same |= np.isin(asked, others[others[:, 2] == 0, 0]) | ((expected == 0) & np.isin(asked, others[:, 0]))
    shared = np.isin(asked, np.concatenate([_generic(rows), _generic(others)]))
    return np.where(shared, np.isin(_joined(rows[:, :3]), _joined(others[:, :3])), same)


def _generic(rows: Identities) -> Identities:
    """The questions that more than one row in twenty asks, three different ones at least: they name no row."""
    different = np.unique(rows[:, :3], axis=0)
    asked, counts = np.unique(different[:, 0], return_counts=True)
    return asked[(counts >= GENERIC_LEAST) & (counts * GENERIC_SHARE > len(rows))]


def _joined(columns: Identities) -> Identities:
    """One number for each line of hashes."""
    factors: Sequence[int] = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
    found = np.zeros(len(columns), dtype=np.uint64)
    for place, factor in zip(range(columns.shape[1]), factors, strict=False):
        found = (found ^ columns[:, place]) * np.uint64(factor)
    return found
