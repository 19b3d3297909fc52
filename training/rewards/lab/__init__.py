"""The effect of a reward on a frozen set of rollouts, computed for all of them at once.

A set is a folder (``writing`` makes it, ``table`` reads it): episodes and rows as JSON lines, and columns of numbers.
``table`` also keeps the raw values of components, so that moved weights never score again; ``scoring`` computes what is
missing. ``figures`` repeats the arithmetic of ``training/rewards/combining.py`` on whole columns, and ``alarms`` say
what comes of it. NaN in a column is a missing value, which is never 0.
"""

from __future__ import annotations

from training.rewards.lab.alarms import Alarm, alarms_of, phantom_of
from training.rewards.lab.figures import (
    Outcome,
    Scored,
    Statistics,
    advantages,
    counted,
    group_of,
    number,
    outcome_of,
    ranks,
    scored,
    statistics,
    turn_report,
    worth_of,
)
from training.rewards.lab.rules import ALARMS, DEGENERATE, RIGHT, SILENT
from training.rewards.lab.scoring import ASK, asks_others, is_asked, wanted
from training.rewards.lab.table import (
    COLUMNS_NAME,
    EPISODES_NAME,
    KNOWN,
    META_NAME,
    ROWS_NAME,
    STATUSES,
    UNKNOWN,
    Bools,
    Column,
    Floats,
    Ints,
    Longs,
    Table,
    column_of,
    column_save,
    component_key,
    episode_at,
    table_load,
)
from training.rewards.lab.writing import MAX_ROLLOUTS, Recorded, SetWriter, message_head

__all__ = [
    "ALARMS",
    "ASK",
    "COLUMNS_NAME",
    "DEGENERATE",
    "EPISODES_NAME",
    "KNOWN",
    "MAX_ROLLOUTS",
    "META_NAME",
    "RIGHT",
    "ROWS_NAME",
    "SILENT",
    "STATUSES",
    "UNKNOWN",
    "Alarm",
    "Bools",
    "Column",
    "Floats",
    "Ints",
    "Longs",
    "Outcome",
    "Recorded",
    "Scored",
    "SetWriter",
    "Statistics",
    "Table",
    "advantages",
    "alarms_of",
    "asks_others",
    "column_of",
    "column_save",
    "component_key",
    "counted",
    "episode_at",
    "group_of",
    "is_asked",
    "message_head",
    "number",
    "outcome_of",
    "phantom_of",
    "ranks",
    "scored",
    "statistics",
    "table_load",
    "turn_report",
    "wanted",
    "worth_of",
]
