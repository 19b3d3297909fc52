"""The option that a person may have meant by a name that is none."""

from __future__ import annotations

import functools
from difflib import get_close_matches

from pydantic import BaseModel

from training.config.job import JobConfig

ALIKE = 0.7


def nearest_option(path: str) -> str:
    """The option or group that is most like an unknown dotted path; empty where none is like it.

    An option under the wrong group or under none is the one of the same name, where only one group has it.
    """
    if path.count(".") > 1:  # within a stage or a part, which may not have every option
        return ""
    name = path.rpartition(".")[2]
    same = [known for known in _paths() if known.rpartition(".")[2] == name and known != path]
    if len(same) == 1:
        return same[0]
    found = get_close_matches(path, _paths(), n=1, cutoff=ALIKE)
    return found[0] if found else _nearest_name(name)


def _nearest_name(name: str) -> str:
    """The only option whose own name is most like this one, in whatever group."""
    names = {known.rpartition(".")[2] for known in _paths()}
    found = get_close_matches(name, names, n=1, cutoff=ALIKE)
    same = [known for known in _paths() if found and known.rpartition(".")[2] == found[0]]
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
