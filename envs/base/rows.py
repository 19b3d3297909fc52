"""Dataset rows as environment servers read them from a reset and write them to a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from envs.base.environment import EnvironmentRefusal
from envs.wire import Message

EXIT_CANNOT_WRITE = 2
MAX_COPIES = 1000
Row = TypeVar("Row", bound=BaseModel)


def refusal(why: str) -> EnvironmentRefusal:
    """The sentence for a task that cannot be played."""
    return EnvironmentRefusal(f"The task cannot be played: {why}.")


def read_row(model: type[Row], task: dict[str, Any]) -> Row:
    """A task as the environment's row model; raises ``EnvironmentRefusal`` with a sentence about the first fault."""
    try:
        return model.model_validate(task)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise refusal(f"{where}: {fault['msg']}") from None


def check_lengths(messages: Sequence[Message], limit: int) -> None:
    """Raise ``EnvironmentRefusal`` for a message of more than ``limit`` characters."""
    for number, message in enumerate(messages):
        if len(message.content) > limit:
            raise refusal(f"message {number} is over {limit} characters")


def add_carelessness(parser: argparse.ArgumentParser, *, copies: bool = True) -> None:
    """Declare the options of demonstrations that have mistakes in them."""
    if copies:
        parser.add_argument(
            "--copies",
            type=_copies,
            default=1,
            help="rows of each task; each is careless or not by itself (default 1)",
        )
    parser.add_argument("--careless", type=_share, default=0.0, help="share with a mistake (default 0)")


def _copies(text: str) -> int:
    value = int(text)
    if not 1 <= value <= MAX_COPIES:
        raise argparse.ArgumentTypeError(f"must be between 1 and {MAX_COPIES}")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("must be between 0 and 1")
    return value


def write_rows(output: str, rows: Iterable[dict[str, Any]]) -> int:
    """Write rows as JSONL to a file, or to standard output for ``-``; returns the exit code of the command."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if output == "-":
        sys.stdout.writelines(lines)
        return 0
    try:
        with Path(output).open("w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        sys.stderr.write(f"Cannot write {output}: {error.strerror}.\n")
        return EXIT_CANNOT_WRITE
    return 0
