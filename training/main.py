"""Run a job from start to end: run directory, journal, signals, and the last event whatever happens.

How a run ends:
 1. The method returns: ``succeeded``, also where its time budget (``run.max_hours``) was over before its last step.
 2. SIGTERM or SIGINT sets the stop flag; every phase looks at it, saves what was trained since the last checkpoint and
    ends with ``stopped``. A watchdog ends the process with the same last event if a phase does not get there in time
    (``training/sessions.py``), and says which steps were not saved.
 3. A typed error: ``paused`` if a person or time can fix it, else ``failed``, with its code, sentence and next action.
    Anything else: ``failed`` with ``trainer_crashed`` and the end of the traceback in the log.
 4. What trains is a process of its own and dies without a last word: so does this one.
 5. The supervisor dies: its pipe closes and the process exits at once, without a last event; another attempt may
    already run.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from training.algorithms.job import Job
from training.config import JobConfig, config_to_yaml
from training.errors import Boundary, DiedWithoutWord, ErrorInfo, StopRequested, TiltyardError
from training.journal import JOURNAL_NAME, Event, Journal, LogLine, Metrics, RunFinished, RunStarted, last_attempt
from training.machine import disk_fault
from training.reporting.starting import Reports
from training.rewards.defaults import said, with_rewards
from training.sessions import STOP_GRACE_S, Works, patience

# What a run leaves for people and their scripts next to its journal, while it runs.
#
# ``metrics/training_metrics.json``: ``[{"step": 1, "loss": …}, …]``, one object a line, whole after every step, each
# step once. NaN and infinities are ``null``, as JSON has no word for them. A later attempt begins with the steps before
# its own. ``logs/<what>_<time>.log``: the lines that a person sees, each with its time.
#
# The journal is the run's record and these are made of the same events: what cannot be written here is said once on the
# console and holds nothing up.

METRICS_PATH = Path("metrics") / "training_metrics.json"
LOGS = "logs"
_BEGIN, _BETWEEN, _END = b"[\n", b",\n", b"\n]\n"


class MetricsFile:
    """The figures of each step, as one JSON list."""

    def __init__(self, path: Path, earlier: Sequence[Path]) -> None:
        """``earlier`` are such files of the attempts before, oldest first; one at ``path`` is the last."""
        self._path = path
        self._earlier = [*earlier, path]
        self._file: BinaryIO | None = None
        self._end = len(_BEGIN)
        self._last: dict[str, Any] = {}
        self._before_last = self._end

    def begin(self, step: int) -> None:
        """Start with what earlier attempts left of the steps up to ``step``. Raises ``OSError``."""
        rows: dict[int, dict[str, Any]] = {}
        for path in self._earlier:
            rows |= {row["step"]: row for row in rows_of(path)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._path, "w+b", buffering=0)  # noqa: SIM115 - closed by close()
        self._file.write(_BEGIN + _END)
        for number in sorted(rows):
            if number <= step:
                self._append(rows[number])

    def add(self, step: int, values: dict[str, float]) -> None:
        """The figures of a step; later words on the same one go into its row. Raises ``OSError``."""
        row = {"step": step} | {name: value if math.isfinite(value) else None for name, value in values.items()}
        if self._last.get("step") == step:
            row = self._last | row
            self._end = self._before_last
        self._append(row)

    def _append(self, row: dict[str, Any]) -> None:
        if self._file is None:
            return
        self._before_last = self._end
        between = _BETWEEN if self._end > len(_BEGIN) else b""
        line = between + json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
        self._file.seek(self._end)
        self._file.write(line + _END)
        self._file.truncate()
        self._end += len(line)
        self._last = row

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of such a file; none where there is no file, or one that was cut off."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return []
    rows = found if isinstance(found, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("step"), int)]


class Outputs:
    """Both files of one attempt. Methods without gradients leave a log alone."""

    def __init__(self, config: JobConfig, run_dir: Path, earlier: Sequence[Path] = ()) -> None:
        trains = config.method.trains
        self._metrics = (
            MetricsFile(run_dir / METRICS_PATH, [folder / METRICS_PATH for folder in earlier]) if trains else None
        )
        name = f"{'train' if trains else config.kind}_{datetime.now():%Y%m%d_%H%M%S}.log"
        self._log_path = run_dir / LOGS / name
        self._log: BinaryIO | None = None
        self._failed = False

    def take(self, event: Event, line: str) -> None:
        """An event, and the line that people see of it, if any."""
        if self._failed:
            return
        try:
            self._write_files(event, line)
        except OSError as exc:  # a full disk: the journal's own write says so to the run
            self._failed = True
            sys.stderr.write(f"Metrics and log of the run are no longer written: {exc}\n")

    def _write_files(self, event: Event, line: str) -> None:
        if line:
            if self._log is None:
                self._log_path.parent.mkdir(parents=True, exist_ok=True)
                self._log = open(self._log_path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
            self._log.write(f"{datetime.fromtimestamp(event.t):%Y-%m-%d %H:%M:%S}  {line}\n".encode())
        if self._metrics is not None and isinstance(event, RunStarted):
            self._metrics.begin(event.from_step)
        if self._metrics is not None and isinstance(event, Metrics):
            self._metrics.add(event.step, event.values)

    def close(self) -> None:
        """Close both files."""
        if self._log is not None:
            self._log.close()
        if self._metrics is not None:
            self._metrics.close()


EXIT_SUCCEEDED, EXIT_FAILED, EXIT_STOPPED, EXIT_PAUSED = 0, 1, 4, 5
TRACEBACK_LINES = 30
WATCH_S = 0.2
CONFIG_NAME = "config.yaml"


def run_job(
    config: JobConfig,
    run_dir: Path,
    *,
    attempt: int | None = None,
    resume_from: Sequence[Path] = (),
    earlier: Sequence[Path] = (),
    progress: bool = True,
    run_id: str = "",
) -> int:
    """Do what the config says, in this process. Returns the exit code; the journal has the whole story.

    Without an ``attempt`` it is the one after the last that wrote into the folder's journal, so that no rollout takes
    the name of an earlier one. ``earlier`` are the folders of the attempts before it, oldest first. ``run_id`` is what
    other trackers know the run by; without it, what its folder makes of it.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    chosen, config = config, with_rewards(config)
    attempt = attempt or last_attempt(run_dir / JOURNAL_NAME) + 1
    stop = threading.Event()
    outputs = Outputs(config, run_dir, earlier)
    journal: Journal = ToldJournal(run_dir, outputs, aloud=progress)
    ending = _Ending(journal)
    _listen_for_stop(stop, ending)
    reports: Reports | None = None
    try:
        (run_dir / CONFIG_NAME).write_text(config_to_yaml(config), encoding="utf-8")
        job = Job(config, run_dir, journal, stop, attempt, tuple(resume_from), tuple(earlier))
        if config is not chosen:
            job.log(said(chosen))
        if config.report.to:
            place = run_dir / CONFIG_NAME
            reports = Reports(config, place, run_dir, journal, attempt=attempt, earlier=earlier, run_id=run_id)
        return _train(job, ending)
    finally:
        if reports is not None:
            reports.end(stopped=stop.is_set())
        journal.close()
        outputs.close()


def _train(job: Job, ending: _Ending) -> int:
    try:
        ending.job = job
        job.keep_room()
        learner_of(job.config)(job)
    except DiedWithoutWord as died:
        return died.code
    except StopRequested:
        return ending.write("stopped")
    except TiltyardError as error:
        return ending.write("paused" if error.pauses else "failed", error.info)
    except Exception as exc:  # the last boundary: nothing may end without a word
        if (fault := disk_fault(exc, job.run_dir) or _device_fault(exc)) is not None:
            return ending.write("paused", fault.info)
        return ending.write("failed", _crash(exc, job.journal))
    return ending.write("succeeded", hours=job.config.run.max_hours if job.out_of_time else None)


def learner_of(config: JobConfig) -> Callable[[Job], None]:
    """Who does the job: verl on Ray, or its method's own function on one device. Both take a job, journal what they do,
    look at its stop flag, leave whole checkpoints and a model, and raise typed errors."""
    if config.by_verl:
        from training.verl_backend.learner import run_verl  # only where it is needed

        return run_verl
    return config.method.load()


def _device_fault(exc: Exception) -> TiltyardError | None:
    from training.memory.running import device_fault  # PyTorch, which a run that ends before its trainer never loads

    return device_fault(exc)


class _Ending:
    """Writes the run's last event exactly once, from the first that comes: the main thread or the watchdog."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._once = threading.Lock()
        self.job: Job | None = None

    def write(self, status: str, error: ErrorInfo | None = None, hours: float | None = None) -> int:
        """Write the last event and return the exit code. The second caller waits without end: its process is ending."""
        self._once.acquire()
        step = self.job.step if self.job else 0
        codes = {"succeeded": EXIT_SUCCEEDED, "stopped": EXIT_STOPPED, "paused": EXIT_PAUSED}
        try:
            self._journal.last_word(RunFinished(status=status, step=step, error=error, hours=hours))  # type: ignore[arg-type]
        except OSError as exc:
            sys.stderr.write(f"The journal's last event could not be written: {exc}\n")
        return codes.get(status, EXIT_FAILED)


def _listen_for_stop(stop: threading.Event, ending: _Ending) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # signals belong to the main thread; a caller in another one stops runs otherwise

    def on_signal(number: int, frame: Any) -> None:
        if not stop.is_set():
            stop.set()
            threading.Thread(target=_watchdog, args=(ending,), name="stop-watchdog", daemon=True).start()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)


def _watchdog(ending: _Ending) -> None:
    """End a run that does not end itself, and say what it has not saved."""
    asked_at, grace_s = time.monotonic(), ending.job.stop_grace() if ending.job else STOP_GRACE_S
    time.sleep(grace_s)
    works = Works(time.process_time)
    while ending.job and ending.job.unsaved and works() and time.monotonic() < asked_at + patience(grace_s):
        time.sleep(WATCH_S)
    if ending.job and (lost := ending.job.unsaved):
        _say_unsaved(ending.job, lost, time.monotonic() - asked_at)
    code = ending.write("stopped")
    sys.stdout.flush()
    os._exit(code)


def _say_unsaved(job: Job, lost: range, waited_s: float) -> None:
    steps = f"step {lost[0]} is" if len(lost) == 1 else f"steps {lost[0]} to {lost[-1]} are"
    with suppress(OSError):
        job.log(f"Nothing could be saved within {waited_s:.0f} s of the stop: {steps} trained again.", "warning")


def _crash(exc: Exception, journal: Journal) -> ErrorInfo:
    lines = "".join(traceback.format_exception(exc)).splitlines()[-TRACEBACK_LINES:]
    try:
        for line in lines:
            journal.write(LogLine(level="error", message=line))
    except OSError:
        sys.stderr.write("\n".join(lines) + "\n")
    return ErrorInfo(
        code="trainer_crashed",
        boundary=Boundary.TRAINER,
        message=f"The trainer crashed: {type(exc).__name__}: {str(exc)[:300]}",
        hint="The end of the log has the traceback.",
    )


class ToldJournal(Journal):
    """A journal that also informs people, and files for their scripts, of events that they wait for."""

    def __init__(self, directory: Path, outputs: Outputs, *, aloud: bool) -> None:
        super().__init__(directory)
        self._outputs, self._aloud = outputs, aloud
        self._telling = threading.Lock()

    def write(self, event: Any) -> None:
        """Append the event, then print its line if it has one, and put it into the run's files."""
        super().write(event)
        self._tell(event)

    def relay(self, event: Any) -> None:
        """The same for an event of another process."""
        super().relay(event)
        self._tell(event)

    def _tell(self, event: Any) -> None:
        line = progress_line(event)
        if line and self._aloud:
            print(line, flush=True)
        with self._telling:  # reporters of trackers write from threads of their own
            self._outputs.take(event, line)


def progress_line(event: Any) -> str:
    """One line for an event, or "" for events that are too many to print."""
    if event.type == "metrics":
        shown = ("reward", "loss", "mean_token_accuracy", "rollouts/task_success", "rollouts/excluded", "timing/step")
        figures = "  ".join(f"{name} {event.values[name]:.4g}" for name in shown if name in event.values)
        return f"step {event.step}  {figures}"
    if event.type == "log":
        return f"{event.level}: {event.message}"
    if event.type == "run_started":
        return f"{event.kind} on {event.device}: {event.rows} rows, steps {event.from_step + 1} to {event.total_steps}"
    if event.type == "checkpoint":
        return f"saved {event.path} ({event.bytes / 1e6:.1f} MB)"
    if event.type == "run_finished":
        reason = f": {event.error.message} {event.error.hint}" if event.error else ""
        over = f" (its time budget of {event.hours:g} hours is over)" if event.hours else ""
        return f"{event.status} at step {event.step}{over}{reason}"
    return ""
