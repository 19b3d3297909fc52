"""The tools environment: one episode is a question, some tool calls and a final answer."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from envs.base import EnvironmentRefusal, ToolEnvironment
from envs.base.rows import check_lengths, read_row
from envs.tools.calculator import Language
from envs.tools.tasks import Difficulty, clock_for, draw_task
from envs.tools.tools import TOOL_NAMES, Context, error_text, run_tool, tool_schemas
from envs.wire import Message, Observation, StepRequest, ToolCall

# Whether a final answer solves its task: numbers by value, text by content, and no credit for guessing.

MAX_FINAL_LENGTH = 400
# Numbers in an answer that neither the conversation, a tool nor the gold knows. A few are working; many are guesses.
MAX_UNSUPPORTED_NUMBERS = 3

_NUMBER = re.compile(r"(?<![0-9.])-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?(?![0-9])")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-"})
# Unicode's stream-safe limit (UAX #15). Python sorts a run of combining marks by insertion, so that 60,000 of them
# take seconds; no language writes more than a handful.
MAX_MARKS = 30
_LAST_MARK = 0x20000
_MARKS = re.compile(
    f"[{''.join(chr(code) for code in range(_LAST_MARK) if unicodedata.combining(chr(code)))}]{{{MAX_MARKS + 1},}}"
)


class Answer(BaseModel):
    """The environment's own truth in a dataset row."""

    model_config = ConfigDict(extra="ignore")

    contains: list[str] = Field(default_factory=list, max_length=32)
    tools: list[str] = Field(default_factory=list, max_length=32)

    @field_validator("contains", mode="before")
    @classmethod
    def _numbers_as_text(cls, value: Any) -> Any:
        values = value if isinstance(value, list) else [value]
        return [str(item) if isinstance(item, int | float) else item for item in values]


def normalise(text: str) -> str:
    """Half-width, lower case, without thousands separators."""
    if not text.isascii():
        bounded = _MARKS.sub(lambda run: run[0][:MAX_MARKS], text)
        text = unicodedata.normalize("NFKC", bounded).translate(_MINUS)
    return _THOUSANDS.sub("", text.casefold())


def numbers(text: str) -> list[float]:
    """Every number in a text, by value."""
    return [float(found) for found in _NUMBER.findall(normalise(text))]


def holds(text: str, needle: str) -> bool:
    """Whether ``text`` states ``needle``: as a whole number of that value, or as a phrase."""
    wanted = normalise(needle).strip()
    if not wanted:
        return True
    if _NUMBER.fullmatch(wanted):
        return _among(float(wanted), numbers(text))
    # "14:05" must not be found in "114:05" or "14:056".
    head = r"(?<![0-9])" if wanted[0].isdigit() else ""
    tail = r"(?![0-9])" if wanted[-1].isdigit() else ""
    return re.search(head + re.escape(wanted) + tail, normalise(text)) is not None


def score(final: str, answer: Answer, *, called: Collection[str], supported: Iterable[float]) -> float:
    """1.0 when the answer states everything asked for and the tools were used, else 0.0."""
    if not final.strip() or len(final) > MAX_FINAL_LENGTH:
        return 0.0
    if not all(tool in called for tool in answer.tools):
        return 0.0
    if not all(holds(final, needle) for needle in answer.contains):
        return 0.0
    known = [*supported, *(value for needle in answer.contains for value in numbers(needle))]
    unsupported = {value for value in numbers(final) if not _among(value, known)}
    return 0.0 if len(unsupported) > MAX_UNSUPPORTED_NUMBERS else 1.0


def _among(value: float, values: Iterable[float]) -> bool:
    return any(math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12) for other in values)


MAX_TURNS = 12
MAX_CALLS_PER_TURN = 3
MAX_ANSWERED_CALLS = 16
MAX_MESSAGES = 200
MAX_CONTENT_LENGTH = 65536
MAX_NAME_LENGTH = 64
MAX_ERROR_LENGTH = 200
FIRST_YEAR, LAST_YEAR = 1970, 2100
SUCCESS = "task_success"


class TaskRow(BaseModel):
    """A dataset row as this environment reads it; other columns are left alone.

    Its messages are under ``conversation`` in files of people and under ``messages`` in checked datasets.
    """

    model_config = ConfigDict(extra="ignore")

    conversation: list[Message] | None = Field(
        default=None, max_length=MAX_MESSAGES, validation_alias=AliasChoices("conversation", "messages")
    )
    answer: Answer | None = None
    language: Language | Literal["both"] | None = None
    difficulty: Difficulty = "easy"
    clock: datetime | None = None

    @field_validator("conversation", mode="before")
    @classmethod
    def _old_roles(cls, value: Any) -> Any:
        """Older data calls the role of a tool message ``tool_result``."""
        if not isinstance(value, list):
            return value
        return [
            {**item, "role": "tool"} if isinstance(item, dict) and item.get("role") == "tool_result" else item
            for item in value
        ]

    @field_validator("clock")
    @classmethod
    def _clock_in_range(cls, value: datetime | None) -> datetime | None:
        """In UTC where the row names no zone: the server's own zone must not matter."""
        if value is None:
            return None
        if not FIRST_YEAR <= value.year <= LAST_YEAR:
            raise ValueError(f"must lie between {FIRST_YEAR} and {LAST_YEAR}")
        return value if value.tzinfo else value.replace(tzinfo=UTC)


@dataclass
class Episode:
    """The state of one episode."""

    context: Context
    answer: Answer | None
    supported: set[float]
    called: set[str] = field(default_factory=set)
    turn: int = 0
    tool_errors: int = 0


class ToolsEnvironment(ToolEnvironment):
    """Answers calls of the four tools and knows whether the final answer is right."""

    def __init__(self) -> None:
        self._episode: Episode | None = None

    def reset(self, task: dict[str, Any], seed: int, episode_id: str) -> Observation:
        """Open the conversation of the row; without one, a task is drawn by seed."""
        row = _read_row(task)
        if not row.conversation:
            row = _read_row(draw_task(seed, row.language or "en", row.difficulty).row)
        conversation = row.conversation or []
        language = row.language if row.language in ("en", "zh") else _language_of(conversation)
        now = (row.clock or clock_for(seed)).astimezone(UTC)
        supported = {value for message in conversation for value in numbers(message.content)}
        self._episode = Episode(Context(language, now), row.answer, supported)
        return Observation(messages=conversation, tools=tool_schemas(language), info={"turn": 0, "language": language})

    def step(self, request: StepRequest) -> Observation:
        """Play one turn: calls are answered, a turn without any is the final answer."""
        episode = self._episode
        if episode is None:
            raise EnvironmentRefusal("No episode is open: send reset first.")
        episode.turn += 1
        if not request.tool_calls and request.parse_error is None:
            return self._finish(episode, request.message)
        messages = self._answer_calls(episode, request.tool_calls)
        if request.parse_error is not None:
            messages.append(self._parse_error(episode, request.parse_error))
        if episode.turn >= MAX_TURNS:
            return self._observe(episode, messages, reward=None if episode.answer is None else 0.0, truncated=True)
        return Observation(messages=messages, info={"turn": episode.turn, "tool_errors": episode.tool_errors})

    def _answer_calls(self, episode: Episode, calls: list[ToolCall]) -> list[Message]:
        messages = []
        for number, call in enumerate(calls[:MAX_ANSWERED_CALLS]):
            if number < MAX_CALLS_PER_TURN:
                text = self._call(episode, call)
            else:
                text = self._error(
                    episode,
                    f"at most {MAX_CALLS_PER_TURN} tool calls a turn are answered",
                    f"每轮最多执行 {MAX_CALLS_PER_TURN} 次工具调用",
                )
            name, call_id = call.name[:MAX_NAME_LENGTH], call.id[:MAX_NAME_LENGTH]
            messages.append(Message(role="tool", content=text, tool_call_id=call_id, name=name))
        return messages

    def _call(self, episode: Episode, call: ToolCall) -> str:
        result = run_tool(call.name, call.arguments, episode.context)
        if not result.ok:
            episode.tool_errors += 1
            return result.text
        episode.called.add(call.name)
        # What the policy wrote into a call and got back as an echo is not knowledge.
        echoed = {value for text in call.arguments.values() if isinstance(text, str) for value in numbers(text)}
        episode.supported |= set(numbers(result.text)) - echoed
        return result.text

    def _parse_error(self, episode: Episode, what: str) -> Message:
        shown = " ".join(what.split())[:MAX_ERROR_LENGTH]
        text = self._error(episode, f"the tool call could not be read: {shown}", f"无法读取工具调用: {shown}")
        return Message(role="tool", content=text)

    def _error(self, episode: Episode, en: str, zh: str) -> str:
        episode.tool_errors += 1
        return error_text(episode.context.language, en, zh)

    def _finish(self, episode: Episode, final: str) -> Observation:
        reward = None
        if episode.answer is not None:
            reward = score(final, episode.answer, called=episode.called, supported=episode.supported)
        return self._observe(episode, [], reward=reward)

    def _observe(
        self, episode: Episode, messages: list[Message], *, reward: float | None, truncated: bool = False
    ) -> Observation:
        """The last observation of an episode."""
        self._episode = None
        info: dict[str, Any] = {"turn": episode.turn, "tool_errors": episode.tool_errors}
        if truncated:
            info["truncated"] = True
        parts = {} if reward is None else {SUCCESS: reward}
        return Observation(messages=messages, done=True, reward=reward, reward_parts=parts, info=info)


def _read_row(task: dict[str, Any]) -> TaskRow:
    row = read_row(TaskRow, task)
    check_lengths(row.conversation or [], MAX_CONTENT_LENGTH)
    unknown = [tool for tool in row.answer.tools if tool not in TOOL_NAMES] if row.answer else []
    if unknown:
        raise EnvironmentRefusal(
            f"The task cannot be played: answer.tools names {unknown[0][:MAX_NAME_LENGTH]!r}; "
            f"this environment has {', '.join(TOOL_NAMES)}."
        )
    return row


def _language_of(conversation: list[Message]) -> Language:
    """Chinese as soon as the last user turn holds a Chinese character."""
    last = next((message.content for message in reversed(conversation) if message.role == "user"), "")
    return "zh" if any("\u4e00" <= character <= "\u9fff" for character in last) else "en"
