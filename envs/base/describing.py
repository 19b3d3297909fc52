"""What OpenEnv's own tools ask of a server besides playing it: ``/metadata``, ``/schema`` and ``/openapi.json``.

``openenv validate --url`` is the field's bar for a server; it also wants ``/mcp`` (``envs.base.mcp``). ``reset``,
``step`` and ``state`` stay with the websocket alone: agents must not find them as routes or tools.
"""

from __future__ import annotations

from fastapi import FastAPI

from envs.base.bridge import BridgeObservation, StepAction
from envs.base.openenv import EnvironmentMetadata, SchemaResponse, State
from envs.base.settings import ServerSettings


def mount(app: FastAPI, settings: ServerSettings, description: str) -> None:
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
