"""The server's application: the environment, and how it proves itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envs.base import Facts, ServerSettings
from envs.base.facts import validation_of
from envs.tools import DESCRIPTION, NAME, VERSION
from envs.tools.server import ToolsEnvironment
from envs.tools.validate import validate

if TYPE_CHECKING:
    from fastapi import FastAPI

VALIDATED_SEEDS = 8  # one of each language and difficulty: milliseconds
FACTS = Facts(validate=lambda: validation_of(validate(VALIDATED_SEEDS)), description=DESCRIPTION)


def app() -> FastAPI:
    """The application for ``uvicorn --factory envs.tools.application:app``; ``python -m envs.tools`` has options."""
    from envs.base.server import create_server  # OpenEnv takes a second to import

    return create_server(ToolsEnvironment, ServerSettings(name=NAME, version=VERSION), FACTS)
