"""Everything that can be called: documents from queries and from a tools folder, and the recorded responses."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from envs.base import SettingsError
from envs.base.settings import log
from envs.toolbench.documents import Api, ApiName, ToolDocument, change_name, standardize
from envs.toolbench.values import ValueFault, canonical, parse_key

# Recorded responses: files ``<Category>/<tool>_for_<Category>/<api>.json``, read when first asked for, never written.
#
# Upstream rewrites a whole file for each new response, which loses some under concurrency; here a cache is what it is.
# Everything runs on the event loop except the parsing of large files.

# Of JSON text kept parsed, which takes three to five times that in memory.
MAX_KEPT_BYTES = 64 * 1024 * 1024
MAX_FILE_BYTES = 32 * 1024 * 1024
# Up to here a file is parsed in less time than a thread costs.
MAX_INLINE_BYTES = 128 * 1024
# What an API without a file weighs: names asked for in vain must not fill the memory either.
MISSING_WEIGHT = 1024

Responses = Mapping[str, Any]
NOTHING: Responses = {}


def indexed(records: Mapping[str, Any]) -> dict[str, Any]:
    """Records by their own key, which upstream compares, and by the canonical form of its arguments."""
    index: dict[str, Any] = {}
    for key, response in records.items():
        try:
            index.setdefault(_canonical_key(canonical(parse_key(key))), response)
        except ValueFault:
            log(logging.WARNING, "cache.key_skipped", length=len(key))
    index.update(records)
    return index


def find_response(responses: Responses, arguments: dict[str, Any], text: str) -> Any:
    """The response to ``arguments``, whose canonical form is ``text``; ``None`` where there is none."""
    if not responses:
        return None
    exact = responses.get(str(arguments))
    return exact if exact is not None else responses.get(_canonical_key(text))


def _canonical_key(text: str) -> str:
    """Apart from the keys of files, which are objects in braces."""
    return f"={text}"


class ResponseCache:
    """The cache folder, with the parsed files that were used last."""

    def __init__(self, root: Path | None, *, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._root = root.resolve() if root is not None else None
        self._max_kept_bytes = max_kept_bytes
        self._kept: OrderedDict[ApiName, tuple[Responses, int]] = OrderedDict()
        self._kept_bytes = 0

    def quick(self, name: ApiName) -> Responses | None:
        """An API's responses; ``None`` where a large file must be read first: see ``load``."""
        if self._root is None:
            return NOTHING
        kept = self._kept.get(name)
        if kept is not None:
            self._kept.move_to_end(name)
            return kept[0]
        path, size = self._file(name)
        if path is not None and size > MAX_INLINE_BYTES:
            return None
        return self._keep(name, _read(path) if path is not None else NOTHING, size)

    async def load(self, name: ApiName) -> Responses:
        """As ``quick``, for files of every size."""
        path, size = self._file(name)
        return self._keep(name, await asyncio.to_thread(_read, path) if path is not None else NOTHING, size)

    def _file(self, name: ApiName) -> tuple[Path | None, int]:
        """The file and its size in bytes. It lies inside the root whatever the name and links say."""
        if self._root is None or not name.is_safe:
            return None, MISSING_WEIGHT
        path = self._root / name.category / f"{name.tool}_for_{name.category}" / f"{name.api}.json"
        try:
            resolved = path.resolve(strict=True)
            size = resolved.stat().st_size
        except (OSError, RuntimeError, ValueError):
            return None, MISSING_WEIGHT
        if not resolved.is_relative_to(self._root) or size > MAX_FILE_BYTES:
            log(logging.WARNING, "cache.file_refused", bytes=size)
            return None, MISSING_WEIGHT
        return resolved, size

    def _keep(self, name: ApiName, responses: Responses, size: int) -> Responses:
        weight = max(size, MISSING_WEIGHT)
        self._kept_bytes += weight - self._kept.get(name, (NOTHING, 0))[1]
        self._kept[name] = responses, weight
        while self._kept_bytes > self._max_kept_bytes and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1][1]
        return responses


def _read(path: Path) -> Responses:
    """A file's responses; a file that cannot be read has none and says so in the log."""
    try:
        # Python writes NaN, which no client can read: it is null here.
        records = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError, RecursionError) as error:
        log(logging.ERROR, "cache.file_unreadable", file=path.name, error=type(error).__name__)
        return NOTHING
    if not isinstance(records, dict):
        log(logging.ERROR, "cache.file_unreadable", file=path.name, error="not an object")
        return NOTHING
    return indexed(records)


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
