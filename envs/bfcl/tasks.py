"""Tasks: an entry of the installed data by its id, a row that carries one (verl's or BFCL's own form), or one by seed.

A row made for the other version of BFCL plays wrongly without any error (24 % of v4's entries do on v3's classes), so
it is refused. It is known by its ``bfcl_version`` tag, by function documents (``docs``) that differ from the installed
ones, or, without a tag, by a scenario or ground truth that differs from the installed entry of that id.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from envs.base import EnvironmentRefusal
from envs.base import rows as base_rows
from envs.bfcl.calls import MAX_NAME, Call, CallError, parse_call
from envs.bfcl.package import MODULES, SPLITS, Version, documents, entries, installed_version
from envs.wire import Message

MAX_TURNS = 32
MAX_TEXT = 262_144
REVEAL = "I have updated some more functions you can choose from. What about now?"


class TaskRow(BaseModel):
    """A task as clients send it; other columns are left alone."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    id: str | None = Field(default=None, max_length=200)
    split: str | None = None
    bfcl_version: str | None = None
    docs: list[dict[str, Any]] | None = None
    messages: list[Message] | None = Field(default=None, validation_alias=AliasChoices("messages", "conversation"))
    initial_config: str | dict[str, Any] | None = None
    involved_classes: list[str] | None = None
    ground_truth: list[list[str]] | None = None
    processed_question: list[str] | None = None
    question: list[list[Message]] | None = None
    missed_function: dict[str, list[str]] | None = None
    speech: Literal["native", "text"] | None = None
    errors: Literal["standard", "augmented"] | None = None
    compat: bool | None = None


@dataclass(frozen=True)
class Turn:
    """One request of the user, the calls that solve it, and the functions that it makes known."""

    text: str
    truth: tuple[Call, ...]
    revealed: tuple[str, ...] = ()

    @property
    def native_text(self) -> str:
        """Without the documents: native calls get them as tools."""
        return REVEAL if self.revealed else self.text


@dataclass(frozen=True)
class Task:
    """One entry, ready to be played. ``configs`` is JSON by class, so that every instance gets its own copy."""

    id: str
    configs: dict[str, str]
    classes: tuple[str, ...]
    turns: tuple[Turn, ...]

    @property
    def long_context(self) -> bool:
        """Whether BFCL fills the scenario with clutter."""
        return "long_context" in self.id or "composite" in self.id

    def documents(self, turn: int) -> list[dict[str, Any]]:
        """The documents of the functions that are known in a turn: all but those revealed later."""
        hidden = {name for later in self.turns[turn + 1 :] for name in later.revealed}
        return [row for name, row in _all_documents(self.classes).items() if name not in hidden]


def read_row(task: dict[str, Any]) -> TaskRow:
    """Check a task's form. A whole verl row is fine: its kwargs are under ``extra_info.interaction_kwargs``."""
    extra = task.get("extra_info")
    kwargs = extra.get("interaction_kwargs") if isinstance(extra, dict) else task.get("interaction_kwargs")
    return base_rows.read_row(TaskRow, {**task, **kwargs} if isinstance(kwargs, dict) else task)


def resolve(row: TaskRow, seed: int) -> Task:
    """The task of a row, or ``EnvironmentRefusal``."""
    _check_version(row)
    entry = entries().get(row.id or "")
    if row.initial_config is None and row.ground_truth is None:
        if row.id is not None and entry is None:
            raise base_rows.refusal(f"BFCL {installed_version()} has no entry {row.id[:MAX_NAME]!r}")
        return _of_entry((entry or draw(seed, row.split))["id"])
    if entry is not None and row.bfcl_version is None:
        _check_same(row, entry)
    return _build(_completed(row, entry))


def draw(seed: int, split: str | None = None) -> dict[str, Any]:
    """An entry by seed, from one split or from all."""
    # A dataset's own split ("train") is no split of BFCL.
    rows = [row for row in entries().values() if split not in SPLITS or split == row["split"]]
    return random.Random(f"bfcl:{seed}").choice(rows)  # noqa: S311 - reproducible on purpose, guards nothing


def _check_version(row: TaskRow) -> None:
    installed: Version = installed_version()
    if row.bfcl_version is not None and row.bfcl_version.lower().lstrip("v") != installed[1:]:
        raise base_rows.refusal(
            f"it was made for BFCL {row.bfcl_version[:MAX_NAME]} and this server has {installed}; the two do not mix"
        )
    for document in row.docs or []:
        known = [documents(name).get(str(document.get("name"))) for name in MODULES]
        if document not in known:
            raise base_rows.refusal(
                f"its document of {str(document.get('name'))[:MAX_NAME]!r} is not the one of BFCL {installed}, "
                "which this server has; versions do not mix"
            )


def _check_same(row: TaskRow, entry: dict[str, Any]) -> None:
    config = row.initial_config if row.initial_config is not None else entry["initial_config"]
    same_config = (_config(config) if isinstance(config, str) else config) == entry["initial_config"]
    if not same_config or row.ground_truth not in (None, entry["ground_truth"]):
        raise base_rows.refusal(
            f"its scenario or ground truth is not the one of {entry['id']} in BFCL {installed_version()}; "
            'if the row was made for this version, say so with "bfcl_version"'
        )


def _completed(row: TaskRow, entry: dict[str, Any] | None) -> TaskRow:
    """What the row leaves out is taken from the entry of its id."""
    needed = ("id", "initial_config", "involved_classes", "ground_truth", "question")
    missing = [name for name in needed if getattr(row, name) is None and (entry is None or name not in entry)]
    if missing:
        raise base_rows.refusal(f"it has no {missing[0]}")
    if entry is None:
        return row
    given = row.model_dump(exclude_none=True)
    return TaskRow.model_validate({**entry, **given})


@cache
def _of_entry(name: str) -> Task:
    """Built once: a task is never changed, and calls copy their arguments."""
    return _build(TaskRow.model_validate(entries()[name]))


def _build(row: TaskRow) -> Task:
    classes = tuple(row.involved_classes or ())
    unknown = [name for name in classes if name not in MODULES]
    if unknown or not classes:
        raise base_rows.refusal(
            f"involved_classes names {unknown[0][:MAX_NAME]!r}" if unknown else "it involves no class"
        )
    config = _config(row.initial_config or {})
    texts, truths = _texts(row, classes), row.ground_truth or []
    if not 1 <= len(texts) <= MAX_TURNS or len(texts) != len(truths):
        raise base_rows.refusal(
            f"it has {len(texts)} turns and ground truth for {len(truths)}; up to {MAX_TURNS} are played"
        )
    turns = [Turn(text, _calls(calls), revealed) for (text, revealed), calls in zip(texts, truths, strict=True)]
    configs = {name: json.dumps(config.get(name, {})) for name in classes}
    return Task(row.id or "", configs, classes, tuple(turns))


def _config(value: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise base_rows.refusal("initial_config is not JSON") from None
    if not isinstance(value, dict):
        raise base_rows.refusal("initial_config is not an object")
    return value


def _calls(texts: list[str]) -> tuple[Call, ...]:
    try:
        return tuple(parse_call(text) for text in texts)
    except CallError as error:
        raise EnvironmentRefusal(f"The task cannot be played: in its ground truth, {error}") from None


def _all_documents(classes: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    return {name: row for kind in classes for name, row in documents(kind).items()}


def _texts(row: TaskRow, classes: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Each turn's text and the functions it reveals: a verl row says the later ones, a BFCL row none."""
    question = row.question or []
    if any(len(message.content) > MAX_TEXT for turn in question for message in turn):
        raise base_rows.refusal(f"a message is longer than {MAX_TEXT} characters")
    if row.processed_question is None:
        return [_text_of(row, number, turn, classes) for number, turn in enumerate(question)]
    first = question[0][0].content if question and question[0] else ""
    texts: list[tuple[str, tuple[str, ...]]] = [(first, ())]
    return texts + [(text, _revealed_in(text, classes)) for text in row.processed_question]


def _text_of(row: TaskRow, number: int, turn: list[Message], classes: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    if turn:
        return "\n".join(message.content for message in turn), ()
    names = tuple((row.missed_function or {}).get(str(number), ()))
    known = _all_documents(classes)
    if not names or any(name not in known for name in names):
        raise base_rows.refusal(f"turn {number} is empty and missed_function names none of its functions")
    return f"{json.dumps([known[name] for name in names])}\n{REVEAL}", names


def _revealed_in(text: str, classes: tuple[str, ...]) -> tuple[str, ...]:
    """The functions whose documents a reveal message carries."""
    if not text.startswith("[{") or not text.endswith(REVEAL):
        return ()
    try:
        shown, _ = json.JSONDecoder().raw_decode(text)
        names = tuple(item["name"] for item in shown)
    except (ValueError, RecursionError, TypeError, KeyError):
        raise base_rows.refusal("a message that reveals functions does not carry their documents") from None
    if any(name not in _all_documents(classes) for name in names):
        raise base_rows.refusal("a message reveals functions that its classes do not have")
    return names
