"""The options in which several runs differ, by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from webapp.evaluation.comparison.contestants import Contestant
from webapp.runs.config import flat, plain


class OptionRow(NamedTuple):
    """An option that is not the same for all; a value for each contestant, marked where it is not the first one's."""

    path: str
    values: list[tuple[str, bool]]
    names: list[str]

    @property
    def cells(self) -> list[tuple[str, str, bool]]:
        """Each value with the name of the contestant that has it."""
        return [(name, *value) for name, value in zip(self.names, self.values, strict=True)]


class OptionGroup(NamedTuple):
    """Options of one group of the config."""

    name: str
    rows: list[OptionRow]


def differing(contestants: Sequence[Contestant]) -> list[OptionGroup]:
    """What differs, as people wrote it: references, not what they meant."""
    configs = [flat(item.run.config) for item in contestants]
    paths = list(dict.fromkeys(path for config in configs for path in config))
    names = [item.run.name for item in contestants]
    groups: dict[str, list[OptionRow]] = {}
    for path in paths:
        values = [config.get(path) for config in configs]
        if any(value != values[0] for value in values):
            row = OptionRow(path, [(plain(value), value != values[0]) for value in values], names)
            groups.setdefault(path.partition(".")[0], []).append(row)
    return [OptionGroup(name, rows) for name, rows in groups.items()]
