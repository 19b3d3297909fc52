"""Check an uploaded dataset: stream it, keep its good rows, write a report.

Run as a process of its own (``python -m training.data check``, started by ``runner.py``), because its input is hostile:
limits on memory, processor time and open files are set before the first byte is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from training.data.jsonl import Record, read_jsonl
from training.data.limits import MAX_LINE_BYTES, CheckLimits
from training.data.parquet import measure as measure_parquet
from training.data.parquet import read_parquet
from training.data.report import ESTIMATE, Measure, Report, Statistics, tokenizer_measure
from training.data.schema import RowError, check_tree
from training.data.sniff import Format, open_regular, sniff
from training.errors import DataError

ROWS_NAME = "rows.jsonl"
REPORT_NAME = "report.json"
PROGRESS_EVERY_S = 0.1


class Progress(NamedTuple):
    """How far a check has come. ``bytes`` of ``total``: of the file, or of the decoded data in parquet."""

    bytes: int
    total: int
    rows: int
    bad: int


def apply_limits(limits: CheckLimits) -> None:
    """Limit this process: address space, CPU seconds (then SIGXCPU), open files, no core dumps."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["OMP_NUM_THREADS"] = "1"
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, soft, grace in (
        (resource.RLIMIT_AS, limits.memory_bytes, 0),
        (resource.RLIMIT_CPU, limits.cpu_s, 1),  # reaching the hard limit would be a SIGKILL that explains nothing
        (resource.RLIMIT_NOFILE, limits.open_files, 0),
    ):
        allowed = resource.getrlimit(kind)[1]
        most = soft + grace if allowed == resource.RLIM_INFINITY else min(soft + grace, allowed)
        resource.setrlimit(kind, (min(soft, most), most))


def check_file(
    source: Path,
    output_dir: Path,
    *,
    max_rows: int = CheckLimits.max_rows,
    preview: int = 20,
    tokenizer: Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Check ``source`` and write ``rows.jsonl`` and ``report.json`` into ``output_dir``, which must exist.

    Always returns a report; what cannot be read at all has verdict ``rejected`` and format ``unknown`` or damaged.
    ``on_progress`` is called at most ten times a second. Raises ``OSError`` only when the results cannot be written.
    """
    report = Report()
    try:
        report.bytes, report.sha256 = _digest(source)
        found = sniff(source)
        report.format.name, report.format.evidence = found.name, found.evidence
        statistics = Statistics(_measure(tokenizer, report), preview)
        _stream(source, found, output_dir, max_rows, statistics, on_progress)
        statistics.fill(report)
        _judge(report, max_rows)
    except DataError as exc:
        report.message = f"{exc.message} {exc.hint}".strip()
    except MemoryError:
        report.message = "Reading the file needs more memory than a check may use. Split it into smaller files."
    if report.verdict == "rejected":
        (output_dir / ROWS_NAME).unlink(missing_ok=True)
    write_report(report, output_dir)
    return report


def write_report(report: Report, output_dir: Path) -> None:
    """Write ``report.json`` whole or not at all."""
    temporary = output_dir / (REPORT_NAME + ".part")
    temporary.write_text(json.dumps(report.model_dump(), ensure_ascii=False, indent=1), encoding="utf-8")
    temporary.replace(output_dir / REPORT_NAME)


def print_progress(progress: Progress, stream: TextIO = sys.stdout) -> None:
    """One JSON line, flushed at once."""
    print(json.dumps(progress._asdict()), file=stream, flush=True)


def run(source: Path, output_dir: Path, limits: CheckLimits, preview: int, tokenizer: Path | None) -> int:
    """The child's work. Exit code 0 when the file could be read, 2 when it could not be at all."""
    apply_limits(limits)
    output_dir.mkdir(parents=True, exist_ok=True)
    report = check_file(
        source, output_dir, max_rows=limits.max_rows, preview=preview, tokenizer=tokenizer, on_progress=print_progress
    )
    return 0 if report.rows or report.bad_rows else 2


def _stream(
    source: Path,
    found: Format,
    output_dir: Path,
    max_rows: int,
    statistics: Statistics,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    """Copy the good rows and count all of them; stops one row after ``max_rows``. Raises ``DataError``."""
    total, records = _open(source, found, max_rows)
    due = 0.0
    offset = 0
    with open(output_dir / ROWS_NAME, "w", encoding="utf-8") as rows:
        for record in records:
            offset = record.offset
            try:
                if record.row is None:
                    raise RowError(record.reason)
                normal = record.row.normal()
                rows.write(_encoded(normal))
                statistics.add(record.row, normal)
            except RowError as exc:
                statistics.add_bad(record.line, str(exc))
            if statistics.rows + statistics.bad_rows > max_rows:
                break
            if on_progress and time.monotonic() >= due:
                due = time.monotonic() + PROGRESS_EVERY_S
                on_progress(Progress(offset, total, statistics.rows, statistics.bad_rows))
    if on_progress:
        on_progress(Progress(offset, total, statistics.rows, statistics.bad_rows))


def _encoded(normal: dict[str, Any]) -> str:
    """A row as a line that ``read_jsonl`` takes again. Raises ``RowError`` where normalising made it break a limit."""
    check_tree(normal)
    line = json.dumps(normal, ensure_ascii=False, allow_nan=False) + "\n"
    if len(line) > MAX_LINE_BYTES // 4 and len(line.encode()) > MAX_LINE_BYTES:
        raise RowError(f"the row is longer than {MAX_LINE_BYTES >> 20} MB")
    return line


def _open(source: Path, found: Format, max_rows: int) -> tuple[int, Iterator[Record]]:
    """Total bytes to read and the records. Raises ``DataError``."""
    if found.name == "parquet":
        return measure_parquet(source, max_rows), read_parquet(source)
    return source.stat().st_size, read_jsonl(source)


def _judge(report: Report, max_rows: int) -> None:
    """Set verdict and message from the counts."""
    every = report.rows + report.bad_rows
    if every > max_rows:
        report.message = f"The file has more than {max_rows} rows. Split it into smaller files."
    elif not every:
        report.message = "The file has no rows, only empty lines." if report.format.name == "jsonl" else "No rows."
    elif not report.rows:
        first = report.bad[0]
        report.message = f"None of the {every} rows can be used. Line {first.line}: {first.reason}."
    elif report.bad_rows:
        report.verdict = "bad_rows"
        report.message = f"{report.rows} of {every} rows can be used; {report.bad_rows} are left out."
    else:
        report.verdict, report.message = "ok", f"All {report.rows} rows can be used."


def _measure(tokenizer: Path | None, report: Report) -> Measure:
    """The tokenizer's count, or the estimate with a note when there is none."""
    if tokenizer is None:
        return ESTIMATE
    try:
        return tokenizer_measure(tokenizer)
    except (OSError, ValueError, ImportError) as exc:
        report.format.evidence.append(f"Lengths are estimated, because the tokenizer could not be used: {exc}.")
        return ESTIMATE


def _digest(source: Path) -> tuple[int, str]:
    """Size and SHA-256 of the file. Raises ``DataError``."""
    digest, size = hashlib.sha256(), 0
    with open_regular(source) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()
