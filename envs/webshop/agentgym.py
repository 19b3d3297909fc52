"""The HTTP routes that AgentGym's WebShop clients speak, on the same sessions and slots as ``/ws``.

Requests and answers are upstream's. New are ``/close``, which clients call and upstream lacks, and errors: 4xx with a
code and a sentence where upstream answers 500, and 503 when all slots are taken, which clients wait on and try again.
"""

from __future__ import annotations

import html
import json
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from envs.base.frames import describe, error_body
from envs.base.settings import MAX_FRAME_BYTES
from envs.webshop.session import Session, Shop, parse_action

# Who is in the shop: websocket sessions and AgentGym's share one number of slots.
#
# Websockets end by themselves (the guard watches them). An AgentGym environment has no connection that could break, so
# one that was not used for ``idle_s`` is given up; that is checked when it matters, without a timer.
# Everything here runs on the event loop: no two callers at once.

# Upstream draws its numbers from the same range. They are random so that a client that lost count hits no other's.
HIGHEST_ENV_IDX = 48_950_076


@dataclass
class Room:
    """One AgentGym environment."""

    session: Session
    resets: int = 0
    used_at: float = field(default_factory=time.monotonic)


class Rooms:
    """The slots of one server."""

    def __init__(self, slots: int, idle_s: float) -> None:
        self.slots = slots
        self._idle_s = idle_s
        self._sockets = 0
        self._rooms: dict[int, Room] = {}

    @property
    def taken(self) -> int:
        """Sessions of both kinds that are open now."""
        self._give_up_idle()
        return self._sockets + len(self._rooms)

    @property
    def numbers(self) -> list[int]:
        """The open AgentGym environments."""
        self._give_up_idle()
        return list(self._rooms)

    def enter_socket(self) -> bool:
        """Take a slot for a websocket; ``leave_socket`` gives it back. False when there is none."""
        if self.taken >= self.slots:
            return False
        self._sockets += 1
        return True

    def leave_socket(self) -> None:
        self._sockets -= 1

    def new_number(self) -> int | None:
        """A number that no environment has, or ``None`` when all slots are taken."""
        if self.taken >= self.slots:
            return None
        while (number := secrets.randbelow(HIGHEST_ENV_IDX + 1)) in self._rooms:
            pass
        return number

    def add(self, number: int, session: Session) -> None:
        self._rooms[number] = Room(session)

    def find(self, number: int) -> Room | None:
        """The environment, which is in use from now; ``None`` for one that is closed, idle for too long or unknown."""
        self._give_up_idle()
        room = self._rooms.get(number)
        if room is not None:
            room.used_at = time.monotonic()
        return room

    def close(self, number: int) -> bool:
        """Whether there was something to close."""
        self._give_up_idle()
        return self._rooms.pop(number, None) is not None

    def _give_up_idle(self) -> None:
        oldest = time.monotonic() - self._idle_s
        for number in [number for number, room in self._rooms.items() if room.used_at < oldest]:
            del self._rooms[number]


PATHS = frozenset(
    {
        *("/", "/list_envs", "/create", "/reset", "/step", "/close"),
        *("/available_actions", "/instruction_text", "/observation", "/state"),
    }
)
_NUMBER = TypeAdapter(int)


class AgentGymError(Exception):
    """A request that cannot be answered; its text is a sentence for the client."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class EnvBody(BaseModel):
    """The environment that a request is about. Numbers may be written as upstream reads them: ``"12"``, ``12.0``."""

    model_config = ConfigDict(extra="ignore")

    env_idx: int


class ResetBody(EnvBody):
    """Without ``session_id`` the visit is drawn by chance, as upstream does it."""

    session_id: int | None = None


class StepBody(EnvBody):
    """One action as text, ``search[...]`` or ``click[...]``."""

    action: str


Body = TypeVar("Body", bound=EnvBody)


class AgentGym:
    """The routes over one shop."""

    def __init__(self, shop: Shop, rooms: Rooms) -> None:
        self._shop = shop
        self._rooms = rooms

    def mount(self, app: FastAPI) -> None:
        """Add every route, and their errors in the project's shape."""
        gets = (self.list_envs, self.available_actions, self.instruction_text, self.observation, self.state)
        posts = (self.create, self.reset, self.step, self.close)
        app.add_route("/", _answering(self.root), methods=["GET"])
        for method, handlers in (("GET", gets), ("POST", posts)):
            for handler in handlers:
                app.add_route(f"/{handler.__name__}", _answering(handler), methods=[method])
        app.add_exception_handler(AgentGymError, _answer_error)
        app.add_exception_handler(HTTPException, _answer_error)

    async def root(self, request: Request) -> str:
        return "ok"

    async def list_envs(self, request: Request) -> list[int]:
        return self._rooms.numbers

    async def create(self, request: Request) -> int:
        """Open an environment on a visit that its number decides."""
        number = self._rooms.new_number()
        if number is None:
            raise AgentGymError(503, "CAPACITY_REACHED", f"All {self._rooms.slots} slots are taken; try again later.")
        self._rooms.add(number, self._visit(self._drawn(number, 0)))
        return number

    async def reset(self, request: Request) -> list[str | None]:
        body = await _body(request, ResetBody)
        room = self._room(body.env_idx)
        room.resets += 1
        room.session = self._visit(
            self._drawn(body.env_idx, room.resets) if body.session_id is None else body.session_id
        )
        return [room.session.page.observation, None]

    async def step(self, request: Request) -> dict[str, Any]:
        """Anything that is no action of the open page does nothing; after the purchase everything does nothing."""
        body = await _body(request, StepBody)
        session = self._room(body.env_idx).session
        over = session.done
        turn = session.play(parse_action(body.action))
        reward = turn.reward.score if turn.reward and not over else 0.0
        return {"state": turn.page.observation, "reward": reward, "done": session.done, "info": None}

    async def close(self, request: Request) -> bool:
        """False for an environment that is not open: closing twice is no error."""
        body = await _body(request, EnvBody)
        return self._rooms.close(body.env_idx)

    async def available_actions(self, request: Request) -> dict[str, Any]:
        return self._asked(request).session.page.available_actions

    async def instruction_text(self, request: Request) -> str:
        return _instruction(self._asked(request).session)

    async def observation(self, request: Request) -> str:
        return self._asked(request).session.page.observation

    async def state(self, request: Request) -> dict[str, str]:
        """Upstream's page source is made for browsers; ours has the same visible texts and nothing else."""
        session = self._asked(request).session
        return {"url": _url(session), "html": _html(session), "instruction_text": _instruction(session)}

    def _asked(self, request: Request) -> Room:
        """The environment of ``?env_idx=``."""
        try:
            number = _NUMBER.validate_python(request.query_params.get("env_idx", ""))
        except ValidationError:
            raise AgentGymError(422, "VALIDATION_ERROR", "Invalid request: env_idx must be a number.") from None
        return self._room(number)

    def _room(self, number: int) -> Room:
        room = self._rooms.find(number)
        if room is None:
            raise AgentGymError(
                404, "UNKNOWN_ENVIRONMENT", "There is no such environment: closed, expired or never made."
            )
        return room

    def _drawn(self, number: int, resets: int) -> int:
        return random.Random(f"webshop-room:{number}:{resets}").randrange(len(self._shop.goals))  # noqa: S311

    def _visit(self, session_id: int) -> Session:
        count = len(self._shop.goals)
        if not 0 <= session_id < count:
            raise AgentGymError(422, "SESSION_OUT_OF_RANGE", f"session_id must be between 0 and {count - 1}.")
        return Session(self._shop, self._shop.goals[session_id])


def _answering(handler: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[JSONResponse]]:
    async def endpoint(request: Request) -> JSONResponse:
        return JSONResponse(await handler(request))

    return endpoint


async def _body(request: Request, model: type[Body]) -> Body:
    """Read and check a body of at most ``MAX_FRAME_BYTES``."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FRAME_BYTES:
            raise AgentGymError(413, "TOO_LARGE", f"A request may have {MAX_FRAME_BYTES} bytes.")
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        raise AgentGymError(422, "VALIDATION_ERROR", describe("request", error)) from None


async def _answer_error(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, AgentGymError):
        status, code, message = error.status, error.code, str(error)
    else:
        status = error.status_code if isinstance(error, HTTPException) else 500
        code, message = f"HTTP_{status}", "This route does not answer such a request."
    return JSONResponse(error_body(code, message), status_code=status)


def _instruction(session: Session) -> str:
    """As upstream reads it from the page: the heading and the text without anything between them."""
    return f"Instruction:{session.goal.instruction}"


def _url(session: Session) -> str:
    """Where upstream's browser would be, in its form of addresses."""
    page, product = session.page.kind, session.product
    name = {"start": "", "results": "/search_results", "item": "/item_page", "sub": "/item_sub_page", "done": "/done"}
    parts = [str(session.goal.session_id)]
    if page != "start" and product is not None:
        parts += [product.asin, quote(json.dumps(session.options), safe="")]
    return f"http://127.0.0.1:3000{name[page]}/{'/'.join(parts)}"


def _html(session: Session) -> str:
    texts = "".join(f"<p>{html.escape(text)}</p>" for text in session.page.texts)
    return f"<!DOCTYPE html><html><body>{texts}</body></html>"
