"""The process that reports one run to one tracker: ``python -m training.reporting``.

1. Its standard input is a pipe that the trainer holds: when it closes, the run is over, or the trainer dead. What the
   journal holds by then is still reported, once.
2. Its standard output carries sentences for the run's log, one JSON object a line. What the tracker's package prints
   goes to standard error, where the trainer's own output goes.
3. A signal to stop the run reaches the whole process group; this process continues until the trainer has written its
   last event.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from training.config import TRACKERS, TrackerName
from training.redaction import redact, without
from training.reporting.trackers import (
    FOLDER_NAME,
    REPORTERS,
    Feed,
    Figures,
    Identity,
    Reporter,
    keep_mark,
    reported_before,
)

LOOK_S = 0.5
SILENT_S = 30.0  # a call that takes longer is reported as a tracker that does not answer
PAUSE_S, PAUSE_MAX_S = 1.0, 60.0
REASON_CHARS = 200
NICE = 5


class Assignment(NamedTuple):
    """What to report to whom. ``identity.from_step`` is known only once the trainer is up."""

    tracker: TrackerName
    run_dir: Path
    earlier: list[Path]
    identity: Identity


class ReportProcess:
    """Reports figures in their order. What fails is tried again until it works or the run is over."""

    def __init__(self, assignment: Assignment, reporter: Reporter) -> None:
        self._to, self._reporter = assignment, reporter
        self._title = TRACKERS[assignment.tracker].title
        self._pipe = sys.stdin.fileno()
        self._over = False
        self._open = False
        self._down = False
        self._lock = threading.Lock()
        self._call_began: float | None = None
        self._written = open(os.dup(1), "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
        os.dup2(2, 1)

    def report_all(self) -> int:
        """Until the run is over. The exit code is 0 where the tracker got everything."""
        to = self._to
        last_step = reported_before(to.tracker, [*to.earlier, to.run_dir])
        feed = Feed(to.run_dir, to.identity.attempt, to.earlier, last_step, again=self._reporter.AGAIN)
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        while True:
            last = self._wait(LOOK_S)
            for figures in chain(feed.new(), [None]):
                identity = to.identity._replace(from_step=feed.from_step or 0)
                if feed.from_step is not None and not self._send_figures(identity, figures):
                    return 1
            if feed.ended or last:
                return self._close(feed.ended)

    def _send_figures(self, identity: Identity, figures: Figures | None) -> bool:
        """Whether the tracker got them; ``False`` once the run is over and it still cannot be reached.

        Without figures the run is only begun there: a package may take seconds to load, and has an address to say.
        """
        pause = PAUSE_S
        while True:
            try:
                if not self._open:
                    self._open_run(identity)
                if figures is not None:
                    self._log(figures)
            except Exception as exc:  # the boundary to a package that we do not know: it may raise anything
                self._unreachable(reason(exc))
                if self._over:
                    return False
                self._wait(pause)
                pause = min(pause * 2, PAUSE_MAX_S)
            else:
                self._reached()
                return True

    def _log(self, figures: Figures) -> None:
        self._call(lambda: self._reporter.log(figures))
        keep_mark(self._to.tracker, self._to.run_dir, figures.step)

    def _open_run(self, identity: Identity) -> None:
        address = self._call(lambda: self._reporter.open(identity))
        self._open = True
        if address:
            self._write_message("info", f"{self._title}: {hidden(address)}")

    def _call(self, action: Any) -> Any:
        self._call_began = time.monotonic()
        try:
            return action()
        finally:
            self._call_began = None

    def _close(self, outcome: str) -> int:
        try:
            if self._open:
                self._call(lambda: self._reporter.close(outcome))
        except Exception as exc:  # as above
            self._unreachable(reason(exc))
            return 1
        return 0

    def _wait(self, seconds: float) -> bool:
        """Wait, at most until the trainer lets the pipe go; whether it has."""
        if self._over:
            return True
        ready, _out, _problems = select.select([self._pipe], [], [], seconds)
        self._over = bool(ready) and not os.read(self._pipe, 64)
        return self._over

    def _watch(self) -> None:
        """Say that the tracker is silent while the main thread is stuck in a call of its package."""
        while True:
            time.sleep(1)
            began = self._call_began
            if began is not None and time.monotonic() - began > SILENT_S:
                self._unreachable(f"It has not answered for {SILENT_S:.0f} s.")

    def _unreachable(self, why: str) -> None:
        with self._lock:
            if self._down:
                return
            self._down = True
        self._write_message("warning", f"{self._title} cannot be reached; the run goes on. {why}".strip())

    def _reached(self) -> None:
        with self._lock:
            was, self._down = self._down, False
        if was:
            self._write_message("info", f"{self._title} is reached again and has been told what it missed.")

    def _write_message(self, level: str, message: str) -> None:
        with suppress(OSError):  # the trainer no longer listens
            self._written.write(json.dumps({"level": level, "message": message}) + "\n")
            self._written.flush()


def reason(exc: BaseException) -> str:
    """The error in one line, without keys."""
    if isinstance(exc, ModuleNotFoundError):
        return f"The package {exc.name} is not installed in the worker's environment."
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return f"{type(exc).__name__}: {hidden(lines[0])[:REASON_CHARS]}" if lines else type(exc).__name__


def hidden(text: str) -> str:
    """The text without values of the variables that trackers are given, and without all that looks like a key."""
    for tracker in TRACKERS.values():
        for name in tracker.variables:
            value = os.environ.get(name, "")
            if any(word in name for word in ("KEY", "TOKEN", "PASSWORD", "URI", "URL")):
                text = without(text, (value,), f"({name})")
    return redact(text)


def report_run(assignment: Assignment) -> int:
    """Be the process of one tracker until the run is over."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICE)
    (assignment.run_dir / FOLDER_NAME).mkdir(parents=True, exist_ok=True)
    (assignment.identity.folder / FOLDER_NAME).mkdir(parents=True, exist_ok=True)
    return ReportProcess(assignment, REPORTERS[assignment.tracker]()).report_all()
