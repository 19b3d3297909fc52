"""Tasks: what the user asks, with which APIs, what the answer must hold; and the query files that hold them."""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    TypeAdapter,
    ValidationError,
)

from envs.base import EnvironmentRefusal, SettingsError
from envs.base import rows as base_rows
from envs.toolbench.documents import FINISH_SCHEMA, Api, ListedApi, function_schema
from envs.toolbench.library import Library
from envs.wire import Message

# Tasks: what the user asks, with which APIs, and, where it is known, what the answer must hold.

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
    """One query. ``gold`` is empty where the answer is unknown; only the query and its APIs are ever shown."""

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


# Query files: lists of ``{"query_id", "query", "api_list", ...}``, and files that choose some of their ids.


class _Query(BaseModel):
    model_config = ConfigDict(extra="ignore")

    query_id: int | None = None
    query: str
    api_list: list[ListedApi]


_QUERIES = TypeAdapter(list[_Query])


class QueryFiles(TaskSet):
    """The queries of some files, in their order. Of two with one id the first is kept."""

    def __init__(self, files: Sequence[Path], library: Library, ids: Path | None = None) -> None:
        self.name = "+".join(path.stem for path in files) or "none"
        wanted = _read_ids(ids) if ids is not None else None
        self._tasks: dict[int, Task] = {}
        for path in files:
            for number, query in enumerate(_read_queries(path)):
                # As upstream: a query without an id goes by its place in the file.
                query_id = number if query.query_id is None else query.query_id
                if wanted is None or query_id in wanted:
                    apis = tuple(item.as_api() for item in query.api_list)
                    library.add(apis)
                    self._tasks.setdefault(query_id, Task(query_id, query.query, apis))
        self._ordered = list(self._tasks.values())
        if files and not self._ordered:
            raise SettingsError("--queries and --query-ids leave no query to play.")

    def __len__(self) -> int:
        return len(self._ordered)

    def at(self, index: int) -> Task:
        return self._ordered[index]

    def by_id(self, query_id: int) -> Task | None:
        return self._tasks.get(query_id)


def _read_queries(path: Path) -> list[_Query]:
    try:
        return _QUERIES.validate_python(_read_json(path))
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise SettingsError(f"{path} is not a list of queries: {where}: {fault['msg']}.") from None


def _read_ids(path: Path) -> set[int]:
    """A list of ids, or upstream's object whose keys they are."""
    value = _read_json(path)
    try:
        return {int(item) for item in value}
    except (TypeError, ValueError):
        raise SettingsError(f"{path} is not a list or object of query ids.") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path} cannot be read as JSON: {type(error).__name__}.") from None
