"""The interface of launchers. Only the keeper starts and stops; pages read logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from training.errors import EnvironmentFault
from training.plain import number_in
from training.redaction import redact
from webapp.common.text import clean_text
from webapp.environments.models import Environment, Replica
from webapp.environments.options import Option, arguments_argv

Handle = dict[str, Any]
LOG_LINES, LOG_BYTES, LINE_CHARS = 200, 128 << 10, 1_000
HOST = "127.0.0.1"


class LaunchError(EnvironmentFault):
    """A server could not be started or inspected; the sentence says what to do."""


class Started(NamedTuple):
    """A server that was started: its launcher's handle, and the address where it will answer."""

    handle: Handle
    url: str


class Owned(NamedTuple):
    """Something of ours that runs, whether or not a row still names it."""

    environment_id: str
    number: int
    handle: Handle


class Launcher(Protocol):
    """One way to run servers. Every method may raise ``LaunchError``; none waits long."""

    def start(self, replica: Replica) -> Started:
        """Begin a server, at the address that it had before where that is possible."""
        ...

    def stop(self, handle: Handle, *, force: bool = False) -> None:
        """Ask it to end, or end it now. No error if it has ended already."""
        ...

    def alive(self, handle: Handle) -> bool:
        """Whether it still runs."""
        ...

    def logs(self, replica: Replica, lines: int = LOG_LINES) -> list[str]:
        """The last lines that it printed, without secrets."""
        ...

    def list_owned(self) -> list[Owned]:
        """Everything of this installation that runs."""
        ...


def kept_port(replica: Replica) -> int:
    """The port that the replica had before, or 0."""
    return number_in(replica.url.rpartition(":")[2]) or 0


def option_words(environment: Environment, place: Callable[[Option, Path], str] | None = None) -> list[str]:
    """The chosen options of a server of ours, as words of its command line."""
    program = environment.built_in
    try:
        return arguments_argv(program.options, environment.arguments, place) if program else []
    except ValidationError as exc:
        faults = "; ".join(f"{name}: {' '.join(texts)}" for name, texts in exc.message_dict.items())
        raise LaunchError(
            _("A server option is no longer possible: %(why)s") % {"why": faults},
            hint=_("Put the data back, or choose other options on the environment's page."),
        ) from exc


def last_lines(raw: bytes, lines: int) -> list[str]:
    """Output as a page may show it."""
    text = raw[-LOG_BYTES:].decode("utf-8", "replace").splitlines()[-lines:]
    return [redact(clean_text(line[:LINE_CHARS])) for line in text if line.strip()]
