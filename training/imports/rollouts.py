"""Recorded rollouts of verl and TRL, and what readers of rollouts share.

verl's ``{step}.jsonl`` has ``input``, ``output``, ``score``, ``step`` and whatever the reward function returned. TRL's
``completions_*.parquet`` has ``step``, ``prompt``, ``completion``, a column for each reward function, what the run
logged besides, and ``advantage``; ms-swift's ``completions.jsonl`` the same as columns, a row a step; verifiers'
``results.jsonl`` a reward and its parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from training.data.files import parquet
from training.data.files.sniff import open_regular
from training.data.problems import CheckLimits
from training.errors import DataError
from training.imports.base import BadRow, Item, Notes, Reader, Sampled, known, number_of, shown, step_of
from training.imports.groups import GROUP_KEYS, group_key, placed
from training.imports.rows import Row, read_json_lines, read_parquet
from training.imports.turns import messages_of, split_texts
from training.words import _, sentence

MAX_PARTS = 64
MAX_EXPECTED_CHARS = 4_000
EXPECTED = ("gts", "ground_truth", "expected_answer", "answer", "expected_output", "solution")
"""Columns of the answer that was wanted, the most telling first."""
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_TIMES = ("generation_ms", "scoring_ms", "total_ms", "is_completed", "is_truncated")
_NO_PARTS = {"prompt", "completion", "reward", "advantage", "advantages", *_TIMES}
"""Columns of completions that are no parts of a reward; verifiers writes times and states beside its own."""
_NUMBERS = ("_id", "_index", "_idx")
"""Ends of the names of columns that number something."""
STEP_KEYS = ("step", "global_step", "gen_step")
Place = tuple[int, str]
FIRST = 1
"""The step of rollouts that name none."""
_STEP_IN_NAME = re.compile(r"(\d{1,9})(?=\D*$)")
_STEP_AT_END = re.compile(r"(?:^|step|[-_])(\d{1,9})$")
Take = Callable[[dict[str, Any], Notes], Iterable[Sampled]]


def first_row(path: Path) -> dict[str, Any]:
    """The first row of JSON Lines that can be read; empty where there is none."""
    with open_regular(path) as file:
        if b"{" not in file.read(4096):
            return {}
    for number, row in enumerate(read_json_lines(path)):
        if row.value is not None:
            return row.value
        if number == 20:
            break
    return {}


def _is_parquet(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(4) == b"PAR1"


def _recognise_dump(path: Path) -> str:
    names = first_row(path)
    return "Its rows have input, output and score." if {"input", "output"} <= names.keys() else ""


def _recognise_completions(path: Path) -> str:
    is_parquet = _is_parquet(path)
    names = parquet.columns(path) if is_parquet else list(first_row(path))
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


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of parquet or JSON Lines."""
    return read_parquet(path, CheckLimits.max_rows) if _is_parquet(path) else read_json_lines(path)


def reading(take: Take) -> Callable[[Path, Notes], Iterator[Item]]:
    """What reads files of which each row gives the rollouts that ``take`` finds in it."""

    def read(path: Path, notes: Notes) -> Iterator[Item]:
        for row in rows_of(path):
            try:
                if row.value is None:
                    raise BadRow(row.reason)
                for value in take(row.value, notes):
                    yield Item(row.line, row.offset, placed(value, notes))
            except BadRow as exc:
                yield Item(row.line, row.offset, reason=exc.sentence)

    return read


def looking(place: Callable[[dict[str, Any], Notes], Iterable[Place]]) -> Callable[[Path, Notes], None]:
    """The first look of such a reader: how many rollouts each prompt has in each step. ``place`` gives step and key of
    each rollout of a row."""

    def look(path: Path, notes: Notes) -> None:
        for row in rows_of(path):
            try:
                notes.shared.groups.update(place(row.value or {}, Notes(notes.name)))
            except BadRow:
                continue

    return look


def _dump_places(row: dict[str, Any], notes: Notes) -> Iterator[Place]:
    yield row_step(row, notes), group_key(row, str(row.get("input")))


def _dumped(row: dict[str, Any], notes: Notes) -> Iterator[Sampled]:
    """A row of verl's. ``score`` is its reward, every other number a part that the reward function returned."""
    prompt, output = row.get("input"), row.get("output")
    if not isinstance(prompt, str) or not isinstance(output, str):
        raise BadRow(_("`input` or `output` is not text"))
    messages, length, marks = split_texts(prompt, output)
    split, whole = _("Texts were split into turns at the markers of {marks}."), _("Texts contain no turn markers.")
    notes.say(sentence(split, marks=sentence(marks)) if marks else sentence(whole))
    taken = {"input", "output", "score", "step", *GROUP_KEYS} | ({"reward"} if "score" not in row else set())
    ((step, key),) = _dump_places(row, notes)
    yield Sampled(
        step=step,
        key=key,
        messages=messages,
        prompt=length,
        reward=known(number_of(row.get("score", row.get("reward")))),
        parts=parts_of(row, taken | expected_in(row), notes),
        expected=expected_of(row),
    )


def _completions(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The completions of a row: one of TRL's, or as many of ms-swift's as its columns are long."""
    prompt, completion = row.get("prompt"), row.get("completion")
    if not isinstance(prompt, list) or not isinstance(completion, list) or not completion:
        return [row]
    size = len(completion)
    if len(prompt) != size or not all(isinstance(text, str) for text in completion):
        return [row]
    listed = {name for name, value in row.items() if isinstance(value, list) and len(value) == size}
    return [{name: value[at] if name in listed else value for name, value in row.items()} for at in range(size)]


def _completion_places(row: dict[str, Any], notes: Notes) -> Iterator[Place]:
    for each in _completions(row):
        prompt = json.dumps(each.get("prompt"), ensure_ascii=False, sort_keys=True, default=str)
        yield row_step(each, notes), group_key(each, prompt)


def _completed(row: dict[str, Any], notes: Notes) -> Iterator[Sampled]:
    """A row of TRL's, ms-swift's or verifiers'."""
    found = _completions(row)
    if found != [row]:
        notes.tool = "ms-swift"
    for each, (step, key) in zip(found, _completion_places(row, notes), strict=True):
        yield _completion(each, step, key, notes)


def _completion(row: dict[str, Any], step: int, key: str, notes: Notes) -> Sampled:
    """One completion. Where no reward is recorded, the parts are summed with the run's weights, or with 1."""
    prompt, completion = row.get("prompt"), row.get("completion")
    if isinstance(prompt, str) and isinstance(completion, str):
        messages, length, _marks = split_texts(prompt, completion)
    else:
        begun = messages_of(prompt, "user")
        messages, length = [*begun, *messages_of(completion, "assistant")], len(begun)
    parts = parts_of(row, {*_NO_PARTS, *STEP_KEYS, *GROUP_KEYS} | expected_in(row), notes)
    if "example_id" in row and "reward" in row:
        notes.tool = "verifiers"
    return Sampled(
        step=step,
        key=key,
        messages=messages,
        prompt=length,
        reward=known(number_of(row.get("reward"))) if "reward" in row else _summed(parts, notes),
        parts=parts,
        advantage=known(number_of(row.get("advantage", row.get("advantages")))),
        summed="reward" not in row,
        expected=expected_of(row),
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


def row_step(row: dict[str, Any], notes: Notes, *, default: int | None = None) -> int:
    """The row's step, or the number in the file's name, or ``default``. Raises ``BadRow``."""
    named = next((row[name] for name in STEP_KEYS if row.get(name) is not None), None)
    if named is not None:
        return step_of(named)
    if {"completion", "reward"} <= row.keys():  # an evaluation's
        default = FIRST
    name = notes.name.rsplit("/", 1)[-1]
    found = _STEP_IN_NAME.search(name) if default is None else _STEP_AT_END.search(name.partition(".")[0])
    if found is not None:
        return step_of(found[1])
    if default is None:
        raise BadRow(_("it has no step number, and neither has the file's name"))
    notes.say(sentence(_("Its rollouts name no step: they are those of step {step}."), step=default))
    return default


def expected_in(row: dict[str, Any]) -> set[str]:
    """The column of the answer that was wanted, and those of its names that are empty."""
    return {_expected(row)} | {name for name in EXPECTED if row.get(name) in _EMPTY}


def _expected(row: dict[str, Any]) -> str:
    return next((name for name in EXPECTED if row.get(name) not in _EMPTY), "")


def expected_of(row: dict[str, Any]) -> str:
    """The answer that was wanted, as text; empty where none is told."""
    found = row.get(_expected(row), "")
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return text[:MAX_EXPECTED_CHARS]


def parts_of(row: dict[str, Any], taken: set[str], notes: Notes) -> dict[str, float | None]:
    """Numbers by name; a column of anything else is named as left out."""
    parts: dict[str, float | None] = {}
    for name, value in row.items():
        if name in taken:
            continue
        if name.lower().endswith(_NUMBERS) and isinstance(value, int):
            notes.left_out.setdefault(name[:120], _("it is a number for counting, not a figure"))
        elif value is None or isinstance(value, bool | int | float):
            if len(parts) < MAX_PARTS:
                parts[name[:120]] = known(number_of(value))
        else:
            notes.left_out.setdefault(name[:120], _("it holds texts or lists, which a rollout cannot store"))
    return {name: value for name, value in parts.items() if name[:120] not in notes.left_out}


DUMP_READER = Reader(
    "verl_rollouts",
    _("recorded rollouts"),
    "verl",
    "`{step}.jsonl` of `trainer.rollout_data_dir`: `input` and `output` become turns, `score` the reward, `gts` the "
    "expected answer, every other number a part of it. Rollouts of a step with the same input (or `uid`) are a group.",
    _recognise_dump,
    reading(_dumped),
    looking(_dump_places),
)
COMPLETIONS_READER = Reader(
    "trl_completions",
    _("completions"),
    "TRL",
    "`completions_*.parquet` (or its rows as JSON Lines): prompts and completions are texts or message lists, every "
    "number a reward function's, their sum the reward, `advantage` as it stands. ms-swift's `completions.jsonl`, a row "
    "a step, and verifiers' `results.jsonl` are read too.",
    _recognise_completions,
    reading(_completed),
    looking(_completion_places),
)
