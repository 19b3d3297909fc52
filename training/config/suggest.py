"""The option that a person may have meant by a name that is none."""

from __future__ import annotations

import functools
from collections.abc import Collection
from difflib import get_close_matches

from pydantic import BaseModel

from training.config.job import JobConfig

ALIKE = 0.7


def nearest_option(path: str, allowed: Collection[str] | None = None) -> str:
    """The one of the ``allowed`` (all options and groups, unless given) that is most like an unknown dotted path; empty
    where none is like it.

    An option under the wrong group or under none is the one of the same name, where only one group has it.
    """
    if path.count(".") > 1:  # within a stage or a part, which may not have every option
        return ""
    known = _paths() if allowed is None else tuple(allowed)
    name = path.rpartition(".")[2]
    same = [each for each in known if each.rpartition(".")[2] == name and each != path]
    if len(same) == 1:
        return same[0]
    found = get_close_matches(path, known, n=1, cutoff=ALIKE)
    return found[0] if found else _nearest_name(name, known)


def _nearest_name(name: str, known: Collection[str]) -> str:
    """The only option whose own name is most like this one, in whatever group."""
    names = {each.rpartition(".")[2] for each in known}
    found = get_close_matches(name, names, n=1, cutoff=ALIKE)
    same = [each for each in known if found and each.rpartition(".")[2] == found[0]]
    return same[0] if len(same) == 1 else ""


@functools.cache
def _paths() -> tuple[str, ...]:
    """All groups, and all options with theirs."""
    found = []
    for name, info in JobConfig.model_fields.items():
        found.append(name)
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            found += [f"{name}.{key}" for key in info.annotation.model_fields]
    return tuple(found)
