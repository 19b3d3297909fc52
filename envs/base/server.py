"""A FastAPI application that serves a ``ToolEnvironment`` over OpenEnv's ``/ws``. Importing OpenEnv takes about 3 s."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI
from openenv.core.env_server import HTTPEnvServer
from openenv.core.env_server.types import ServerMode

from envs.base.bridge import Bridge, BridgeObservation, StepAction
from envs.base.environment import ToolEnvironment
from envs.base.guard import Guard
from envs.base.settings import ServerSettings
from envs.wire import Health


def create_server(factory: Callable[[], ToolEnvironment], settings: ServerSettings) -> FastAPI:
    """Serve ``factory()`` for each connection: ``/ws`` behind the guard, ``GET /health``, and nothing else."""
    workers = ThreadPoolExecutor(settings.worker_threads, thread_name_prefix="environment")

    class Session(Bridge):
        """OpenEnv wants a class: it reads the concurrency flags from it."""

        def __init__(self) -> None:
            super().__init__(factory, settings, workers)

    server = HTTPEnvServer(
        Session, StepAction, BridgeObservation, max_concurrent_envs=settings.slots, env_name=settings.name
    )
    app = FastAPI(title=settings.name, version=settings.version, docs_url=None, redoc_url=None, openapi_url=None)
    server.register_routes(app, mode=ServerMode.SIMULATION)
    # Of OpenEnv's routes only the socket stays: reset and step over HTTP, MCP and the task routes are never served.
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", None) == "/ws"]

    @app.get("/health", response_model=Health)
    async def health() -> Health:
        return Health(
            name=settings.name, version=settings.version, sessions=server.active_sessions, slots=settings.slots
        )

    app.add_middleware(Guard, settings=settings)
    return app
