"""Recorded responses: files ``<Category>/<tool>_for_<Category>/<api>.json``, read when first asked for, never written.

Upstream rewrites a whole file for each new response, which loses some under concurrency; here a cache is what it is.
Everything runs on the event loop except the parsing of large files.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envs.base.logs import log
from envs.toolbench.documents import ApiName
from envs.toolbench.values import ValueFault, canonical, parse_key

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
