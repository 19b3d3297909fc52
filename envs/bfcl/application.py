"""The server's application: the environment, and how it proves itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envs.base import Facts, ServerSettings
from envs.base.facts import validation_of
from envs.bfcl import DESCRIPTION, NAME
from envs.bfcl.package import SPLITS
from envs.bfcl.server import BfclEnvironment, server_version
from envs.bfcl.validate import ids_of, validate
from envs.wire import Validation

if TYPE_CHECKING:
    from fastapi import FastAPI


def facts() -> Facts:
    """How the environment proves itself: one entry of each split."""
    return Facts(validate=_prove, description=DESCRIPTION)


def _prove() -> Validation:
    return validation_of(validate([ids_of(split)[0] for split in SPLITS]))


def app() -> FastAPI:
    """The application for ``uvicorn --factory envs.bfcl.application:app``; ``python -m envs.bfcl`` has more options."""
    from envs.base.server import create_server  # OpenEnv takes a second to import

    return create_server(BfclEnvironment, ServerSettings(name=NAME, version=server_version()), facts())
