"""Run a dataset check in a limited child process and always come back with a report.

The child gets an argument list (no shell), an environment of three names, a session of its own, and its limits as
flags. Whatever happens to it, ``run_check`` answers: a killed, hung or crashed check is a rejected file with a reason.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.children import KILLED, bare_env, limited_child
from training.data.checking.check import (
    FINDINGS_NAME,
    REPORT_NAME,
    ROWS_NAME,
    ROWS_SHOWN,
    Ask,
    Preview,
    Progress,
    write_report,
)
from training.data.checking.report import Report
from training.data.identity import IDENTITIES_NAME
from training.data.options import CheckOptions, ReadOptions
from training.data.problems import PREVIEW_LIMITS, CheckLimits
from training.words import Sentence, _, sentence

MAX_REPORT_BYTES = 64 << 20
MAX_PREVIEW_BYTES = 8 << 20
LOG_NAME = "check.log"


def run_check(
    source: Path,
    output_dir: Path,
    *,
    limits: CheckLimits | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    tokenizer: Path | None = None,
    preview: int = 20,
    reading: ReadOptions | None = None,
    checking: CheckOptions | None = None,
    ask: Ask = "never",
) -> dict[str, Any]:
    """Check ``source``; returns the report (fields of ``report.Report``), which is also in ``report.json``.

    ``on_progress`` runs in this thread; an exception from it stops the child and passes on. Raises ``OSError`` when
    ``output_dir`` cannot be written.
    """
    limits = limits or CheckLimits()
    output_dir.mkdir(parents=True, exist_ok=True)
    for name in (REPORT_NAME, ROWS_NAME, IDENTITIES_NAME, FINDINGS_NAME):
        (output_dir / name).unlink(missing_ok=True)
    command = [*_command(source, output_dir, limits, tokenizer, preview), "--ask", ask, *_choices(reading, checking)]
    with tempfile.TemporaryDirectory(dir=output_dir, ignore_cleanup_errors=True) as unpacked:
        code, in_time = run_limited(command, output_dir / LOG_NAME, limits.wall_s, on_progress, unpacked)
    report = _read_report(output_dir) if in_time and code in (0, 2) else None
    if report is None:
        reason = failure_sentence(code, in_time, limits)
        rejected = Report(message=reason, told=[Sentence.of(reason)], bytes=_size(source))
        for name in (ROWS_NAME, IDENTITIES_NAME):
            (output_dir / name).unlink(missing_ok=True)
        write_report(rejected, output_dir)
        report = rejected.model_dump()
    return report


def run_limited(
    command: list[str],
    log_path: Path,
    wall_s: float,
    on_progress: Callable[[Progress], None] | None,
    temporary: str = "",
) -> tuple[int, bool]:
    """Run a program of ours that limits itself and prints progress; its exit code, and whether it ended in time.

    ``temporary`` is where it unpacks archives: the caller removes that, however the child ends.
    """
    with (
        open(log_path, "wb") as log,
        limited_child(command, wall_s=wall_s, env=bare_env(TMPDIR=temporary), stderr=log) as child,
    ):
        for line in child.lines():
            if on_progress:
                _report_progress(line, on_progress)
        in_time = child.wait()
    return child.code, in_time


def run_preview(source: Path, reading: ReadOptions | None = None, *, rows: int = ROWS_SHOWN) -> Preview:
    """Look at the first rows of ``source`` in a limited child; whatever happens to it, there is an answer."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "training.data",
        "preview",
        "--limited",
        "--input",
        str(source.absolute()),
        "--rows",
        str(rows),
        *_choices(reading, None),
    ]
    limits = PREVIEW_LIMITS
    with (
        tempfile.TemporaryDirectory(prefix="tiltyard-look-", ignore_cleanup_errors=True) as unpacked,
        limited_child(command, wall_s=limits.wall_s, env=bare_env(TMPDIR=unpacked)) as child,
    ):
        output = child.output(MAX_PREVIEW_BYTES)
        in_time = output is not None and child.wait()
    try:
        if in_time and child.code == 0:
            return Preview.model_validate_json(output or b"")
    except ValueError:
        pass  # what it printed is not a preview: as when it was killed
    return Preview(message=[Sentence.of(failure_sentence(child.code, in_time, limits))])


def _command(source: Path, output_dir: Path, limits: CheckLimits, tokenizer: Path | None, preview: int) -> list[str]:
    """The child's argument list. Paths are absolute, so none can look like a flag."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "training.data",
        "check",
        "--input",
        str(source.absolute()),
        "--output-dir",
        str(output_dir.absolute()),
        "--max-rows",
        str(limits.max_rows),
        "--preview",
        str(preview),
        "--memory-mb",
        str(limits.memory_bytes >> 20),
        "--cpu-seconds",
        str(limits.cpu_s),
        "--open-files",
        str(limits.open_files),
    ]
    return command + (["--tokenizer", str(tokenizer.absolute())] if tokenizer else [])


def _choices(reading: ReadOptions | None, checking: CheckOptions | None) -> list[str]:
    """The choices, as JSON, which the child validates again."""
    words = []
    for flag, options in (("--reading", reading), ("--checking", checking)):
        if options is not None:
            words += [f"{flag}={options.model_dump_json(exclude_defaults=True)}"]
    return words


def _report_progress(line: bytes, on_progress: Callable[[Progress], None]) -> None:
    """Pass one progress line on; anything else that was printed is ignored."""
    try:
        progress = Progress(**{name: int(value) for name, value in json.loads(line).items()})
    except (ValueError, TypeError, AttributeError):
        return
    on_progress(progress)


def _read_report(output_dir: Path) -> dict[str, Any] | None:
    """The child's report, or ``None`` when it left none that can be read."""
    path = output_dir / REPORT_NAME
    try:
        if path.stat().st_size > MAX_REPORT_BYTES:
            return None
        return Report.model_validate_json(path.read_bytes()).model_dump()
    except (OSError, ValueError):
        return None


def failure_sentence(code: int, in_time: bool, limits: CheckLimits) -> str:
    """One sentence for a child that left no report."""
    if not in_time:
        template = _("Reading the file took longer than {limit} seconds. Split it into smaller files.")
        return sentence(template, limit=f"{limits.wall_s:g}")
    if code == -signal.SIGXCPU:
        template = _("Reading the file took more than {limit} seconds of processor time. Split it into smaller files.")
        return sentence(template, limit=limits.cpu_s)
    if code in KILLED:
        return sentence(_("Reading the file needed more memory than a check may use, or crashed its reader."))
    return sentence(_("The check stopped unexpectedly (exit code {code}); its log is {log}."), code=code, log=LOG_NAME)


def _size(source: Path) -> int:
    try:
        return source.stat().st_size
    except OSError:
        return 0
