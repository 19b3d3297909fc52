"""Structured log lines without secrets."""

from __future__ import annotations

import logging

from training.redaction import redact

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class RedactFilter(logging.Filter):
    """Redact the finished message, so that arguments are covered too."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record in place; never drop it."""
        record.msg, record.args = redact(record.getMessage()), None
        return True


class LineFormatter(logging.Formatter):
    """``time level logger message key=value …`` with the fields given as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line (and the traceback, where there is one)."""
        # Also here: Django passes the request that failed, whose text has its whole address.
        extra = redact(" ".join(f"{k}={v}" for k, v in vars(record).items() if k not in _STANDARD))
        line = f"{self.formatTime(record)} {record.levelname} {record.name} {record.getMessage()} {extra}".rstrip()
        return f"{line}\n{redact(self.formatException(record.exc_info))}" if record.exc_info else line
