"""Changes to modules of verl, made once a module has been loaded: no file of verl is edited."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

_changes: defaultdict[str, list[Callable[[Any], None]]] = defaultdict(list)


class _Finder(importlib.abc.MetaPathFinder):
    """Calls the functions of a module once it has been loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if name not in _changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            for change in _changes[name]:
                change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def change_after(changes: Mapping[str, Callable[[Any], None]]) -> None:
    """Call each function with the module of its name, once that has been loaded."""
    if not _changes:
        sys.meta_path.insert(0, _Finder())
    for name, change in changes.items():
        _changes[name].append(change)
