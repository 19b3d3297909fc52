"""Which figure says whether a rollout did its task: what all shaping is held against."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from training.rewards.lab.table import Floats, Table
from training.rewards.lab.terms import Scored
from training.rewards.verdict import ENVIRONMENT, OUTCOMES


class Outcome(NamedTuple):
    """Its name and its values."""

    name: str
    value: Floats


def outcome_of(table: Table, found: Scored) -> Outcome | None:
    """The spec's outcome, else the one that the run recorded, else the environment's own; ``None`` without any."""
    for function in OUTCOMES:
        for item in found.components:
            if item.registered == function and np.isfinite(found.parts[item.name]).any():
                return Outcome(item.name, found.parts[item.name])
    functions = {function: name for name, function in table.meta["functions"].items()}
    for function in OUTCOMES:
        name = functions.get(function)
        if name is not None and np.isfinite(table.parts[name]).any():
            return Outcome(name, table.parts[name])
    for value in (table.env_success, table.env_reward):
        if np.isfinite(value).any():
            # An episode that ran out before the verdict did not do its task.
            return Outcome(ENVIRONMENT, np.where(np.isnan(value) & table.cut, 0.0, value))
    return None
