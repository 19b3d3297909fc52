"""Logs of the environment servers: one JSON object a line on standard error."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

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
