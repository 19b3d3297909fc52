"""What a task is made of: a question, the calls that solve it, and the answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from envs.tools.calculator import Language
from envs.tools.facts import City
from envs.tools.tools import Context, run_tool


@dataclass(frozen=True)
class PlannedCall:
    """A call of the gold solution. ``turn`` counts from 0; a call of turn 1 needs results of turn 0."""

    name: str
    arguments: dict[str, Any]
    turn: int = 0


@dataclass
class Task:
    """A dataset row with its gold solution; only ``row`` is ever shown to anyone."""

    question: str
    calls: list[PlannedCall]
    final: str
    contains: list[str]
    row: dict[str, Any] = field(default_factory=dict)

    @property
    def turns(self) -> list[list[PlannedCall]]:
        """The calls by turn, in order."""
        return [list(calls) for _turn, calls in groupby(self.calls, key=lambda call: call.turn)]


@dataclass(frozen=True)
class Draw:
    """What a template needs: randomness, language, and the clock of the episode."""

    rng: random.Random
    language: Language
    now: datetime

    def say(self, en: str, zh: str) -> str:
        return zh if self.language == "zh" else en

    def city(self, city: City) -> str:
        return city.zh if self.language == "zh" else city.en

    def result(self, call: PlannedCall) -> str:
        return run_tool(call.name, call.arguments, Context(self.language, self.now)).text
