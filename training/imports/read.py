"""Import files of one run: recognise each, read it, and leave a folder that ``manage.py import_run`` takes.

The folder has ``journal.jsonl``, a minimal ``config.yaml``, ``output.log`` (the end of a console log) and
``import.json`` (the report). Rows in are rows kept plus rows listed as bad.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from training.config import JobConfig, config_to_yaml
from training.data.checking.check import PROGRESS_EVERY_S, Progress
from training.data.checking.runner import LOG_NAME, MAX_REPORT_BYTES, failure_sentence, run_limited
from training.data.files.sniff import open_regular
from training.data.files.sources import (
    ALLOWANCE_BYTES,
    MAX_UNPACKED_BYTES,
    RATIO,
    Given,
    is_archive,
    is_gzip,
    natural,
    unpack,
    unpack_gzip,
)
from training.data.problems import CheckLimits
from training.errors import DataError
from training.imports import trackers
from training.imports.axis import STEPS
from training.imports.base import Figures, Gaps, Notes, Reader, Shared
from training.imports.console import TOOL
from training.imports.recorder import Recorder
from training.imports.report import LOGS, READERS, FileRead, ImportReport, recognise
from training.imports.rows import KIND, weights_in
from training.journal import JOURNAL_NAME
from training.words import Sentence, _, sentence

REPORT_NAME = "import.json"
OUTPUT_NAME = "output.log"
OUTPUT_TAIL_BYTES = 256 << 10
MAX_NAME_CHARS = 200
MAX_ROLLOUTS = 200_000
MAX_POINTS = 5_000_000
_ORDER = {reader.name: place for place, reader in enumerate(dict.fromkeys((*LOGS, *READERS)))}
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
_UNNAMED = _("another trainer")
OnProgress = Callable[[Progress], None]


def import_files(
    files: Iterable[Given],
    output: Path,
    *,
    max_rows: int = CheckLimits.max_rows,
    on_progress: OnProgress | None = None,
    weights: Sequence[float] = (),
    run: str = "",
) -> ImportReport:
    """Read the files of one run into ``output``, which must exist. Always returns a report, and writes it there.

    ``weights`` are TRL's ``reward_weights``; without them those of a config among the files count. ``run`` is the one
    that is meant, where a table has several.
    Raises ``OSError`` only where the folder cannot be written.
    """
    report = ImportReport()
    folder = output / "unpacked"
    try:
        given = _unpacked([*files], folder)
        _read_all(given, output, report, max_rows, on_progress, list(weights), run)
    except DataError as exc:
        report.verdict = "rejected"
        report.say(*filter(None, (exc.message, exc.hint)))
    except MemoryError:
        report.verdict = "rejected"
        report.say(_("Reading the files needs more memory than an import may use. Give fewer files at once."))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (output / REPORT_NAME).write_text(report.model_dump_json(indent=1), encoding="utf-8")
    return report


def _unpacked(files: list[Given], folder: Path) -> list[Given]:
    """All files, those of archives in their place."""
    folder.mkdir()
    given: list[Given] = []
    for file in files:
        try:
            if is_archive(file.path):
                given += unpack(file, folder, len(given))
            else:
                given.append(unpack_gzip(file, folder, len(given)) if is_gzip(file.path) else file)
        except DataError as exc:
            raise _about(file.name, exc) from exc
    if not given:
        raise DataError(_("No file was given."))
    return [Given(path, plain_name(name)) for path, name in given]


def plain_name(name: str) -> str:
    """A file's name as it is shown."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)[-MAX_NAME_CHARS:]


def _about(name: str, exc: DataError) -> DataError:
    return DataError(sentence(_("{file}: {reason}"), file=plain_name(name), reason=exc.message), hint=exc.hint)


def _read_all(
    given: list[Given],
    output: Path,
    report: ImportReport,
    max_rows: int,
    on_progress: OnProgress | None,
    weights: list[float],
    run: str,
) -> None:
    chosen = []
    for file in given:
        try:
            chosen.append((file, *recognise(file)))
        except DataError as exc:
            if trackers.is_next_to_metrics(file.name, [each.name for each in given]):
                _passed_over(file, report)
                continue
            found = _config_weights(file, report)
            if not found:
                raise _about(file.name, exc) from exc
            weights = weights or found
    if not chosen:
        raise DataError(
            _("There is only a config, without a file of its run."), hint=_("Give the run's log or rollouts too.")
        )
    chosen.sort(key=lambda each: (_ORDER[each[1].name], natural(each[0].name)))
    digest = _digest((file for file, _, _ in chosen), run)
    begun = min(file.path.stat().st_mtime for file, _, _ in chosen)
    total = sum(file.path.stat().st_size for file, _, _ in chosen)
    room = min(MAX_UNPACKED_BYTES, RATIO * total + ALLOWANCE_BYTES)
    recorder = Recorder(output, report, begun if begun > 0 else time.time(), room)
    pace = _Pace(total, report, on_progress)
    try:
        notes = _look(chosen, weights, run)
        for (file, reader, why), note in zip(chosen, notes, strict=True):
            _read_one(file, reader, why, recorder, report, max_rows, pace, note)
        report.tool = _tool(report)
        _judge(report)
        recorder.finish(report.tool, digest)
    except BaseException:
        recorder.abandon()
        raise
    config = JobConfig.model_validate({"run": {"max_steps": max(1, min(report.last_step, 1_000_000))}})
    (output / "config.yaml").write_text(config_to_yaml(config, only_changed=True), encoding="utf-8")
    _keep_output([file for file, reader, _ in chosen if reader in LOGS], output)


def _look(chosen: list[tuple[Given, Reader, str]], weights: list[float], run: str) -> list[Notes]:
    """The notes of each file, after a first look at those whose kind asks for one."""
    shared = Shared()
    found = []
    for file, reader, _why in chosen:
        notes = Notes(file.name, run, shared)
        notes.weights = weights
        if reader.look is not None:
            try:
                reader.look(file.path, notes)
            except DataError as exc:
                raise _about(file.name, exc) from exc
        found.append(notes)
    return found


def _passed_over(given: Given, report: ImportReport) -> None:
    """List a file of an MLflow run that holds no figures."""
    size = given.path.stat().st_size
    why = "It lies next to the metrics of an MLflow run."
    report.files.append(FileRead(name=given.name, kind=trackers.KIND, bytes=size, why=why))


def _config_weights(given: Given, report: ImportReport) -> list[float]:
    """The reward weights of a run's config, which the report then lists as a file."""
    try:
        found = weights_in(given.path)
    except DataError as exc:
        raise _about(given.name, exc) from exc
    if found:
        why = "It names reward_weights."
        size = given.path.stat().st_size
        report.files.append(FileRead(name=given.name, kind=KIND, bytes=size, why=why))
    return found


def _read_one(
    given: Given,
    reader: Reader,
    why: str,
    recorder: Recorder,
    report: ImportReport,
    max_rows: int,
    pace: _Pace,
    notes: Notes,
) -> None:
    size = given.path.stat().st_size
    read = FileRead(name=given.name, kind=reader.name, tool=reader.tool, bytes=size, why=why)
    report.files.append(read)
    doubtful, compared = recorder.doubtful, recorder.compared
    steps: dict[int, set[str]] = {}
    repeated, gaps = 0, Gaps()
    try:
        for item in reader.read(given.path, notes):
            read.rows_in += 1
            _refuse_excess(report, max_rows)
            if item.value is None:
                report.list_bad(read, item.line, item.reason)
            else:
                read.rows += 1
                if item.remark:
                    report.remark(read, item.line, item.remark)
                if isinstance(item.value, Figures):
                    names = {name for name in item.value.values if name.lower() not in STEPS}
                    known = steps.setdefault(item.value.step, set())
                    repeated += len(item.value.values) > 1 and not known.isdisjoint(names)
                    known |= names
                    gaps.add(item.value)
                    recorder.figures(item.value)
                else:
                    recorder.rollout(item.value)
            pace.at(item.offset)
    except DataError as exc:
        raise _about(given.name, exc) from exc
    recorder.file_ended()
    if recorder.doubtful > doubtful:
        doubt = _(
            "In {count} of {groups} groups the advantages do not match this sum: the run weighted its rewards. "
            "Give its config with `reward_weights` too."
        )
        notes.say(sentence(doubt, count=recorder.doubtful - doubtful, groups=recorder.compared - compared))
    if repeated:
        twice = _("{count} rows name a step that an earlier row has; of two figures the later one counts.")
        notes.say(sentence(twice, count=repeated))
    if (gap := gaps.said()) is not None:
        notes.say(gap)
    read.tool = notes.tool or read.tool
    pace.ended(size)
    read.notes, read.left_out = notes.sentences, notes.left_out
    read.told = [Sentence.of(sentence) for sentence in notes.sentences]


def _refuse_excess(report: ImportReport, max_rows: int) -> None:
    if report.rows_in > max_rows:
        raise DataError(
            sentence(_("The files have more than {limit} rows."), limit=max_rows), hint=_("Give fewer steps at once.")
        )
    if report.rollouts > MAX_ROLLOUTS or report.points > MAX_POINTS:
        raise DataError(
            sentence(
                _("The files hold more than {rollouts} rollouts or {figures} figures."),
                rollouts=MAX_ROLLOUTS,
                figures=MAX_POINTS,
            ),
            hint=_("Give fewer steps."),
        )


class _Pace:
    """Says how far all files together have been read, at most ten times a second."""

    def __init__(self, total: int, report: ImportReport, say: OnProgress | None) -> None:
        self.total, self.report, self.say = total, report, say
        self.done, self.due = 0, 0.0

    def at(self, offset: int) -> None:
        """So much of the present file."""
        if self.say is not None and time.monotonic() >= self.due:
            self.due = time.monotonic() + PROGRESS_EVERY_S
            kept = sum(file.rows for file in self.report.files)
            self.say(Progress(min(self.done + offset, self.total), self.total, kept, self.report.bad_rows))

    def ended(self, size: int) -> None:
        """The present file is read."""
        self.done += size
        self.due = 0.0
        self.at(0)


def _tool(report: ImportReport) -> str:
    """The trainer: what a file says, or whose names its metrics have."""
    tools = sorted({file.tool for file in report.files if file.tool})
    if "TRL" in tools and TOOL in tools:  # TRL's trainers are such trainers
        tools.remove(TOOL)
    if tools:
        return " + ".join(tools)
    names = set(report.mapped)
    if any(name.startswith(("critic", "actor")) for name in names):
        return "verl"
    return "TRL" if any(name.startswith("train/") for name in names) else _UNNAMED


def _judge(report: ImportReport) -> None:
    """Set verdict and message from the counts. Raises ``DataError`` when nothing can be used."""
    kept, every = report.rows_in - report.bad_rows, report.rows_in
    if not every:
        raise DataError(_("The files hold no rows."))
    if not kept:
        first = report.bad[0]
        none = _("None of the {rows} rows can be used. {file}, line {line}: {reason}.")
        raise DataError(sentence(none, rows=every, file=first.file, line=first.line, reason=first.told or first.reason))
    report.verdict = "bad_rows" if report.bad_rows else "ok"
    some, all_of_them = _("{kept} of {rows} rows were read; {bad} left out."), _("{kept} of {rows} rows were read.")
    report.say(sentence(some if report.bad_rows else all_of_them, kept=kept, rows=every, bad=report.bad_rows))


def _digest(files: Iterable[Given], run: str) -> str:
    """One SHA-256 over all files, whatever their names, and the run that is meant: the same run is imported once."""
    digest = hashlib.sha256(run.encode())
    for given in files:
        inner = hashlib.sha256()
        with open_regular(given.path) as file:
            while piece := file.read(1 << 20):
                inner.update(piece)
        digest.update(inner.digest())
    return digest.hexdigest()


def _keep_output(logs: list[Given], output: Path) -> None:
    """The end of the last console log, without colours, as what the trainer printed."""
    if not logs:
        return
    with open_regular(logs[-1].path) as file:
        size = logs[-1].path.stat().st_size
        file.seek(max(0, size - OUTPUT_TAIL_BYTES))
        tail = file.read(OUTPUT_TAIL_BYTES)
    if size > OUTPUT_TAIL_BYTES:
        tail = tail.partition(b"\n")[2]
    (output / OUTPUT_NAME).write_bytes(_COLOUR.sub(b"", tail).replace(b"\0", b""))


# --- Runner ---------------------------------------------------------------------------------------------------------
# Import files in a limited child process and always come back with a report, as for the check of a dataset.


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
