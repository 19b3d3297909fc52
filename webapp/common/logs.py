"""Structured log lines without secrets: for people, or one JSON object each (``TILTYARD_LOG_FORMAT``).

Lines carry what the process is doing: the id of the request or of the one that asked for the task, the run, the
attempt. ``about`` says so once, for all that is logged within.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from training.redaction import redact

FORMATS = ("line", "json")
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_about: ContextVar[Mapping[str, Any]] = ContextVar("log_about", default={})  # noqa: B039 - it is never changed


def log_about() -> Mapping[str, Any]:
    """The fields of every line that is logged here and now."""
    return _about.get()


@contextmanager
def about(**fields: Any) -> Iterator[None]:
    """Lines that are logged within carry these fields too; an empty value takes a field away."""
    found = {name: value for name, value in {**_about.get(), **fields}.items() if value not in (None, "")}
    before = _about.set(found)
    try:
        yield
    finally:
        _about.reset(before)


class RedactFilter(logging.Filter):
    """Redact the finished message, so that arguments are covered too."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record in place; never drop it."""
        record.msg, record.args = redact(record.getMessage()), None
        return True


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What is known besides the message: the fields that were given as ``extra`` come before those of ``about``."""
    return {**_about.get(), **{name: value for name, value in vars(record).items() if name not in _STANDARD}}


class LineFormatter(logging.Formatter):
    """``time level logger message key=value …``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line (and the traceback, where there is one)."""
        # Also here: Django passes the request that failed, whose text has its whole address.
        extra = redact(" ".join(f"{k}={v}" for k, v in _fields_of(record).items()))
        line = f"{self.formatTime(record)} {record.levelname} {record.name} {record.getMessage()} {extra}".rstrip()
        return f"{line}\n{redact(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """``{time, level, logger, message, host, worker, …, traceback}`` in ASCII, which every terminal and file takes."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, also with a traceback."""
        fields = _fields_of(record)
        request = fields.pop("request", None)  # Django's own: an object
        if request is not None:
            fields.setdefault("request_id", getattr(request, "request_id", ""))
        line = {name: _plain(value) for name, value in fields.items()}
        line |= {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
            "host": socket.gethostname(),
        }
        if worker := os.environ.get("TILTYARD_WORKER"):
            line["worker"] = worker
        if record.exc_info:
            line["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, allow_nan=False)


def _plain(value: Any) -> Any:
    """A number as it is, anything else as its text without secrets."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return redact(str(value))
