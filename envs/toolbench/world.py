"""A small world of our own to train on without any download: eight tools with four APIs each, all of it recorded.

Every tool knows twelve things of one kind, by name and by an id that has to be looked up first. A value is a pure
function of what it is about, so the world is the same in every process.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count as count_from
from typing import Any, NamedTuple

from envs.toolbench.documents import FINISH, GIVE_ANSWER, Api, ApiName, ListedApi
from envs.toolbench.library import Library
from envs.toolbench.tasks import Gold, PlannedCall, Task, TaskSet

YEARS = range(2020, 2024)


class Measure(NamedTuple):
    """A number that an API returns: its field, what it is called in a query, and its range."""

    field: str
    phrase: str
    low: int
    high: int


@dataclass(frozen=True)
class Kind:
    """One tool and the things that it knows. Those with ``in_city`` name a city of the weather tool."""

    category: str
    tool: str
    noun: str
    names: tuple[str, ...]
    now: Measure
    details: tuple[Measure, Measure]
    yearly: Measure
    in_city: bool = True

    @property
    def name_argument(self) -> str:
        return f"{self.noun}_name"

    @property
    def id_argument(self) -> str:
        return f"{self.noun}_id"

    def id_of(self, name: str) -> str:
        """The id that the tool's find API gives for a name."""
        return f"{self.noun[:2]}-{_number(f'{self.tool}:id:{name}', 10_000, 99_999)}"

    def value(self, measure: Measure, name: str, year: int | None = None) -> int:
        """The value that the tool's API returns: another for each year, and never a year itself."""
        return _number(f"{self.tool}:{measure.field}:{name}:{year}", measure.low, measure.high)

    def city_of(self, name: str) -> str:
        """Where the thing is."""
        return CITIES[_number(f"{self.tool}:city:{name}", 0, len(CITIES) - 1)]


def _number(what: str, low: int, high: int) -> int:
    digest = hashlib.sha256(f"toolbench-world:{what}".encode()).digest()
    return low + int.from_bytes(digest[:8], "big") % (high - low + 1)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


CITIES = _names(
    "Aldermere, Brightwater, Calder Bay, Dunhollow, Eastmoor, Fennwick, Glasshaven, Hollin Cross, Ivybridge Port, "
    "Juniper Falls, Kestrel Point, Lowmarket"
)
# No range reaches into the years, so that a year in an answer is never taken for a value.
KINDS = (
    Kind(
        *("Weather", "Sky Watch", "city", CITIES, Measure("humidity_index", "current humidity index", 100, 999)),
        (
            Measure("stations", "number of weather stations", 100, 900),
            Measure("altitude_cm", "altitude in cm", 3000, 90_000),
        ),
        *(Measure("sunny_hours", "hours of sunshine", 3000, 4300), False),
    ),
    Kind(
        *("Music", "Tune Ledger", "artist"),
        _names(
            "Amber Choir, Blue Lantern, Cinder Lake, Dust Parade, Echo Orchard, Faint Signals, Golden Ladder, "
            "Hush Hour, Ink Ribbon, Jade Engine, Kite Weather, Long Meadow"
        ),
        Measure("listeners", "current number of listeners", 10_000, 99_999),
        (Measure("songs", "number of songs", 100, 999), Measure("followers", "number of followers", 100_000, 999_999)),
        Measure("streams", "number of streams", 100_000, 999_999),
    ),
    Kind(
        *("Sports", "League Desk", "team"),
        _names(
            "Arrow Hawks, Boulder Rams, Coast Runners, Delta Foxes, Ember Bulls, Frost Owls, Granite Bears, "
            "Harbor Gulls, Iron Stags, Jet Herons, Keystone Lynx, Lake Otters"
        ),
        Measure("rating", "current rating", 100, 1900),
        (
            Measure("members", "number of club members", 3000, 99_999),
            Measure("stadium_seats", "number of seats", 3000, 89_999),
        ),
        Measure("points", "number of points", 100, 999),
    ),
    Kind(
        *("Business", "Firm Register", "company"),
        _names(
            "Acorn Freight, Birch Optics, Copper Mills, Dovetail Labs, Elm Robotics, Fable Paper, Gale Energy, "
            "Hearth Foods, Inlet Marine, Jasper Glass, Knoll Textiles, Lark Mobility"
        ),
        Measure("share_price_cents", "current share price in cents", 3000, 99_999),
        (Measure("employees", "number of employees", 3000, 49_999), Measure("offices", "number of offices", 100, 999)),
        Measure("revenue_thousands", "revenue in thousands", 10_000, 999_999),
    ),
    Kind(
        *("Food", "Table Guide", "restaurant"),
        _names(
            "Anchor Table, Basil and Rye, Cedar Spoon, Dill House, Elder Kitchen, Fig Corner, Ginger Yard, Honey Oven, "
            "Isle Grill, Juniper Cellar, Kale Room, Lemon Stair"
        ),
        Measure("waiting_seconds", "current waiting time in seconds", 100, 1900),
        (Measure("dishes", "number of dishes", 100, 400), Measure("reviews", "number of reviews", 3000, 29_999)),
        Measure("guests", "number of guests", 10_000, 99_999),
    ),
    Kind(
        *("Travel", "Gate Board", "airport"),
        _names(
            "Aster Field, Beacon Airport, Condor Field, Dawn Airport, Eyrie Field, Falcon Airport, Gannet Field, "
            "Heron Airport, Ibis Field, Jay Airport, Kite Field, Linnet Airport"
        ),
        Measure("delay_seconds", "current average delay in seconds", 100, 1900),
        (
            Measure("gates", "number of gates", 100, 300),
            Measure("runway_metres", "runway length in metres", 3000, 5000),
        ),
        Measure("passengers", "number of passengers", 100_000, 999_999),
    ),
    Kind(
        *("Movies", "Reel Index", "film"),
        _names(
            "A Quiet Ferry, Broken Compass, Chalk Summer, Distant Bells, Empty Harbor, Fifth Orchard, Glass Winter, "
            "Hidden Tram, Inland Sea, June Letters, Kind Strangers, Last Lighthouse"
        ),
        Measure("screens", "current number of screens", 100, 1900),
        (
            Measure("budget_thousands", "budget in thousands", 3000, 90_000),
            Measure("votes", "number of votes", 10_000, 99_999),
        ),
        Measure("tickets", "number of tickets sold", 100_000, 999_999),
    ),
    Kind(
        *("Logistics", "Depot Line", "depot"),
        _names(
            "Ash Depot, Bank Depot, Canal Depot, Dock Depot, East Depot, Ferry Depot, Grove Depot, Hill Depot, "
            "Inner Depot, Junction Depot, Kiln Depot, Lock Depot"
        ),
        Measure("queued_parcels", "current number of queued parcels", 3000, 99_999),
        (
            Measure("ramps", "number of ramps", 100, 400),
            Measure("area_m2", "floor area in square metres", 3000, 90_000),
        ),
        Measure("shipped_parcels", "number of shipped parcels", 100_000, 999_999),
    ),
)


class KindApis(NamedTuple):
    """The four APIs of a tool."""

    find: Api
    current: Api
    details: Api
    by_year: Api


def apis_of(kind: Kind) -> KindApis:
    """The documents, as upstream's query files have them."""
    noun, by_name, by_id = kind.noun, _text(kind.name_argument, kind.names[0]), _text(kind.id_argument, "")
    first, second = kind.details
    year = {"name": "year", "type": "NUMBER", "description": "One year only.", "default": YEARS[0]}
    found = {kind.id_argument: "str", **({"city_name": "str"} if kind.in_city else {})}
    return KindApis(
        _api(kind, f"Find {noun}", f"The id of a {noun}" + " and its city." * kind.in_city, by_name, None, found),
        _api(kind, f"Current {kind.now.field}", f"The {kind.now.phrase}.", by_name, None, {kind.now.field: "int"}),
        _api(
            *(kind, f"{noun} details", f"The {first.phrase} and the {second.phrase}.", by_id, None),
            {first.field: "int", second.field: "int"},
        ),
        _api(
            *(kind, f"{kind.yearly.field} by year", f"The {kind.yearly.phrase}, of one year or of all.", by_id, year),
            {kind.yearly.field: "int"},
        ),
    )


def _text(name: str, example: str) -> dict[str, Any]:
    return {"name": name, "type": "STRING", "description": "", "default": example}


def _api(
    kind: Kind, name: str, about: str, required: dict[str, Any], optional: dict[str, Any] | None, shape: dict[str, str]
) -> Api:
    listed = {"category_name": kind.category, "tool_name": kind.tool, "api_name": name, "api_description": about}
    parameters = {"required_parameters": [required], "optional_parameters": [optional] if optional else []}
    return ListedApi.model_validate({**listed, **parameters, "template_response": shape}).as_api()


APIS: dict[str, KindApis] = {kind.tool: apis_of(kind) for kind in KINDS}


def world_library() -> Library:
    """Every API and every response of the world. What is not recorded does not exist in it."""
    recorded: dict[ApiName, dict[str, Any]] = {}
    for name, arguments, response in _records():
        recorded.setdefault(name, {})[str(arguments)] = {"error": "", "response": response}
    library = Library(recorded=recorded, closed=True)
    library.add(api for apis in APIS.values() for api in apis)
    return library


def _records() -> Iterator[tuple[ApiName, dict[str, Any], dict[str, Any]]]:
    for kind in KINDS:
        apis = APIS[kind.tool]
        for name in kind.names:
            by_name, by_id = {kind.name_argument: name}, {kind.id_argument: kind.id_of(name)}
            city = {"city_name": kind.city_of(name)} if kind.in_city else {}
            yield apis.find.name, by_name, {**by_id, **city}
            yield apis.current.name, by_name, {kind.now.field: kind.value(kind.now, name)}
            yield apis.details.name, by_id, {item.field: kind.value(item, name) for item in kind.details}
            for year in (None, *YEARS):
                asked = by_id if year is None else {**by_id, "year": year}
                yield apis.by_year.name, asked, {kind.yearly.field: kind.value(kind.yearly, name, year)}


# --- World tasks ----------------------------------------------------------------------------------------------------
# Seeded queries about our own world, each with a chain of calls and the values that a good answer states.

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
