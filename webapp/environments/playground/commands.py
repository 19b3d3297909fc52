"""The commands of the playground's socket. Anything else closes it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

# Below what the web server lets through (``--ws-max-size``), so that a person gets a sentence and not a cut connection.
FRAME_BYTES = 60_000
MAX_CALLS = 16
MAX_NAME = 200
MAX_SEED = 2**31 - 1
MAX_RANGES = 50

Finite = Annotated[float, Field(allow_inf_nan=False)]
Range = Annotated[list[Finite], Field(min_length=2, max_length=2)]


class Command(BaseModel):
    """Base of all commands: nothing is coerced, nothing unknown is taken."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Ping(Command):
    """A sign of life from the tab."""

    type: Literal["ping"]


class Empty(Command):
    """No task: the environment draws one by the seed."""

    kind: Literal["empty"]


class Pasted(Command):
    """A task as JSON."""

    kind: Literal["task"]
    task: dict[str, Any]


class FromRow(Command):
    """A row of a dataset of the project; ``row`` counts from 1."""

    kind: Literal["row"]
    dataset: UUID = Field(strict=False)
    row: int = Field(ge=1, le=MAX_SEED)


class Reset(Command):
    """Begin an episode; one that is open ends."""

    type: Literal["reset"]
    seed: int = Field(ge=0, le=MAX_SEED)
    source: Annotated[Empty | Pasted | FromRow, Field(discriminator="kind")]


class Call(Command):
    """One tool call; its id is made here."""

    name: str = Field(min_length=1, max_length=MAX_NAME)
    arguments: dict[str, Any]


class Step(Command):
    """One turn."""

    type: Literal["step"]
    message: str
    tool_calls: list[Call] = Field(max_length=MAX_CALLS)


class Close(Command):
    """End the episode and give its slot back; what was played stays and can be saved."""

    type: Literal["close"]


class SaveRow(Command):
    """Add the episode to a dataset, as its next version or as the first of a new name."""

    type: Literal["save_row"]
    dataset: str = Field(max_length=MAX_NAME)


class SaveCase(Command):
    """Keep the episode as a test case of rewards."""

    type: Literal["save_case"]
    name: str = Field(max_length=MAX_NAME)
    expected: dict[str, Range] = Field(max_length=MAX_RANGES)
    total: Range | None


Playing = Ping | Step | Close | SaveRow | SaveCase
"""The commands of an open episode."""
PLAYGROUND: TypeAdapter[Any] = TypeAdapter(Annotated[Playing | Reset, Field(discriminator="type")])


def command_of(text: str | None, known: TypeAdapter[Any] = PLAYGROUND) -> Command | None:
    """A frame as the command it is, else ``None``. Never raises."""
    if text is None or len(text) > FRAME_BYTES:
        return None
    try:
        found: Command = known.validate_python(json.loads(text))
    except (ValueError, RecursionError, OverflowError, ValidationError):
        return None
    return found
