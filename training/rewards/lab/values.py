"""Raw values of components over a set: recorded ones as they are, computed ones kept in the set's folder.

A column is known by its component's function and parameters, so weights, clips, gates, schedules and categories may
change without scoring anything again.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from training.config import RewardComponent
from training.rewards.lab.table import Bools, Floats, Ints, Table
from training.rewards.registry import COMPONENTS
from training.words import Sentence

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
    """What a column is known by: the function with all of its parameters, defaults included."""
    known = COMPONENTS.get(component.registered)
    params = component.params
    if known is not None:
        with suppress(ValidationError):  # wrong ones are told elsewhere
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
    """The wanted places that nobody has computed yet."""
    return wanted & (column.code == UNKNOWN)
