"""Published code of other projects, imported from where the operator put it; nothing of it is ours or kept here."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_LISTED = 5


class Skipped(Exception):
    """A system that cannot be measured here; the text says what is missing."""


@dataclass
class Tally:
    """How often two sides were compared and where they differed."""

    compared: int = 0
    differing: int = 0
    examples: list[Any] = field(default_factory=list)

    def add(self, equal: bool, example: Any) -> None:
        """Note one comparison; the first few that differ are kept."""
        self.compared += 1
        if not equal:
            self.differing += 1
            if len(self.examples) < MAX_LISTED:
                self.examples.append(example)

    def report(self, **more: Any) -> dict[str, Any]:
        """As printed."""
        found = {"compared": self.compared, "differing": self.differing, **more}
        return {**found, "examples": self.examples} if self.examples else found


def folder(root: Path | None, *parts: str) -> Path:
    """A folder below ``root``; ``Skipped`` where it is not."""
    if root is None:
        raise Skipped("its folder was not named; see --upstream and --data")
    path = root.joinpath(*parts)
    if not path.exists():
        raise Skipped(f"{'/'.join(parts)} is not in {root}")
    return path


@contextlib.contextmanager
def importable(path: Path, **stubs: dict[str, Any]) -> Iterator[None]:
    """Put ``path`` first on ``sys.path`` for a while; ``stubs`` are modules (``a__b`` is ``a.b``) that stand in."""
    made = {name.replace("__", "."): _module(name, members) for name, members in stubs.items()}
    before = {name: sys.modules.get(name) for name in made}
    sys.path.insert(0, str(path))
    sys.modules.update(made)
    try:
        yield
    except ImportError as error:
        raise Skipped(f"{error.name} cannot be imported; install it and try again") from error
    finally:
        sys.path.remove(str(path))
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


def _module(name: str, members: dict[str, Any]) -> types.ModuleType:
    module = types.ModuleType(name.replace("__", "."))
    module.__path__ = []
    vars(module).update(members)
    return module


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Upstream prints a line for each request."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


@contextlib.contextmanager
def inside(path: Path) -> Iterator[None]:
    """Upstream reads its settings from the working folder."""
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)
