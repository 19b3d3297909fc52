"""Everything that can be called: documents from queries and from a tools folder, and the recorded responses."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from envs.base import SettingsError
from envs.base.logs import log
from envs.toolbench.cache import ResponseCache, Responses, indexed
from envs.toolbench.documents import Api, ApiName, ToolDocument, change_name, standardize

MAX_TOOL_FILE_BYTES = 8 * 1024 * 1024
MAX_KEPT_TOOLS = 4096


class Library:
    """Documents and responses, shared by all sessions. ``closed`` means that what is not recorded does not exist."""

    def __init__(
        self,
        *,
        tools: Path | None = None,
        cache: Path | None = None,
        recorded: Mapping[ApiName, Mapping[str, Any]] | None = None,
        closed: bool = False,
    ) -> None:
        for option, folder in (("--tools", tools), ("--cache", cache)):
            if folder is not None and not folder.is_dir():
                raise SettingsError(f"{option} {folder} is not a folder.")
        self.closed = closed
        self._tools = tools.resolve() if tools is not None else None
        self._cache = ResponseCache(cache)
        self._recorded = {name: indexed(records) for name, records in (recorded or {}).items()}
        self._listed: dict[ApiName, Api] = {}
        self._apis_of: dict[tuple[str, str], dict[str, Api]] = {}
        self._read: OrderedDict[tuple[str, str], dict[str, Api]] = OrderedDict()

    def add(self, apis: Iterable[Api]) -> None:
        """Make APIs known that a query lists. The first document of a name stays, unless only a later has a shape."""
        for api in apis:
            before = self._listed.get(api.name)
            if before is None or (before.document.template_response is None and api.document.template_response):
                self._listed[api.name] = api
                self._apis_of.setdefault(api.name[:2], {})[api.name.api] = api

    def find(self, name: ApiName) -> Api | None:
        """The API, also by a name that the limit of function names has cut."""
        listed = self._listed.get(name)
        if listed is not None:
            return listed
        apis = self._tool(name)
        if name.api in apis:
            return apis[name.api]
        known = (*self._apis_of.get(name[:2], {}).values(), *apis.values())
        # What is left of a cut name was standardised once more on its way here.
        wanted = standardize(name.function)
        return next((api for api in known if standardize(api.name.function) == wanted), None)

    def described(self, api: Api) -> Api:
        """The API with what its tool's document says of the tool; query files leave that out."""
        documented = next(iter(self._tool(api.name).values()), None)
        if api.tool_description or documented is None:
            return api
        return replace(api, tool_description=documented.tool_description)

    def api_names(self, name: ApiName) -> list[str]:
        """The standardised names of the tool's APIs, in the order of its document."""
        return list(self._tool(name) or self._apis_of.get(name[:2], {}))

    def recorded(self, name: ApiName) -> Responses | None:
        """The recorded responses of an API; ``None`` where ``load`` must read them first."""
        own = self._recorded.get(name)
        return own if own is not None else self._cache.quick(name)

    async def load(self, name: ApiName) -> Responses:
        """The recorded responses of an API."""
        found = self.recorded(name)
        return found if found is not None else await self._cache.load(name)

    def _tool(self, name: ApiName) -> dict[str, Api]:
        """The APIs in a tool's document, by name; read when first asked for."""
        if self._tools is None or not name.is_safe:
            return {}
        key = name[:2]
        if key not in self._read:
            self._read[key] = _read_tool(self._tools, name)
            if len(self._read) > MAX_KEPT_TOOLS:
                self._read.popitem(last=False)
        self._read.move_to_end(key)
        return self._read[key]


def _read_tool(root: Path, name: ApiName) -> dict[str, Api]:
    """One file of the tools folder; nothing where there is none, or it leaves the folder, or cannot be read."""
    try:
        path = (root / name.category / f"{name.tool}.json").resolve(strict=True)
        if not path.is_relative_to(root) or path.stat().st_size > MAX_TOOL_FILE_BYTES:
            log(logging.WARNING, "tools.file_refused")
            return {}
        document = ToolDocument.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, RuntimeError):
        return {}
    except (ValueError, ValidationError, RecursionError) as error:
        log(logging.ERROR, "tools.file_unreadable", tool=name.tool, error=type(error).__name__)
        return {}
    apis: dict[str, Api] = {}
    for item in document.api_list:
        api = change_name(standardize(item.name))
        full = ApiName(name.category, name.tool, api)
        apis.setdefault(api, Api(full, item, document.tool_description))
    return apis
