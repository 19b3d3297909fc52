"""The free sessions of an environment now, over all replicas that answer, and how many more could be started."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from training.errors import TiltyardError
from webapp.environments.checks import Answer, Server, ask, require_identity
from webapp.environments.models import MAX_REPLICAS, Environment
from webapp.environments.services import server_of

ASK_LIMIT_S = 8.0


class Room(NamedTuple):
    """Sums over the replicas that answer; ``None`` where one of them does not say. ``problem`` is the first failure."""

    answering: int
    asked: int
    slots: int | None
    free: int | None
    problem: TiltyardError | None


def room_of(environment: Environment) -> Room:
    """Ask every replica at once. Takes as long as the slowest, at most ``ASK_LIMIT_S``."""
    servers = [server_of(environment, url) for url in environment.addresses()]
    if not servers:
        return Room(0, 0, None, None, None)
    with ThreadPoolExecutor(len(servers), thread_name_prefix="room") as pool:
        outcomes = list(pool.map(lambda server: _ask_server(server, environment.server_name), servers))
    answers = [item for item in outcomes if isinstance(item, Answer)]
    problem = next((item for item in outcomes if isinstance(item, TiltyardError)), None)
    return Room(
        len(answers),
        len(servers),
        _sum_if_known([item.slots for item in answers]),
        _sum_if_known([item.free for item in answers]),
        problem,
    )


def _ask_server(server: Server, wanted: str) -> Answer | TiltyardError:
    try:
        answer = ask(server, total_s=ASK_LIMIT_S)
        require_identity(answer, wanted)
    except TiltyardError as exc:
        return exc
    return answer


def _sum_if_known(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def replicas_to_add(environment: Environment, room: Room, needed: int) -> int:
    """How many more replicas would make enough room; 0 when we do not start this environment or may not."""
    missing = needed - (room.free or 0)
    if not environment.launched or missing <= 0:
        return 0
    # Wanted replicas that do not answer yet count as starting.
    coming = max(0, environment.wanted - room.answering)
    more = math.ceil(missing / environment.slots) - coming
    return max(0, min(more, MAX_REPLICAS - environment.wanted))
