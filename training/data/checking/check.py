"""Check an uploaded dataset: stream it, keep its good rows, write a report; and preview its first rows."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from pydantic import BaseModel, Field

from training.data.checking.checks import Checks
from training.data.checking.report import ESTIMATE, Measure, Report, Statistics, shorten, tokenizer_measure
from training.data.files.sniff import encoded, open_regular
from training.data.identity import IDENTITIES_NAME, IdentityWriter
from training.data.options import CheckOptions, ReadOptions
from training.data.problems import CheckLimits, Finding, RowError
from training.data.reader import Recognition, RunFile, Source, open_dataset
from training.data.schema import Record, Row
from training.errors import DataError
from training.words import Sentence, _, sentence

IMPORT_RUN = "import_run"
"""What ``Report.link`` says of a file that is to be imported as a run."""
ROWS_NAME = "rows.jsonl"
REPORT_NAME = "report.json"
FINDINGS_NAME = "findings.jsonl"
Ask = Literal["never", "unsure", "always"]
"""When a check stops and asks how the file is to be read."""
PROGRESS_EVERY_S = 0.1
PROGRESS_EVERY_ROWS = 32


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
    reading: ReadOptions | None = None,
    checking: CheckOptions | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    ask: Ask = "never",
) -> Report:
    """Check ``source``; write ``rows.jsonl``, ``rows.ids``, ``findings.jsonl`` and ``report.json`` into ``output_dir``.

    The folder must exist. ``ask`` says when to stop before the first row with the verdict ``unsure``. Always returns a
    report; what cannot be read at all has verdict ``rejected`` and format ``unknown`` or damaged.
    ``on_progress`` is called at most ten times a second. Raises ``OSError`` only when the results cannot be written.
    """
    report = Report()
    try:
        report.bytes, report.sha256 = _digest(source)
        found = open_dataset(source, reading, max_rows, ask=ask != "never")
        report.recognised = found.recognised
        report.format.name = found.opened.container  # type: ignore[assignment]
        report.format.rows = found.format.name
        report.format.note([*found.opened.evidence, *found.reasons])
        if _asks(found, ask):
            report.verdict = "unsure"
            _set_message(report, sentence(_("Choose how the file is to be read.")))
        else:
            statistics = Statistics(_measure(tokenizer, report), preview)
            _stream(found, output_dir, max_rows, statistics, Checks(checking or CheckOptions()), on_progress)
            statistics.fill(report)
            _judge(report, max_rows)
    except DataError as exc:
        report.verdict = "rejected"
        _set_message(report, exc.message, exc.hint)
        report.link = IMPORT_RUN if isinstance(exc, RunFile) else ""
    except MemoryError:
        report.verdict = "rejected"
        _set_message(
            report, sentence(_("Reading the file needs more memory than a check may use. Split it into smaller files."))
        )
    if report.verdict in ("rejected", "unsure"):
        for name in (ROWS_NAME, IDENTITIES_NAME):
            (output_dir / name).unlink(missing_ok=True)
    write_report(report, output_dir)
    return report


def _asks(source: Source, ask: Ask) -> bool:
    """Whether to stop and ask. What was chosen already is not asked again."""
    chosen = bool(source.options.format or source.options.mapping)
    return ask == "always" or (ask == "unsure" and not chosen and source.recognised.asks)


def _set_message(report: Report, *texts: str) -> None:
    report.message = " ".join(text for text in texts if text)
    report.told = [Sentence.of(text) for text in texts if text]


def write_report(report: Report, output_dir: Path) -> None:
    """Write ``report.json`` whole or not at all."""
    temporary = output_dir / (REPORT_NAME + ".part")
    temporary.write_text(json.dumps(report.model_dump(), ensure_ascii=False, indent=1), encoding="utf-8")
    temporary.replace(output_dir / REPORT_NAME)


def print_progress(progress: Progress, stream: TextIO = sys.stdout) -> None:
    """One JSON line, flushed at once."""
    print(json.dumps(progress._asdict()), file=stream, flush=True)


def run(
    source: Path,
    output_dir: Path,
    limits: CheckLimits,
    preview: int,
    tokenizer: Path | None,
    reading: ReadOptions | None = None,
    checking: CheckOptions | None = None,
    ask: Ask = "never",
) -> int:
    """The child's work. Exit code 0 when the file could be read, 2 when it could not be at all."""
    apply_limits(limits)
    output_dir.mkdir(parents=True, exist_ok=True)
    report = check_file(
        source,
        output_dir,
        max_rows=limits.max_rows,
        preview=preview,
        tokenizer=tokenizer,
        reading=reading,
        checking=checking,
        on_progress=print_progress,
        ask=ask,
    )
    return 0 if report.rows or report.bad_rows or report.verdict == "unsure" else 2


def _stream(
    source: Source,
    output_dir: Path,
    max_rows: int,
    statistics: Statistics,
    checks: Checks,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    """Copy the good rows and count all of them; stops one row after ``max_rows``. Raises ``DataError``."""
    checks.unit = statistics.measure.unit
    identities = IdentityWriter()
    total, offset, due = source.opened.total, 0, 0.0
    with (
        open(output_dir / ROWS_NAME, "w", encoding="utf-8") as rows,
        open(output_dir / FINDINGS_NAME, "w", encoding="utf-8") as statistics.written,
    ):
        for number, record in enumerate(source.records()):
            offset = record.offset
            if row := _take(record, rows, statistics, checks):
                identities.add(row)
            if statistics.rows + statistics.bad_rows > max_rows:
                break
            if on_progress and not number % PROGRESS_EVERY_ROWS and time.monotonic() >= due:
                due = time.monotonic() + PROGRESS_EVERY_S
                on_progress(Progress(offset, total, statistics.rows, statistics.bad_rows))
    identities.write(output_dir / IDENTITIES_NAME)
    if on_progress:
        on_progress(Progress(offset, total, statistics.rows, statistics.bad_rows))


def _take(record: Record, rows: TextIO, statistics: Statistics, checks: Checks) -> Row | None:
    """One row: written, counted and given back, or listed as bad."""
    row = record.row
    if record.ignored:
        statistics.add_ignored(record.ignored)
    try:
        if row is None:
            raise record.error or RowError("not_object")
        line = record.text + "\n" if record.text else encoded(row.normal(), known=row.as_read)
        length = statistics.length_of(row)
        remarks = checks.remarks(row, record.line, length)
    except RowError as exc:
        statistics.add_bad(record.line, exc)
        return None
    rows.write(line)
    statistics.add(row, length)
    if remarks:
        statistics.add_remarks(record.line, remarks)
    return row


def _judge(report: Report, max_rows: int) -> None:
    """Set verdict and message from the counts."""
    every = report.rows + report.bad_rows
    if every > max_rows:
        _set_message(
            report, sentence(_("The file has more than {count} rows. Split it into smaller files."), count=max_rows)
        )
    elif not every:
        is_lines = report.format.name == "jsonl"
        _set_message(
            report, sentence(_("The file has no rows, only empty lines.") if is_lines else _("The file has no rows."))
        )
    elif not report.rows:
        first = report.bad[0]
        why = sentence(_("Line {line}: {reason}."), line=first.line, reason=first.reason)
        why.values["reason"] = first.sentence
        _set_message(report, sentence(_("None of the {count} rows can be used."), count=every), why)
    elif report.bad_rows:
        report.verdict = "bad_rows"
        values = {"rows": report.rows, "count": every, "bad": report.bad_rows}
        _set_message(report, sentence(_("{rows} of {count} rows can be used; {bad} are left out."), **values))
    else:
        report.verdict = "ok"
        _set_message(report, sentence(_("All {count} rows can be used."), count=report.rows))


def _measure(tokenizer: Path | None, report: Report) -> Measure:
    """The tokenizer's count, or the estimate with a note when there is none."""
    if tokenizer is None:
        return ESTIMATE
    try:
        return tokenizer_measure(tokenizer)
    except (OSError, ValueError, ImportError) as exc:
        reason = sentence(
            _("Lengths are estimated, because the tokenizer could not be used: {reason}."), reason=str(exc)
        )
        report.format.note([reason])
        return ESTIMATE


def _digest(source: Path) -> tuple[int, str]:
    """Size and SHA-256 of the file. Raises ``DataError``."""
    digest, size = hashlib.sha256(), 0
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    for path in files:
        with open_regular(path) as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
    return size, digest.hexdigest()


# The first rows of a file as chosen options would make them, and the rows among the first that would be bad.

ROWS_SHOWN = 5
LOOKED_AT_ROWS = 200
LOOKED_AT_S = 5.0
MAX_BAD = 10
MEASURED_ROWS = 256


class Preview(BaseModel):
    """How a file begins. ``looked`` rows were read for it; ``message`` says why there are none."""

    format: str = ""
    reasons: list[str] = Field(default_factory=list)
    told: list[Sentence] = Field(default_factory=list, description="The reasons, for translation.")
    rows: list[dict[str, Any]] = Field(default_factory=list)
    bad: list[Finding] = Field(default_factory=list)
    good_rows: int = 0
    bad_rows: int = 0
    recognised: Recognition = Field(default_factory=Recognition)
    message: list[Sentence] = Field(default_factory=list)

    @property
    def looked(self) -> int:
        """How many rows were read."""
        return self.good_rows + self.bad_rows


def preview(path: Path, options: ReadOptions | None = None, rows: int = 10, look_at: int = 0) -> Preview:
    """The first rows as ``options`` would make them, texts shortened. Raises ``DataError``.

    More rows are read than are shown, ``look_at`` of them, so that bad ones further down are seen.
    """
    source = open_dataset(path, options, MEASURED_ROWS)
    reasons = [*source.opened.evidence, *source.reasons]
    found = Preview(
        format=source.format.name,
        reasons=[str(text) for text in reasons],
        told=[Sentence.of(text) for text in reasons],
        recognised=source.recognised,
    )
    end = time.monotonic() + LOOKED_AT_S
    for record in source.records():
        if record.row is not None:
            found.good_rows += 1
            if len(found.rows) < rows:
                found.rows.append(shorten(record.row.normal()))
        elif record.error is not None:
            found.bad_rows += 1
            if len(found.bad) < MAX_BAD:
                found.bad.append(record.error.finding(record.line))
        if found.looked >= max(rows, look_at) or time.monotonic() > end:
            break
    return found


def safe_preview(path: Path, options: ReadOptions | None = None, rows: int = ROWS_SHOWN) -> Preview:
    """As ``preview``, but what cannot be read at all is reported in ``message``."""
    try:
        return preview(path, options, rows, LOOKED_AT_ROWS)
    except DataError as exc:
        return Preview(message=sentences(exc), recognised=recognised(path))


def recognised(path: Path) -> Recognition:
    """What a file is recognised as, where its choices fail; nothing when it cannot be opened at all."""
    try:
        return open_dataset(path, None, MEASURED_ROWS, ask=True).recognised
    except DataError:
        return Recognition()


def sentences(exc: DataError) -> list[Sentence]:
    """An error and what to do about it, for translation."""
    return [Sentence.of(text) for text in (exc.message, exc.hint) if text]
