"""Import files in a limited child process and always come back with a report, as for the check of a dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from training.data.checking.check import Progress
from training.data.checking.runner import LOG_NAME, MAX_REPORT_BYTES, failure_sentence, run_limited
from training.data.files.archive import Given
from training.data.limits import CheckLimits
from training.imports.read import REPORT_NAME
from training.imports.report import ImportReport
from training.journal import JOURNAL_NAME


def run_import(
    files: Iterable[Given],
    output: Path,
    *,
    limits: CheckLimits | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    run: str = "",
) -> ImportReport:
    """Read ``files`` into ``output``; ``run`` is the one that is meant, where a table holds several. ``on_progress``
    runs in this thread; what it raises stops the child.

    Raises ``OSError`` when ``output`` cannot be written.
    """
    limits = limits or CheckLimits()
    output.mkdir(parents=True, exist_ok=True)
    (output / REPORT_NAME).unlink(missing_ok=True)
    command = [
        sys.executable,
        "-P",
        "-m",
        "training",
        "import",
        "--output",
        str(output.absolute()),
        "--max-rows",
        str(limits.max_rows),
        "--memory-mb",
        str(limits.memory_bytes >> 20),
        "--cpu-seconds",
        str(limits.cpu_s),
        "--open-files",
        str(limits.open_files),
        "--progress",
        f"--run={run}",
    ]
    for given in files:  # paths are absolute and names follow a `=`, so none can look like a flag
        command += ["--input", str(given.path.absolute()), f"--name={given.name}"]
    code, in_time = run_limited(command, output / LOG_NAME, limits.wall_s, on_progress)
    report = _read_report(output / REPORT_NAME) if in_time and code in (0, 2) else None
    if report is None:
        (output / JOURNAL_NAME).unlink(missing_ok=True)
        report = ImportReport()
        report.say(failure_sentence(code, in_time, limits))
        (output / REPORT_NAME).write_text(report.model_dump_json(indent=1), encoding="utf-8")
    return report


def _read_report(path: Path) -> ImportReport | None:
    """The child's report, or ``None`` when it left none that can be read."""
    try:
        if path.stat().st_size > MAX_REPORT_BYTES:
            return None
        return ImportReport.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
