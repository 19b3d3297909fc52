"""Making a rollout set: episodes go to disk as they come, only their numbers stay in memory."""

from __future__ import annotations

import json
import os
import re
import uuid
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from envs.wire import Message
from training.config import RewardComponent
from training.errors import DataError
from training.rewards.base import Episode
from training.rewards.bfcl import codes_of, from_codes
from training.rewards.lab.table import (
    COLUMNS_NAME,
    EPISODES_NAME,
    META_NAME,
    PART_PREFIX,
    ROWS_NAME,
    STATUSES,
    component_key,
)
from training.rows import categories_of
from training.words import _

# What the alarms ask of an episode besides its reward: how long it is, what it repeats, whether it was cut.

CHARS_PER_TOKEN = 4.0
"""How long a token is taken to be where they were not counted."""
MAX_ACTION_CHARS = 4000
_BEGINS = re.compile(r"<tool_call>|Action:|(?:search|click)\[")
_WHOLE = re.compile(r"\s*\[\w+\(.*\)\]\s*", re.DOTALL)


class Behaviour(NamedTuple):
    """``length`` in tokens; ``repeats`` of the ``actions`` are the same one; ``cut``: ended before the task did."""

    length: float
    actions: int
    repeats: int
    cut: bool


def behaviour_of(episode: Episode) -> Behaviour:
    """The facts of one episode."""
    seen = Counter(action for turn in episode.policy_messages for action in _actions(turn))
    return Behaviour(_length(episode), seen.total(), max(seen.values(), default=0), is_cut(episode))


def is_cut(episode: Episode) -> bool:
    """Whether the episode ended before its task did: out of budget, or with turns of the task never reached."""
    if episode.truncated:
        return True
    parts = episode.env_parts
    if "progress_reached" not in parts and isinstance(episode.row.get("user_turn_rewards"), list):
        truth = episode.row.get("ground_truth")
        parts = from_codes(codes_of(episode), len(truth) if isinstance(truth, list) else None)
    reached, whole = parts.get("progress_reached"), parts.get("progress_all")
    return reached is not None and whole is not None and reached > whole + 1e-9


def _length(episode: Episode) -> float:
    if episode.tokens:
        return float(episode.tokens)
    return sum(len(turn.content) + _arguments(turn) for turn in episode.policy_messages) / CHARS_PER_TOKEN


def _arguments(turn: Message) -> int:
    return sum(len(call.name) + len(json.dumps(call.arguments)) for call in turn.tool_calls or [])


def _actions(turn: Message) -> Iterator[str]:
    """The calls of a turn, also those in its text."""
    if turn.tool_calls:
        for call in turn.tool_calls:
            yield f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"[:MAX_ACTION_CHARS]
        return
    text = _without_thoughts(turn.content[: 2 * MAX_ACTION_CHARS])
    yield from (piece.strip()[:MAX_ACTION_CHARS] for piece in _written(text))


def _without_thoughts(text: str) -> str:
    """The text without its closed ``<think>`` parts; each character is looked at once, whatever is written."""
    kept, at = [], 0
    while (begin := text.find("<think>", at)) >= 0 and (end := text.find("</think>", begin)) >= 0:
        kept.append(text[at:begin])
        at = end + len("</think>")
    return "".join([*kept, text[at:]])


def _written(text: str) -> Iterator[str]:
    """Calls in the three ways of writing them: tags, Action and Action Input, ``search[…]``; or one list of calls."""
    if _WHOLE.fullmatch(text):
        yield text
        return
    ends, at = _Ends(text), 0
    while (found := _BEGINS.search(text, at)) is not None:
        begin, at = found.span()
        if found[0] == "Action:":
            if ends.after("Action Input:", at) >= 0:
                yield text[begin:]
                return
        elif (end := ends.after("</tool_call>", at) if found[0] == "<tool_call>" else ends.in_line("]", at)) >= 0:
            yield text[begin:end]
            at = end


class _Ends:
    """Where the next end of something is. Places are asked for in rising order, so each is looked for once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next: dict[str, int] = {}

    def after(self, mark: str, at: int) -> int:
        """The place behind the next ``mark`` from ``at`` on, or -1."""
        known = self._next.get(mark, 0)
        if known >= 0 and known - len(mark) < at:
            place = self._text.find(mark, at)
            known = self._next[mark] = place + len(mark) if place >= 0 else -1
        return known

    def in_line(self, mark: str, at: int) -> int:
        """The same, unless the line ends before it."""
        end, line = self.after(mark, at), self.after("\n", at)
        return end if line < 0 or end < line else -1


MAX_ROLLOUTS = 200_000
MAX_SET_BYTES = 8 << 30
MAX_TASK_CHARS = 200
MAX_KINDS = 1000
"""Most different policies and sentences of errors; what comes after them is not distinguished."""
MAX_PARTS = 100
UNSEEN = Behaviour(0.0, 0, 0, False)


@dataclass(frozen=True)
class Recorded:
    """What is known of a rollout besides its episode. ``error`` says why it was excluded outside the policy;
    ``turn_rewards`` are the environment's rewards so far at the reset and after each turn, where they were recorded."""

    id: uuid.UUID
    step: int = 0
    group: int = 0
    index: int = 0
    policy: str = ""
    status: str = "completed"
    reward: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    error: str = ""
    task: str = ""
    row: int | None = None
    turn_rewards: Sequence[float | None] | None = None


class _Kinds:
    """Numbers of texts that recur, in the order in which they were first seen."""

    def __init__(self, limit: int = MAX_KINDS) -> None:
        self.numbers: dict[str, int] = {}
        self._limit = limit

    def number(self, text: str) -> int:
        if text not in self.numbers and len(self.numbers) >= self._limit:
            text = "…"
        return self.numbers.setdefault(text, len(self.numbers))


class SetWriter:
    """Writes a set into a folder. Rollouts must come by step, group and index; leaving without ``finish`` keeps nothing
    that ``table_load`` would take for a set."""

    def __init__(self, folder: Path, components: list[RewardComponent] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._components = components or []
        self._episodes = open(folder / EPISODES_NAME, "wb", opener=_private)  # noqa: SIM115 - closed on leaving
        self._rows = open(folder / ROWS_NAME, "wb", opener=_private)  # noqa: SIM115
        self._numbers = {name: array(kind) for name, kind in _KINDS.items()}
        self._ids, self._tasks = bytearray(), bytearray()
        self._parts: dict[str, array[float]] = {}
        self._policies, self._categories, self._errors = _Kinds(), _Kinds(MAX_ROLLOUTS), _Kinds()
        self._places: dict[int, int] = {}
        self._last: tuple[int, int] | None = None
        self.rollouts = self.groups = 0

    def __enter__(self) -> SetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._episodes.close()
        self._rows.close()

    def add(self, record: Recorded, episode: Episode | None) -> None:
        """One more rollout; ``None`` where no turn was ever answered, so that there is nothing to score."""
        if self.rollouts >= MAX_ROLLOUTS or self._episodes.tell() + self._rows.tell() > MAX_SET_BYTES:
            raise DataError(
                f"A rollout set holds at most {MAX_ROLLOUTS:,} rollouts and {MAX_SET_BYTES >> 30} GB.",
                hint="Choose fewer steps.",
            )
        if self._last != (record.step, record.group):
            self._last = (record.step, record.group)
            self._numbers["starts"].append(self.rollouts)
            self._tasks += record.task[:MAX_TASK_CHARS].encode("utf-8", "replace")
            self._numbers["task_ends"].append(len(self._tasks))
            self.groups += 1
        self._ids += record.id.bytes
        self._note(record, episode, UNSEEN if episode is None else behaviour_of(episode))
        self._store(record, episode or Episode([], 0))
        self.rollouts += 1

    def _note(self, record: Recorded, episode: Episode | None, seen: Behaviour) -> None:
        row = episode.row if episode else {}
        excluded = episode is None or bool(record.error)
        categories = json.dumps(sorted(categories_of(row)), ensure_ascii=False)
        reason = record.error or ("" if episode else _("The environment did not answer."))
        values: dict[str, float | int | None] = {
            "step": record.step,
            "group": record.group,
            "index": record.index,
            "status": STATUSES.index(record.status),
            "excluded": excluded,
            "cut": seen.cut,
            "error": self._errors.number(reason) if excluded else -1,
            "policy": self._policies.number(record.policy),
            "category": self._categories.number(categories),
            "length": seen.length,
            "actions": seen.actions,
            "repeats": seen.repeats,
            "reward": record.reward,
            "env_reward": episode.env_reward if episode else None,
            "env_success": episode.env_parts.get("task_success") if episode else None,
        }
        for name, value in values.items():
            self._numbers[name].append(np.nan if value is None else value)
        rewards = record.turn_rewards or ()
        self._numbers["said"].extend(np.nan if value is None else value for value in rewards)
        self._numbers["said_ends"].append(len(self._numbers["said"]))
        for name in record.parts:
            if name not in self._parts and len(self._parts) < MAX_PARTS:
                self._parts[name] = array("d", [np.nan]) * self.rollouts
        for name, column in self._parts.items():
            column.append(float(record.parts.get(name, np.nan)))

    def _store(self, record: Recorded, episode: Episode) -> None:
        self._numbers["row"].append(self._row(record, episode.row))
        self._numbers["offsets"].append(self._episodes.tell())
        self._episodes.write(
            _json_line(
                {
                    "messages": [message.model_dump(exclude_none=True) for message in episode.messages],
                    "prompt_length": episode.prompt_length,
                    "env_reward": episode.env_reward,
                    "env_parts": episode.env_parts,
                    "parse_errors": episode.parse_errors,
                    "truncated": episode.truncated,
                    "tokens": episode.tokens,
                }
            )
        )

    def _row(self, record: Recorded, row: dict[str, Any]) -> int:
        """The number of the row's line; rollouts of one place in the dataset share it."""
        if not row:
            return -1
        number = len(self._numbers["row_offsets"])
        if record.row is not None:
            known = self._places.setdefault(record.row, number)
            if known != number:
                return known
        self._numbers["row_offsets"].append(self._rows.tell())
        self._rows.write(_json_line(row))
        return number

    def finish(self) -> None:
        """Write the columns: from now on the folder is a set. Raises ``DataError`` for an empty one."""
        if not self.rollouts:
            raise DataError("There is no finished rollout to make a set of.", hint="Choose other steps.")
        for name, end in (
            ("starts", self.rollouts),
            ("offsets", self._episodes.tell()),
            ("row_offsets", self._rows.tell()),
        ):
            self._numbers[name].append(end)
        self._episodes.flush()
        self._rows.flush()
        columns = {name: np.asarray(values, _TYPES[name]) for name, values in self._numbers.items()}
        columns["ids"] = np.frombuffer(bytes(self._ids), np.uint8).reshape(-1, 16)
        columns["tasks"] = np.frombuffer(bytes(self._tasks), np.uint8)
        columns |= {PART_PREFIX + name: np.asarray(values) for name, values in self._parts.items()}
        meta = {
            "parts": list(self._parts),
            "policies": list(self._policies.numbers),
            "errors": list(self._errors.numbers),
            "categories": [json.loads(text) for text in self._categories.numbers],
            "recorded": {component_key(item): item.name for item in self._components if item.name in self._parts},
            "functions": {item.name: item.registered for item in self._components if item.name in self._parts},
        }
        (self._folder / META_NAME).write_text(json.dumps(meta, ensure_ascii=False), "utf-8")
        with open(self._folder / COLUMNS_NAME, "wb", opener=_private) as file:
            np.savez(file, **columns)  # type: ignore[arg-type]


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("step", "group", "index", "error", "policy", "category", "actions", "repeats", "row"), np.int32),
    **dict.fromkeys(("starts", "offsets", "row_offsets", "task_ends", "said_ends"), np.int64),
    **dict.fromkeys(("length", "reward", "env_reward", "env_success", "said"), np.float64),
    "status": np.uint8,
    "excluded": np.bool_,
    "cut": np.bool_,
}
_CODES = {np.int32: "i", np.int64: "q", np.float64: "d", np.uint8: "B", np.bool_: "B"}
_KINDS: dict[str, Any] = {name: _CODES[kind] for name, kind in _TYPES.items()}


def _json_line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def message_head(messages: list[Message]) -> str:
    """What a prompt asks, as the name of its group."""
    return next((item.content for item in reversed(messages) if item.role == "user"), "")[:MAX_TASK_CHARS]
