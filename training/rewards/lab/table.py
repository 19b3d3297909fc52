"""A rollout set as columns, sorted by step, group and index, and the raw values of components over it."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import uuid
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from envs.wire import Message
from training.config import RewardComponent
from training.errors import DataError
from training.rewards.base import Episode
from training.rewards.scoring import COMPONENTS
from training.words import Sentence, _

# A rollout set as columns: one entry for each rollout, sorted by step, group and index.

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

COLUMNS_NAME, META_NAME, EPISODES_NAME, ROWS_NAME = "columns.npz", "meta.json", "episodes.jsonl", "rows.jsonl"
STATUSES = ("completed", "truncated", "excluded")
PART_PREFIX = "part:"


@dataclass(frozen=True)
class Table:
    """The columns of a set. ``starts`` are where its groups begin, and the number of rollouts behind the last.

    ``said`` are the environment's rewards so far at the reset and after each turn, of all rollouts one after another,
    NaN where it said none; ``said_ends`` is where those of each rollout end. Older sets have neither.
    """

    folder: Path
    ids: Bytes
    step: Ints
    group: Ints
    index: Ints
    starts: Longs
    status: Bytes
    excluded: Bools
    cut: Bools
    error: Ints
    policy: Ints
    category: Ints
    length: Floats
    actions: Ints
    repeats: Ints
    reward: Floats
    env_reward: Floats
    env_success: Floats
    offsets: Longs
    row: Ints
    row_offsets: Longs
    tasks: Bytes
    task_ends: Longs
    parts: dict[str, Floats]
    meta: dict[str, Any]
    said: Floats | None = None
    said_ends: Longs | None = None

    @property
    def size(self) -> int:
        """How many rollouts there are."""
        return len(self.step)

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.starts) - 1

    @property
    def nbytes(self) -> int:
        """Memory of the columns."""
        own = (getattr(self, field.name) for field in fields(self))
        columns = [item for item in own if isinstance(item, np.ndarray)] + list(self.parts.values())
        return sum(int(column.nbytes) for column in columns)

    def id_of(self, place: int) -> str:
        """The id of the rollout at a place."""
        return str(uuid.UUID(bytes=self.ids[place].tobytes()))

    def place_of(self, rollout: uuid.UUID) -> int | None:
        """The place of the rollout with this id."""
        found = np.flatnonzero((self.ids == np.frombuffer(rollout.bytes, np.uint8)).all(axis=1))
        return int(found[0]) if len(found) else None

    def task_of(self, group: int) -> str:
        """The text of the group's task."""
        begin = int(self.task_ends[group - 1]) if group else 0
        return self.tasks[begin : int(self.task_ends[group])].tobytes().decode("utf-8", "replace")

    def reason_of(self, place: int) -> str:
        """Why the rollout was excluded when it was recorded."""
        number = int(self.error[place])
        return str(self.meta["errors"][number]) if number >= 0 else ""


def table_load(folder: Path) -> Table:
    """The columns of a set. Raises ``DataError`` when they are gone or broken."""
    try:
        with np.load(folder / COLUMNS_NAME, allow_pickle=False) as found:
            columns = {name: found[name] for name in found.files}
        meta = json.loads((folder / META_NAME).read_text("utf-8"))
        parts = {name: columns.pop(PART_PREFIX + name) for name in meta["parts"]}
        return Table(folder=folder, parts=parts, meta=meta, **columns)
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise DataError(
            _("The files of this rollout set are missing or damaged."), hint=_("Create the set again.")
        ) from exc


def read_lines(path: Path, offsets: Longs, places: list[int]) -> list[Any]:
    """The JSON values of some lines of a file whose lines begin at ``offsets``."""
    values = []
    with open(path, "rb") as file:
        for place in places:
            file.seek(int(offsets[place]))
            values.append(json.loads(file.read(int(offsets[place + 1] - offsets[place]))))
    return values


def episode_at(table: Table, place: int) -> Episode:
    """The whole episode at a place."""
    raw = read_lines(table.folder / EPISODES_NAME, table.offsets, [place])[0]
    number = int(table.row[place])
    row = read_lines(table.folder / ROWS_NAME, table.row_offsets, [number])[0] if number >= 0 else {}
    return episode_from(raw, row)


def episode_from(raw: dict[str, Any], row: dict[str, Any]) -> Episode:
    """A stored episode with its row."""
    return Episode(
        messages=[Message.model_validate(item) for item in raw["messages"]],
        prompt_length=raw["prompt_length"],
        row=row,
        env_reward=raw["env_reward"],
        env_parts=raw["env_parts"],
        parse_errors=raw["parse_errors"],
        truncated=raw["truncated"],
        tokens=raw["tokens"],
    )


# Raw values of components over a set: recorded ones as they are, computed ones kept in the set's folder.
#
# A column is known by its component's function and parameters, so weights, clips, gates, schedules and categories may
# change without scoring anything again.

FOLDER_NAME = "values"
UNKNOWN, KNOWN = -2, -1
MAX_REASONS = 200
MAX_COLUMNS = 200
"""Most computed columns that a set keeps."""


@dataclass(frozen=True)
class Column:
    """A component's raw values. ``code`` is ``KNOWN``, ``UNKNOWN`` (never computed), or a place in ``reasons``."""

    value: Floats
    code: Ints
    reasons: list[Sentence]

    @property
    def nbytes(self) -> int:
        """Memory of the column."""
        return int(self.value.nbytes + self.code.nbytes)


def component_key(component: RewardComponent) -> str:
    """The key of a column: the function with all of its parameters, defaults included."""
    known = COMPONENTS.get(component.registered)
    params = component.params
    if known is not None:
        with suppress(ValidationError):  # wrong ones are reported elsewhere
            params = known.params.model_validate(params).model_dump(mode="json")
    text = json.dumps([component.registered, params], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def recorded(table: Table, component: RewardComponent) -> Column:
    """What the run recorded under the same function and parameters; ``UNKNOWN`` where it recorded nothing."""
    name = table.meta["recorded"].get(component_key(component))
    value = table.parts[name] if name in table.parts else np.full(table.size, np.nan)
    return Column(value, np.where(np.isfinite(value), KNOWN, UNKNOWN).astype(np.int32), [])


def column_path(folder: Path, component: RewardComponent) -> Path:
    """Where the computed values of a component are kept."""
    return folder / FOLDER_NAME / f"{component_key(component)}.npz"


def column_of(table: Table, component: RewardComponent) -> Column:
    """Recorded values, and computed ones where there are none."""
    column, path = recorded(table, component), column_path(table.folder, component)
    if not path.exists():
        return column
    try:
        with np.load(path, allow_pickle=False) as found:
            value, code, reasons = found["value"], found["code"], found["reasons"]
    except (OSError, ValueError, KeyError):
        return column
    if len(value) != table.size or len(code) != table.size:
        return column
    keep = column.code == KNOWN
    return Column(
        np.where(keep, column.value, value),
        np.where(keep, KNOWN, code).astype(np.int32),
        # Columns of earlier versions have only the English text.
        [Sentence.of(item) for item in json.loads(reasons.tobytes().decode("utf-8"))],
    )


def column_save(folder: Path, component: RewardComponent, column: Column) -> None:
    """Keep computed values; of two writers at once the later one stays."""
    path = column_path(folder, component)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    whole = path.with_name(f"{path.stem}.{secrets.token_hex(4)}.part")
    packed_reasons = json.dumps([reason.data for reason in column.reasons], ensure_ascii=False)
    reasons = np.frombuffer(packed_reasons.encode("utf-8", "replace"), np.uint8)
    with open(whole, "wb") as file:
        np.savez(file, value=column.value, code=column.code, reasons=reasons)
    os.replace(whole, path)
    _forget_oldest(path.parent)


def _forget_oldest(folder: Path) -> None:
    """A parameter that is moved about leaves a column at every value; those used last are worth keeping."""
    by_age = sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime)
    for path in by_age[:-MAX_COLUMNS]:
        path.unlink(missing_ok=True)


def needed(column: Column, wanted: Bools) -> Bools:
    """The wanted places that are not computed yet."""
    return wanted & (column.code == UNKNOWN)
