"""Recorded rollouts of verl and TRL.

verl's ``{step}.jsonl`` has ``input``, ``output``, ``score``, ``step`` and whatever the reward function returned. TRL's
``completions_*.parquet`` has ``step``, ``prompt``, ``completion``, a column for each reward function, what the run
logged besides, and ``advantage``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from training.data.files import parquet
from training.data.files.sniff import open_regular
from training.data.limits import CheckLimits
from training.errors import DataError
from training.imports.base import BadRow, Item, Notes, Reader, Sampled, known, number_of, shown, step_of
from training.imports.rows import Row, read_json_lines, read_parquet
from training.imports.turns import messages_of, split_texts
from training.words import _, sentence

MAX_PARTS = 64
GROUP_KEYS = ("uid", "group_id", "prompt_id")
"""Columns that say which rollouts belong together."""
_STEP_IN_NAME = re.compile(r"(\d{1,9})(?=\D*$)")
Take = Callable[[dict[str, Any], Notes], Sampled]


def _first(path: Path) -> dict[str, Any]:
    with open_regular(path) as file:
        if b"{" not in file.read(4096):
            return {}
    for number, row in enumerate(read_json_lines(path)):
        if row.value is not None:
            return row.value
        if number == 20:
            break
    return {}


def _recognise_dump(path: Path) -> str:
    names = _first(path)
    return "Its rows have input, output and score." if {"input", "output"} <= names.keys() else ""


def _recognise_completions(path: Path) -> str:
    with open_regular(path) as file:
        is_parquet = file.read(4) == b"PAR1"
    names = parquet.columns(path) if is_parquet else list(_first(path))
    if {"prompt", "completion"} <= set(names):
        return "Its columns include prompt and completion."
    if is_parquet:
        raise DataError(
            sentence(
                _("The parquet file has no columns prompt and completion; it has {columns}."),
                columns=shown(", ".join(names)),
            ),
            hint=_("Give TRL's completions_*.parquet."),
        )
    return ""


def _read_dump(path: Path, notes: Notes) -> Iterator[Item]:
    return _items(read_json_lines(path), notes, _dumped)


def _read_completions(path: Path, notes: Notes) -> Iterator[Item]:
    with open_regular(path) as file:
        is_parquet = file.read(4) == b"PAR1"
    rows = read_parquet(path, CheckLimits.max_rows) if is_parquet else read_json_lines(path)
    return _items(rows, notes, _completed)


def _items(rows: Iterator[Row], notes: Notes, take: Take) -> Iterator[Item]:
    for row in rows:
        try:
            if row.value is None:
                raise BadRow(row.reason)
            yield Item(row.line, row.offset, take(row.value, notes))
        except BadRow as exc:
            yield Item(row.line, row.offset, reason=exc.sentence)


def _dumped(row: dict[str, Any], notes: Notes) -> Sampled:
    """A row of verl's. ``score`` is its reward, every other number a part that the reward function returned."""
    prompt, output = row.get("input"), row.get("output")
    if not isinstance(prompt, str) or not isinstance(output, str):
        raise BadRow(_("`input` or `output` is not text"))
    messages, length, marks = split_texts(prompt, output)
    split, whole = _("Texts were split into turns at the markers of {marks}."), _("Texts contain no turn markers.")
    notes.say(sentence(split, marks=sentence(marks)) if marks else sentence(whole))
    score = known(number_of(row.get("score", row.get("reward"))))
    taken = {"input", "output", "score", "step", *GROUP_KEYS} | ({"reward"} if "score" not in row else set())
    return Sampled(
        step=_step(row, notes),
        key=_key(row, prompt),
        messages=messages,
        prompt=length,
        reward=score,
        parts=_parts(row, taken, notes),
    )


def _completed(row: dict[str, Any], notes: Notes) -> Sampled:
    """A row of TRL's. Its reward is not recorded, only its parts: they are summed with the run's weights, or with 1."""
    prompt = messages_of(row.get("prompt"), "user")
    messages = [*prompt, *messages_of(row.get("completion"), "assistant")]
    given = "reward" in row
    parts = _parts(row, {"prompt", "completion", "step", "advantage", "reward", *GROUP_KEYS}, notes)
    reward = known(number_of(row.get("reward")))
    if not given:
        reward = _summed(parts, notes)
    key = json.dumps(row.get("prompt"), ensure_ascii=False, sort_keys=True, default=str)
    return Sampled(
        step=_step(row, notes),
        key=_key(row, key),
        messages=messages,
        prompt=len(prompt),
        reward=reward,
        parts=parts,
        advantage=known(number_of(row.get("advantage"))),
        summed=not given,
    )


def _summed(parts: dict[str, float | None], notes: Notes) -> float | None:
    """The sum of the parts by weight. TRL writes its rewards in the order of the weights, before other numbers."""
    weights = notes.weights
    if not weights:
        notes.say(sentence(_("The reward of a rollout is the sum of its parts, each with weight 1 (TRL's default).")))
        weights = [1.0] * len(parts)
    elif len(weights) > len(parts):
        raise BadRow(
            sentence(_("it has {count} parts, and there are {weights} weights"), count=len(parts), weights=len(weights))
        )
    else:
        pairs = ", ".join(f"{weight:g} × {name}" for name, weight in zip(parts, weights, strict=False))
        notes.say(sentence(_("The reward of a rollout is the sum of its parts by `reward_weights`: {sum}."), sum=pairs))
    values = [value * weight for value, weight in zip(parts.values(), weights, strict=False) if value is not None]
    return sum(values) if values else None


def _step(row: dict[str, Any], notes: Notes) -> int:
    """The row's step, or the number in the file's name."""
    if row.get("step") is not None:
        return step_of(row["step"])
    found = _STEP_IN_NAME.search(notes.name.rsplit("/", 1)[-1])
    if found is None:
        raise BadRow(_("it has no step number, and neither has the file's name"))
    return step_of(found[1])


def _key(row: dict[str, Any], prompt: str) -> str:
    named = next((str(row[name]) for name in GROUP_KEYS if row.get(name) not in (None, "")), None)
    return hashlib.blake2b((named or prompt).encode(), digest_size=12).hexdigest()


def _parts(row: dict[str, Any], taken: set[str], notes: Notes) -> dict[str, float | None]:
    """Numbers by name; a column of anything else is named as left out."""
    parts: dict[str, float | None] = {}
    for name, value in row.items():
        if name in taken:
            continue
        if value is None or isinstance(value, bool | int | float):
            if len(parts) < MAX_PARTS:
                parts[name[:120]] = known(number_of(value))
        else:
            notes.left_out.setdefault(name[:120], _("it holds texts or lists, which a rollout cannot store"))
    return {name: value for name, value in parts.items() if name[:120] not in notes.left_out}


DUMP_READER = Reader(
    "verl_rollouts",
    _("recorded rollouts"),
    "verl",
    "`{step}.jsonl` of `trainer.rollout_data_dir`: `input` and `output` become turns, `score` the reward, every other "
    "number a part of it. Rollouts of a step with the same input (or `uid`) are a group.",
    _recognise_dump,
    _read_dump,
)
COMPLETIONS_READER = Reader(
    "trl_completions",
    _("completions"),
    "TRL",
    "`completions_*.parquet` (or its rows as JSON Lines): prompts and completions are texts or message lists, every "
    "number a reward function's, their sum the reward, `advantage` as it stands.",
    _recognise_completions,
    _read_completions,
)
