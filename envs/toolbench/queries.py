"""Query files: lists of ``{"query_id", "query", "api_list", ...}``, and files that choose some of their ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from envs.base import SettingsError
from envs.toolbench.documents import ListedApi
from envs.toolbench.library import Library
from envs.toolbench.tasks import Task, TaskSet


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
