"""The shared parts of a server's sessions: the answerer and the queries, from data files or from our own world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from envs.base import SettingsError
from envs.toolbench.answers import Answerer, Dialect
from envs.toolbench.endpoint import Endpoint, EndpointSettings
from envs.toolbench.library import Library
from envs.toolbench.tasks import QueryFiles, TaskSet
from envs.toolbench.world import WorldTasks, world_library


@dataclass(frozen=True)
class Data:
    """Where ToolBench's files are. With none of them the server plays our own world."""

    tools: Path | None = None
    cache: Path | None = None
    queries: Sequence[Path] = ()
    query_ids: Path | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is given."""
        return self.tools is None and self.cache is None and not self.queries


class Bench(NamedTuple):
    """An answerer and a task set, and the data that both were read from."""

    answerer: Answerer
    tasks: TaskSet
    data: Data


def open_bench(
    data: Data | None = None, endpoint: EndpointSettings | None = None, dialect: Dialect = "stabletoolbench"
) -> Bench:
    """Read the data; raises ``SettingsError`` for what cannot be used."""
    data = data or Data()
    if data.query_ids is not None and not data.queries:
        raise SettingsError("--query-ids chooses from --queries, and there are none.")
    asked = Endpoint(endpoint) if endpoint is not None else None
    if data.is_empty:
        return Bench(Answerer(world_library(), asked, dialect), WorldTasks(), data)
    library = Library(tools=data.tools, cache=data.cache)
    return Bench(Answerer(library, asked, dialect), QueryFiles(data.queries, library, data.query_ids), data)
