"""The options of an environment server, checked once at start, and its log."""

from __future__ import annotations

import ipaddress
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_FRAME_BYTES = 1024 * 1024
MIN_TOKEN_LENGTH = 16


class SettingsError(ValueError):
    """The server cannot start with these options; the text says what to change."""


@dataclass(frozen=True)
class ServerSettings:
    """Limits and identity of one server. Times are in seconds unless the name says otherwise."""

    name: str
    version: str
    slots: int = 512
    token: str | None = None
    delay_ms: int = 0
    idle_s: float = 600.0
    # A peer that vanished without closing is noticed after one interval plus one time-out: 55 s of the promised 60.
    # The time-out is long because a trainer whose event loop is busy answers pings late.
    ping_interval_s: float = 10.0
    ping_timeout_s: float = 45.0
    # A reset or step of a coroutine or blocking environment may take this long.
    call_timeout_s: float = 30.0
    # A client that does not read its answers loses its session after this long.
    send_timeout_s: float = 30.0
    worker_threads: int = 4

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise SettingsError("--slots must be at least 1.")
        if self.delay_ms < 0:
            raise SettingsError("--delay-ms must not be negative.")
        if min(self.idle_s, self.ping_interval_s, self.ping_timeout_s, self.call_timeout_s, self.send_timeout_s) <= 0:
            raise SettingsError("Times must be longer than 0 s.")
        if self.token is not None and len(self.token) < MIN_TOKEN_LENGTH:
            raise SettingsError(f"The token must have at least {MIN_TOKEN_LENGTH} characters.")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str | None, insecure: bool) -> None:
    """Refuse to listen beyond this machine without a token, unless the operator insists."""
    if not is_loopback(host) and token is None and not insecure:
        raise SettingsError(
            f"{host} can be reached from other machines: give --token-file, or --insecure on a closed network."
        )


def read_token(path: Path | None) -> str | None:
    """The bearer token in a file, without the line end that editors add."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The token file {path} cannot be read: {type(error).__name__}.") from error


# Logs of the environment servers: one JSON object a line on standard error.

logger = logging.getLogger("tiltyard.envs")


class JsonFormatter(logging.Formatter):
    """Level, action and fields as one line of JSON; a traceback stays here and never reaches a client."""

    def __init__(self, env: str) -> None:
        super().__init__()
        self._env = env

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "env": self._env,
            "action": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(env: str, level: str = "info") -> None:
    """Send every log of the process through ``JsonFormatter``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(env))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # uvicorn logs each socket at INFO; our own session lines say more.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def log(level: int, action: str, *, exc_info: bool = False, **fields: Any) -> None:
    """Log one action with its fields."""
    logger.log(level, action, exc_info=exc_info, extra={"fields": fields})
