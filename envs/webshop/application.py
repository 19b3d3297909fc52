"""The FastAPI application: OpenEnv's ``/ws`` and AgentGym's routes next to each other, behind one guard."""

from __future__ import annotations

import logging
from functools import partial

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from envs.base.environment import Facts, validation_of
from envs.base.frames import error_frame
from envs.base.guard import Guard, LoadMeter
from envs.base.server import create_server, health_of
from envs.base.settings import ServerSettings, log
from envs.webshop import DESCRIPTION, NAME, VERSION, agentgym
from envs.webshop.agentgym import Rooms
from envs.webshop.baseline import run_baseline
from envs.webshop.generator import generated_catalogue
from envs.webshop.server import WebshopEnvironment
from envs.webshop.session import Shop
from envs.webshop.validate import validate
from envs.wire import Baseline, Health

CLOSE_NO_SLOT = 1013
BASELINE_EPISODES = 300
VALIDATED_VISITS = 4


class ShopGuard(Guard):
    """The base guard with AgentGym's paths, which counts the slots of both kinds of session together."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, meter: LoadMeter, rooms: Rooms) -> None:
        super().__init__(app, settings, meter, frozenset(agentgym.PATHS), frozenset({"/step"}))
        self._rooms = rooms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket" or self._refusal(scope) is not None:
            await super().__call__(scope, receive, send)
        elif not self._rooms.enter_socket():
            await self._no_slot(receive, send)
        else:
            try:
                await super().__call__(scope, receive, send)
            finally:
                self._rooms.leave_socket()

    async def _no_slot(self, receive: Receive, send: Send) -> None:
        """Say it as OpenEnv does, which knows only of websockets."""
        slots = self._rooms.slots
        log(logging.WARNING, "session.refused", slots=slots)
        await receive()
        await send({"type": "websocket.accept"})
        text = error_frame(
            "CAPACITY_REACHED", f"All {slots} slots are taken.", active_sessions=slots, max_sessions=slots
        )
        await send({"type": "websocket.send", "text": text})
        await send({"type": "websocket.close", "code": CLOSE_NO_SLOT, "reason": "all slots are taken"})


def create_application(shop: Shop, settings: ServerSettings) -> FastAPI:
    """The base server with AgentGym's routes, a health that counts both kinds of session, and one guard for all."""
    rooms = Rooms(settings.slots, settings.idle_s)
    facts = Facts(
        description=DESCRIPTION,
        validate=lambda: validation_of(validate(shop, VALIDATED_VISITS)),
        baselines=lambda: [rule_baseline(shop)],
    )
    app = create_server(partial(WebshopEnvironment, shop), settings, facts)
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", None) != "/health"]
    app.user_middleware[:] = [Middleware(ShopGuard, settings=settings, meter=app.state.meter, rooms=rooms)]

    @app.get("/health", response_model=Health)
    async def health() -> Health:
        return health_of(app, settings, sessions=rooms.taken, slots=rooms.slots)

    agentgym.AgentGym(shop, rooms).mount(app)
    return app


def rule_baseline(shop: Shop) -> Baseline:
    """The three rules on the first sessions, to be shown next to every trained policy."""
    found = run_baseline(shop, range(min(BASELINE_EPISODES, len(shop.goals))))
    return Baseline(name="rules", reward=found.score, success=found.success, episodes=found.episodes)


def app() -> FastAPI:
    """The application for ``uvicorn --factory envs.webshop.application:app``, with a generated catalogue."""
    return create_application(Shop(generated_catalogue()), ServerSettings(name=NAME, version=VERSION))
