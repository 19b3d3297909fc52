"""Seeded queries about our own world, each with a chain of calls and the values that a good answer states."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count as count_from
from typing import Any

from envs.toolbench.documents import Api
from envs.toolbench.schemas import FINISH, GIVE_ANSWER
from envs.toolbench.tasks import Gold, PlannedCall, Task, TaskSet
from envs.toolbench.world import APIS, KINDS, YEARS, Kind

# Ids are indices; any further one would do as well.
COUNT = 1_000_000
MIN_APIS, MAX_APIS = 4, 8
STARTER_KINDS = KINDS[:2]
_OPENERS = (
    "Please find out {}.",
    "I need to know {}.",
    "Tell me {}, please.",
    "For my notes: {}?",
    "Could you look up {}?",
)


class _Draft:
    """A task being put together."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.wishes: list[str] = []
        self.found: list[str] = []
        self.apis: list[Api] = []
        self.gold: list[Gold] = []
        self.plan: list[PlannedCall] = []

    def call(self, api: Api, arguments: dict[str, Any], value: object, *, asked: bool = True) -> None:
        """Add a call that yields ``value``."""
        self.apis.append(api)
        self.plan.append(PlannedCall(api.name.function, arguments))
        self.gold.append(Gold(api.name.function, str(value), asked))

    def wish(self, what: str, value: object) -> None:
        """Add something to the query, and its part of the answer."""
        self.wishes.append(what)
        self.found.append(f"{what} is {value}")

    def task(self, index: int) -> Task:
        """The task: its APIs hidden among others."""
        query = self.rng.choice(_OPENERS).format(" and ".join(self.wishes))
        answer = f"I found this: {'; '.join(self.found)}."
        return Task(index, query, self._among_others(), tuple(self.gold), tuple(self.plan), answer)

    def _among_others(self) -> tuple[Api, ...]:
        needed = {api.name: api for api in self.apis}
        others = [api for apis in APIS.values() for api in apis if api.name not in needed]
        count = max(self.rng.randint(MIN_APIS, MAX_APIS) - len(needed), 1)
        chosen = [*needed.values(), *self.rng.sample(others, count)]
        self.rng.shuffle(chosen)
        return tuple(chosen)


def _current(draft: _Draft, kind: Kind, name: str) -> None:
    value = kind.value(kind.now, name)
    draft.wish(f"the {kind.now.phrase} of {name}", value)
    draft.call(APIS[kind.tool].current, {kind.name_argument: name}, value)


def _found(draft: _Draft, kind: Kind, name: str) -> dict[str, str]:
    """Look up the id that the other APIs want."""
    thing_id = kind.id_of(name)
    draft.call(APIS[kind.tool].find, {kind.name_argument: name}, thing_id, asked=False)
    return {kind.id_argument: thing_id}


def _details(draft: _Draft, kind: Kind, name: str) -> None:
    measure = draft.rng.choice(kind.details)
    value = kind.value(measure, name)
    draft.wish(f"the {measure.phrase} of {name}", value)
    draft.call(APIS[kind.tool].details, _found(draft, kind, name), value)


def _by_year(draft: _Draft, kind: Kind, name: str) -> None:
    year = draft.rng.choice(YEARS)
    value = kind.value(kind.yearly, name, year)
    draft.wish(f"the {kind.yearly.phrase} of {name} in {year}", value)
    draft.call(APIS[kind.tool].by_year, {**_found(draft, kind, name), "year": year}, value)


def _journey(draft: _Draft, kind: Kind, name: str) -> None:
    """From a thing to its city, and to another tool."""
    weather = KINDS[0]
    if not kind.in_city:
        return _by_year(draft, kind, name)
    city = kind.city_of(name)
    value = weather.value(weather.now, city)
    draft.wish(f"the {weather.now.phrase} of the city where the {kind.noun} {name} is", value)
    draft.call(APIS[kind.tool].find, {kind.name_argument: name}, city, asked=False)
    return draft.call(APIS[weather.tool].current, {weather.name_argument: city}, value)


_Part = Callable[[_Draft, Kind, str], None]
_PLANS: tuple[tuple[_Part, ...], ...] = (
    *((_current,), (_details,), (_by_year,), (_journey,)),
    *((_current, _current), (_current, _details), (_current, _by_year)),
)


def draw_task(index: int) -> Task:
    """Query number ``index``, the same in every process."""
    rng, parts, kinds = _opened(index)
    draft = _Draft(rng)
    for part, kind in zip(parts, kinds, strict=True):
        part(draft, kind, rng.choice(kind.names))
    return draft.task(index)


def _opened(index: int) -> tuple[random.Random, tuple[_Part, ...], list[Kind]]:
    """What is drawn first of a query: its parts, and the tool of each."""
    rng = random.Random(f"toolbench-world:{index}")  # noqa: S311 - reproducible on purpose
    parts = rng.choice(_PLANS)
    return rng, parts, rng.sample(KINDS, len(parts))


def starter_indices(start: int, step: int = 1) -> Iterator[int]:
    """The indices, from ``start`` on or down, of queries that a model of a million parameters learns within minutes:
    one call of two tools answers them, and they come with few APIs."""
    return (index for index in count_from(start, step) if _is_starter(index % COUNT))


def _is_starter(index: int) -> bool:
    _rng, parts, kinds = _opened(index)
    return parts == (_current,) and kinds[0] in STARTER_KINDS and len(draw_task(index).apis) <= MIN_APIS


class WorldTasks(TaskSet):
    """The queries about our own world."""

    name = "world-1"

    def __len__(self) -> int:
        return COUNT

    def at(self, index: int) -> Task:
        return draw_task(index)

    def by_id(self, query_id: int) -> Task | None:
        return draw_task(query_id) if 0 <= query_id < COUNT else None


def gold_calls(task: Task) -> Iterator[PlannedCall]:
    """The gold solution, with the Finish that ends it."""
    yield from task.plan
    yield PlannedCall(FINISH, {"return_type": GIVE_ANSWER, "final_answer": task.answer})
