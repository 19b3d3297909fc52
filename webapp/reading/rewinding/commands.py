"""The commands of a rewound rollout's socket: those of the playground, and where to begin."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from webapp.environments.playground.commands import MAX_SEED, Command, Playing


class Rewind(Command):
    """Bring the environment to its state before the policy's ``turn``; an episode that is open ends."""

    type: Literal["rewind"]
    turn: int = Field(ge=1, le=MAX_SEED)


REWINDING: TypeAdapter[Any] = TypeAdapter(Annotated[Playing | Rewind, Field(discriminator="type")])
