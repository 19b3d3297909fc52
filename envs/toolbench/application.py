"""The FastAPI application: OpenEnv's ``/ws`` and ``POST /virtual`` next to each other, behind one guard."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI
from starlette.middleware import Middleware

from envs.base import ServerSettings
from envs.base.environment import Facts, validation_of
from envs.base.guard import Guard
from envs.base.server import create_server
from envs.toolbench import DESCRIPTION, NAME, VERSION, virtual
from envs.toolbench.bench import Bench, open_bench
from envs.toolbench.server import Rules, ToolbenchEnvironment
from envs.toolbench.validate import validate, validate_data

VALIDATED_QUERIES = 100
VALIDATED_FILES = 200


def create_application(bench: Bench, settings: ServerSettings, rules: Rules | None = None) -> FastAPI:
    """The base server with the route of StableToolBench's clients."""
    facts = Facts(
        # A model behind the simulator's address may answer the same call in two ways.
        deterministic=not bench.answerer.asks_endpoint,
        description=DESCRIPTION,
        validate=lambda: validation_of(
            validate(VALIDATED_QUERIES) if bench.data.is_empty else validate_data(bench.data, VALIDATED_FILES)
        ),
    )
    app = create_server(partial(ToolbenchEnvironment, bench.answerer, bench.tasks, rules), settings, facts)
    paths = frozenset({virtual.PATH})
    guard = Middleware(Guard, settings=settings, meter=app.state.meter, paths=paths, step_paths=paths)
    app.user_middleware[:] = [guard]
    virtual.Virtual(bench.answerer).mount(app)
    return app


def app() -> FastAPI:
    """The application for ``uvicorn --factory envs.toolbench.application:app``, with our own world."""
    return create_application(open_bench(), ServerSettings(name=NAME, version=VERSION))
