"""Tasks: what the user asks, with which APIs, and, where it is known, what the answer must hold."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt

from envs.base import EnvironmentRefusal
from envs.base import rows as base_rows
from envs.toolbench.documents import Api, ListedApi
from envs.toolbench.library import Library
from envs.toolbench.schemas import FINISH_SCHEMA, function_schema
from envs.wire import Message

MAX_MESSAGES = 200
MAX_CONTENT_LENGTH = 65_536
MAX_APIS = 64
MAX_QUERY_LENGTH = 16_384

Speech = Literal["native", "text"]
Difficulty = Literal["full", "starter"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)


@dataclass(frozen=True, slots=True)
class Gold:
    """A value that a call of ``function`` returns. ``asked`` values belong into the answer, others lead to them."""

    function: str
    value: str
    asked: bool


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of the gold solution."""

    function: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One query. ``gold`` is empty where nobody knows the answer; only the query and its APIs are ever shown."""

    query_id: int | None
    query: str
    apis: tuple[Api, ...]
    gold: tuple[Gold, ...] = ()
    plan: tuple[PlannedCall, ...] = ()
    answer: str = ""

    @cached_property
    def by_function(self) -> dict[str, Api]:
        """The APIs by their function; of two with one name the first is called, as upstream does it."""
        found: dict[str, Api] = {}
        for api in self.apis:
            found.setdefault(api.name.function, api)
        return found

    @cached_property
    def tools(self) -> list[dict[str, Any]]:
        """The function schemas, and Finish."""
        return [*(function_schema(api) for api in self.by_function.values()), FINISH_SCHEMA]


class TaskSet(ABC):
    """The queries of a server. ``name`` goes into rows, so that a server with other queries refuses them."""

    name: str

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def at(self, index: int) -> Task:
        """The query at an index from 0."""

    @abstractmethod
    def by_id(self, query_id: int) -> Task | None:
        """The query with this id."""

    def drawn(self, seed: int) -> Task:
        """A query by seed."""
        return self.at(random.Random(f"toolbench-task:{seed}").randrange(len(self)))  # noqa: S311 - reproducible


def _prompt(value: Any) -> Any:
    """Some rows have their prompt as text."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class TaskRow(BaseModel):
    """A dataset row as this environment reads it; other columns are left alone."""

    model_config = ConfigDict(extra="ignore")

    query_id: StrictInt | None = None
    index: StrictInt | None = None
    task_set: str | None = None
    query: str | None = Field(default=None, min_length=1, max_length=MAX_QUERY_LENGTH)
    api_list: list[ListedApi] | None = Field(default=None, max_length=MAX_APIS)
    speech: Speech | None = None
    conversation: Annotated[list[Message] | None, BeforeValidator(_prompt)] = Field(
        default=None, max_length=MAX_MESSAGES, validation_alias=AliasChoices("conversation", "messages", "prompt")
    )


def read_row(task: dict[str, Any]) -> TaskRow:
    """Check a row; raises ``EnvironmentRefusal`` with a sentence about the first fault."""
    row = base_rows.read_row(TaskRow, task)
    base_rows.check_lengths(row.conversation or [], MAX_CONTENT_LENGTH)
    return row


def resolve(row: TaskRow, seed: int, tasks: TaskSet, library: Library) -> Task:
    """The task that a row carries or names; without either, one by seed. Raises ``EnvironmentRefusal``."""
    if row.query is not None:
        return Task(row.query_id, row.query, tuple(_api(item, library) for item in row.api_list or ()))
    if row.task_set is not None and row.task_set != tasks.name:
        raise base_rows.refusal(f"it belongs to the queries {row.task_set[:64]!r}, and this server has {tasks.name!r}")
    if not len(tasks):
        raise EnvironmentRefusal("This server has no queries: start it with --queries, or send query and api_list.")
    if row.query_id is not None:
        task = tasks.by_id(row.query_id)
        if task is None:
            raise base_rows.refusal("this server has no query of this query_id")
        return task
    if row.index is not None:
        if not 0 <= row.index < len(tasks):
            raise base_rows.refusal(f"index must be between 0 and {len(tasks) - 1}")
        return tasks.at(row.index)
    return tasks.drawn(seed)


def _api(item: ListedApi, library: Library) -> Api:
    """An API of a row; one that is only named gets its document from the server."""
    named_only = not item.model_fields_set & {"required_parameters", "optional_parameters", "description"}
    known = library.find(item.full_name)
    if named_only and known is None:
        raise base_rows.refusal("api_list names an API without parameters that this server has no document of")
    return known if named_only and known is not None else item.as_api()
