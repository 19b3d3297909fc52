"""A FastAPI application that serves a ``ToolEnvironment`` over OpenEnv's ``/ws``. Importing OpenEnv takes about 1 s."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from envs.base.bridge import Bridge, BridgeObservation, StepAction
from envs.base.environment import Facts, Prover, ToolEnvironment
from envs.base.frames import error_body
from envs.base.guard import Guard, LoadMeter
from envs.base.mcp import Mcp
from envs.base.openenv import EnvironmentMetadata, HTTPEnvServer, SchemaResponse, ServerMode, State
from envs.base.settings import ServerSettings
from envs.wire import Health, Validation


def _describe(app: FastAPI, settings: ServerSettings, description: str) -> None:
    """Add the two routes; ``/openapi.json`` is FastAPI's own."""

    @app.get("/metadata", response_model=EnvironmentMetadata)
    async def metadata() -> EnvironmentMetadata:
        return EnvironmentMetadata(
            name=settings.name, version=settings.version, description=description or f"The environment {settings.name}."
        )

    @app.get("/schema", response_model=SchemaResponse)
    async def schema() -> SchemaResponse:
        return SchemaResponse(
            action=StepAction.model_json_schema(),
            observation=BridgeObservation.model_json_schema(),
            state=State.model_json_schema(),
        )


def create_server(
    factory: Callable[[], ToolEnvironment], settings: ServerSettings, facts: Facts | None = None
) -> FastAPI:
    """Serve ``factory()`` for each connection: ``/ws`` behind the guard, ``GET /health`` and ``GET /validate``.

    OpenEnv's own tools find what they ask a server for there too (``envs.base.server``, ``envs.base.mcp``).

    A server with routes of its own finds the ``LoadMeter`` and the ``Prover`` in the application's state.
    """
    workers = ThreadPoolExecutor(settings.worker_threads, thread_name_prefix="environment")

    class Session(Bridge):
        """OpenEnv wants a class: it reads the concurrency flags from it."""

        def __init__(self) -> None:
            super().__init__(factory, settings, workers)

    server = HTTPEnvServer(
        Session, StepAction, BridgeObservation, max_concurrent_envs=settings.slots, env_name=settings.name
    )
    app = FastAPI(title=settings.name, version=settings.version, docs_url=None, redoc_url=None)
    server.register_routes(app, mode=ServerMode.SIMULATION)
    # Of OpenEnv's routes only the socket stays: reset and step over HTTP and the task routes are never served.
    kept = ("/ws", "/openapi.json")
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", None) in kept]

    meter, prover = LoadMeter(), Prover(facts or Facts())
    app.state.meter, app.state.prover = meter, prover

    @app.get("/health", response_model=Health)
    async def health() -> Health:
        return health_of(app, settings, sessions=server.active_sessions, slots=settings.slots)

    @app.get("/validate", response_model=Validation)
    async def validate() -> Validation:
        return await prover.validation()

    app.add_exception_handler(HTTPException, refuse)
    _describe(app, settings, prover.description)
    Mcp(Session, settings).mount(app)
    app.add_middleware(Guard, settings=settings, meter=meter)
    return app


async def refuse(request: Request, error: Exception) -> JSONResponse:
    """The error shape of the project for what no route answers, such as a method that it does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return JSONResponse(error_body(f"HTTP_{status}", "This route does not answer such a request."), status_code=status)


def health_of(app: FastAPI, settings: ServerSettings, *, sessions: int, slots: int) -> Health:
    """The health of a server that was made here."""
    prover: Prover = app.state.prover
    return Health(
        name=settings.name,
        version=settings.version,
        sessions=sessions,
        slots=slots,
        deterministic=prover.deterministic,
        load=app.state.meter.read(),
        baselines=prover.baselines,
    )
