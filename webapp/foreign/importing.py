"""A standalone run's folder as a run in the browser.

1. The folder is known by the first lines of its journals; a project takes the same one once (the unique idempotency
   key).
2. The run's row comes first, hidden as one that is being deleted. Journals, logs, config and the checkpoints that the
   journals name are copied under the data folder; links are not followed.
3. Attempts and rows are written by the same projection as a live run, a batch a transaction: a million events take ten
   minutes, for which no transaction may hold the database's old rows, or be lost as a whole by one slow moment.
4. The last transaction ends the run and shows it. An import that is cut off shows nothing: its rows and files are
   deleted as a run is that a person deletes, at once, by the next import of the same files, or by the clockwork.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.base import File
from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext

from training.config import JobConfig, config_load
from training.data import CheckLimits, Given
from training.errors import Boundary, ConfigError, DataError, ErrorInfo, TiltyardError
from training.imports import READERS, REPORT_NAME, ImportReport
from training.imports import run_import as read_files
from training.journal import JOURNAL_NAME, CheckpointSaved, RunStarted
from training.words import Sentence, _
from webapp.common import work
from webapp.common.pages import clean_name
from webapp.common.storage import attempt_dir, file_store, import_dir, inside, run_dir
from webapp.common.text import clean_json, clean_text, in_words, message_of, translated
from webapp.common.work import Claim
from webapp.datasets.services import KEEP_FREE_BYTES, too_large_sentence
from webapp.engine.attempts import attempt_end
from webapp.engine.history import Lease
from webapp.engine.projection import Projector, parse_line, read_lines
from webapp.foreign.models import ImportState, RunImport
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.removal.services import removal_add
from webapp.runs.states import RunState

OWNER = "import"
SILENT_AFTER, LOST_AFTER = timedelta(seconds=45), timedelta(hours=1)
"""An import that has written nothing for the first is gone where the same files come again (a worker counts as lost a
little later), for the second in any case."""
TAIL_BYTES = 1 << 16  # of a journal, in which its last event lies
FILES = (JOURNAL_NAME, "config.yaml", "output.log", "log.txt", REPORT_NAME)
NO_END = ErrorInfo(
    code="trainer_died",
    boundary=Boundary.TRAINER,
    message="The imported journal has no end: the trainer died, or it still ran when it was imported.",
)


def run_import(*, project: Project, folder: Path, name: str = "", user: User | None = None) -> tuple[Run, bool]:
    """Import ``folder``; returns the run and whether it is new. Raises ``DataError`` when it holds no journal."""
    sources = _attempt_folders(folder)
    key = _import_key(sources)
    found = Run.objects.filter(project=project, idempotency_key=key).first()
    if found is not None:
        return found, False
    _make_way(project, key)
    config = _config_of(sources)
    run = Run(project=project, name=_free_name(project, name or folder.resolve().name), kind=config.kind)
    run.imported, run.idempotency_key, run.created_by = True, key, user
    _save_hidden(run, sources, config)
    try:
        for number, source in sources.items():
            _copy_files(source, attempt_dir(run.pk, number))
        _project_journals(run, sources)
        with transaction.atomic():
            _end_and_show(run, sources)
    except BaseException:
        _discard_run(run)
        raise
    run.refresh_from_db()
    return run, True


def _silent_imports(silent_for: timedelta) -> QuerySet[Run]:
    """Runs that an import has hidden and has not written to for this long."""
    hidden = Run.all_objects.filter(imported=True, lease_owner=OWNER).exclude(removed_at=None)
    return hidden.filter(last_event_at__lt=Now() - silent_for)


def cut_imports_discard() -> int:
    """Delete what lost imports left. Returns how many runs."""
    found = list(_silent_imports(LOST_AFTER).exclude(idempotency_key=None).select_related("project"))
    for run in found:
        _discard_run(run)
    return len(found)


def _make_way(project: Project, key: str) -> None:
    """Delete what a lost import of the same files left. Raises ``DataError`` while one is at work."""
    for run in _silent_imports(SILENT_AFTER).filter(project=project, idempotency_key=key).select_related("project"):
        _discard_run(run)
    if Run.all_objects.filter(project=project, idempotency_key=key).exclude(removed_at=None).exists():
        busy = _("The same files are being imported at this moment.")
        raise DataError(busy, hint=_("Look for that run in a moment."))


def _discard_run(run: Run) -> None:
    """Delete a run that was never shown; its name and its files are free again at once."""
    with transaction.atomic():
        hidden = Run.all_objects.filter(pk=run.pk).exclude(removed_at=None)
        if hidden.update(name=str(run.pk), idempotency_key=None):
            removal_add(run.name, [run_dir(run.pk)], run.project, kind="runs.run", object_id=run.pk)


def _attempt_folders(folder: Path) -> dict[int, Path]:
    """Folders with a journal by attempt: the folder itself, or its numbered folders."""
    if (folder / JOURNAL_NAME).is_file():
        return {1: folder}
    numbered = [path for path in folder.glob("*") if path.name.isdecimal() and (path / JOURNAL_NAME).is_file()]
    if not numbered:
        raise DataError(f"{folder} holds no {JOURNAL_NAME}.", hint="Give the --run-dir of a standalone run.")
    return dict(enumerate(sorted(numbered, key=lambda path: int(path.name)), start=1))


def _import_key(sources: dict[int, Path]) -> str:
    started = _run_started_event(sources)
    if started is not None and started.versions.get("source_sha256"):  # a foreign run is known by its files
        return f"import:{started.versions['source_sha256'][:56]}"
    digest = hashlib.sha256()
    for source in sources.values():
        with open(source / JOURNAL_NAME, "rb") as file:
            digest.update(file.readline(1 << 16))
    return f"import:{digest.hexdigest()[:56]}"


def _config_of(sources: dict[int, Path]) -> JobConfig:
    for source in reversed(sources.values()):
        path = source / "config.yaml"
        if path.is_file():
            try:
                return config_load(path)
            except (ConfigError, ValueError) as exc:
                raise DataError(f"{path} is not a job's config: {exc}") from exc
    started = _run_started_event(sources)
    return JobConfig(kind=started.kind) if started else JobConfig()


def _run_started_event(sources: dict[int, Path]) -> RunStarted | None:
    """The first event that says that a trainer is up."""
    for source in sources.values():
        for line in read_lines(source / JOURNAL_NAME, 0, 0):
            event = parse_line(line)
            if isinstance(event, RunStarted):
                return event
    return None


def _first_and_last_time(journal: Path) -> tuple[datetime, datetime] | None:
    """When the first and the last event of a journal were written, of those that can be read."""
    with open(journal, "rb") as file:
        file.seek(max(0, journal.stat().st_size - TAIL_BYTES))
        file.readline()  # the first line may be incomplete
        tail = file.tell()
    lines = [*read_lines(journal, 0, 0)[:1], *read_lines(journal, tail, 1)]
    times = [event.t for event in map(parse_line, lines) if not isinstance(event, str)]
    return (datetime.fromtimestamp(times[0], UTC), datetime.fromtimestamp(times[-1], UTC)) if times else None


def _free_name(project: Project, wanted: str) -> str:
    kept = "".join(letter if letter.isalnum() or letter in " ._()+-" else "-" for letter in wanted)
    base = kept.lstrip(" .()+-")[:70] or "imported"
    taken = set(Run.all_objects.filter(project=project, name__startswith=base).values_list("name", flat=True))
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base} ({number})"
    return name


def _copy_files(source: Path, target: Path) -> None:
    target.mkdir(parents=True, mode=0o700)
    for name in FILES:
        if (source / name).is_file() and not (source / name).is_symlink():
            shutil.copyfile(source / name, target / name)
    for path in _saved_paths(target / JOURNAL_NAME):
        try:
            origin, place = inside(source, path), inside(target, path)
        except ValueError:
            continue
        if origin.is_dir() and place != target.resolve() and not place.exists():
            shutil.copytree(origin, place, ignore=_symlinks)


def _symlinks(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_symlink()]


def _saved_paths(journal: Path) -> list[str]:
    paths, offset, number = [], 0, 0
    while lines := read_lines(journal, offset, number):
        events = [parse_line(line) for line in lines]
        paths += [event.path for event in events if isinstance(event, CheckpointSaved)]
        offset, number = lines[-1].end, lines[-1].number
    return paths


def _save_hidden(run: Run, sources: dict[int, Path], config: JobConfig) -> None:
    run.config = run.resolved = config.model_dump(mode="json")
    run.state, run.attempt, run.lease_owner = RunState.RUNNING, max(sources), OWNER
    run.total_steps = config.run.max_steps
    started = _run_started_event(sources)
    run.imported_from = clean_text(started.versions.get("source", ""))[:60] if started else ""
    run.removed_at = run.last_event_at = timezone.now()
    run.save(force_insert=True)


def _project_journals(run: Run, sources: dict[int, Path]) -> None:
    for number in sources:
        Attempt.objects.create(run=run, number=number, owner=OWNER, started_at=Now())
        projector = Projector(Lease(run.pk, run.attempt, OWNER), number)
        while projector.step():
            Run.all_objects.filter(pk=run.pk).update(last_event_at=Now())


def _end_and_show(run: Run, sources: dict[int, Path]) -> None:
    """End the run, as its journal says, with the journal's times, and show it."""
    Run.all_objects.filter(pk=run.pk).update(removed_at=None)
    events = RunEvent.objects.filter(run=run)
    first, last = events.order_by("at").first(), events.order_by("-at").first()
    has_end = Attempt.objects.filter(run=run, outcome__isnull=False).exists()
    attempt_end(Lease(run.pk, run.attempt, OWNER), None if has_end else NO_END)
    for number, source in sources.items():  # as its trainer says; reading it took another time
        if (lasted := _first_and_last_time(source / JOURNAL_NAME)) is not None:
            Attempt.objects.filter(run=run, number=number).update(started_at=lasted[0], ended_at=lasted[1])
    if first is not None and last is not None:
        Run.objects.filter(pk=run.pk).update(queued_at=first.at, started_at=first.at, finished_at=last.at)
    if run.imported_from:  # the times in its files, if any, are too coarse for the duration of a step
        Run.objects.filter(pk=run.pk).update(step_seconds=None)
        Run.objects.filter(pk=run.pk, started_at=F("finished_at")).update(started_at=None)


# Runs of other trainers: the uploaded files are stored now, and read by a worker (``webapp.common.work``).

logger = logging.getLogger(__name__)
READ_WALL_S = 840
MAX_OPEN = 3


def import_create(
    *, project: Project, user: User | None, name: str, files: Sequence[File[bytes]], source_run: str = ""
) -> RunImport:
    """Store the files of one run and have them read; ``source_run`` is meant where a table has several.

    Raises ``ValidationError`` by field.
    """
    sizes = [int(file.size or 0) for file in files]
    if not files or not sum(sizes):
        raise ValidationError(
            {"uploads": gettext("The file is empty.") if files else gettext("Choose at least one file.")}
        )
    if sum(sizes) > settings.MAX_UPLOAD_BYTES:
        raise ValidationError({"uploads": too_large_sentence()}, code="too_large")
    if shutil.disk_usage(settings.DATA_DIR).free < sum(sizes) * 4 + KEEP_FREE_BYTES:
        raise ValidationError({"uploads": gettext("The server's disk is nearly full, so the files were not kept.")})
    if RunImport.objects.filter(project=project, state=ImportState.READING).count() >= MAX_OPEN:
        raise ValidationError(gettext("Other imports of this project are being read; wait until one is done."))
    item = RunImport(
        id=uuid.uuid4(),
        project=project,
        name=clean_name(name) if name.strip() else "",
        source_run=clean_text(source_run).strip(),
        created_by=user,
        files=[{"name": _shown_name(file.name), "bytes": size} for file, size in zip(files, sizes, strict=True)],
    )
    try:
        for number, file in enumerate(files):
            file_store(file, _file_path(item, number))
        with transaction.atomic():
            item.save(force_insert=True)
            work.enqueue(item)
            audit(AuditAction.RUN_IMPORTED, item, by=user, subject=item.name or item.files[0]["name"])
    except BaseException:
        shutil.rmtree(import_dir(item.pk), ignore_errors=True)
        raise
    logger.info("import uploaded", extra={"import_id": item.pk, "project_id": project.pk, "bytes": sum(sizes)})
    return item


def _shown_name(name: str | None) -> str:
    return clean_text((name or "").replace("\n", " "))[-200:] or "file"


def _file_path(item: RunImport, number: int) -> Path:
    return import_dir(item.pk) / "files" / str(number)


def import_read(claim: Claim[RunImport]) -> None:
    """Read a claimed import in a limited child process, and make its folder a run."""
    item = claim.item
    folder = import_dir(item.pk) / claim.token
    given = [Given(_file_path(item, number), file["name"]) for number, file in enumerate(item.files)]
    limits = CheckLimits(max_rows=settings.MAX_DATASET_ROWS, wall_s=READ_WALL_S)
    claim.report({"stage": "reading"}, at_once=True)
    try:
        report = read_files(
            given,
            folder,
            limits=limits,
            on_progress=lambda progress: claim.report({"stage": "reading", **progress._asdict()}),
            run=item.source_run,
        )
        if report.verdict == "rejected":
            claim.finish(state=ImportState.REJECTED, report=_storable_report(report))
        else:
            _make_run(claim, report, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def import_failed(_item: RunImport, error: TiltyardError) -> dict[str, Any]:
    """The columns of an import that failed."""
    return {"state": ImportState.REJECTED, "report": _refusal_report(error.message)}


def import_ended(item: RunImport) -> None:
    """Delete the uploaded files, which are not needed any more."""
    shutil.rmtree(import_dir(item.pk), ignore_errors=True)


def _make_run(claim: Claim[RunImport], report: ImportReport, folder: Path) -> None:
    """Make the folder a run. A worker that takes over a lost import finds the run there already, by its files."""
    item = claim.item
    claim.report({"stage": "storing", "rows": report.rows_in - report.bad_rows}, at_once=True)
    name = item.name or item.files[0]["name"].rsplit("/", 1)[-1].rsplit(".", 1)[0]
    try:
        run, new = run_import(project=item.project, folder=folder, name=name, user=item.created_by)
    except IntegrityError:  # another import made the same run, or one of this name, just now
        run, new = run_import(project=item.project, folder=folder, name=name, user=item.created_by)
    claim.finish(state=ImportState.DONE, report=_storable_report(report), run=run, is_new=new)


def _refusal_report(why: str) -> dict[str, Any]:
    """The report of files that were not read; the worker does not know the reader's language, so the sentence is
    translated when shown."""
    return dict(clean_json({"message": str(why), "told": [Sentence.of(why).data]}))


def _storable_report(report: ImportReport) -> dict[str, Any]:
    return dict(clean_json(report.model_dump(mode="json")))


def imports_of(project: Project) -> QuerySet[RunImport]:
    """A project's imports, newest first."""
    return RunImport.objects.filter(project=project).select_related("project", "run", "created_by")


def percent_of(item: RunImport) -> int:
    """The progress of the reading, 0 to 100."""
    if item.progress.get("stage") == "storing":
        return 100
    total = int(item.progress.get("total") or 0)
    return min(100, round(100 * int(item.progress.get("bytes") or 0) / total)) if total else 0


# The report on a foreign run's files, in the reader's language.

REPORT_BYTES = 8 << 20


def import_report(run: Run) -> dict[str, Any]:
    """The report on a foreign run's files, from the run's folder; empty for a run of ours."""
    if not run.imported_from:
        return {}
    try:
        with open(attempt_dir(run.pk, run.attempt) / REPORT_NAME, "rb") as file:
            return import_view(json.loads(file.read(REPORT_BYTES)))
    except (OSError, ValueError):
        return {}


def import_view(report: dict[str, Any]) -> dict[str, Any]:
    """An import's report as pages show it."""
    titles = {reader.name: gettext(reader.title) for reader in READERS}
    files = [item | {"title": titles.get(item.get("kind", ""), "")} for item in report.get("files", [])]
    bad = sum(int(item.get("bad_rows", 0)) for item in files)
    left_out = [
        {"file": item.get("name", ""), "column": column, "why": translated(why)}
        for item in files
        for column, why in item.get("left_out", {}).items()
    ]
    notes = [*dict.fromkeys(note for item in files for note in _file_notes(item))]
    texts = {"message": message_of(report), "tool": translated(report.get("tool"))}
    listed = {name: [_with_reason(item) for item in report.get(name, [])] for name in ("bad", "remarks")}
    return report | texts | listed | {"files": files, "bad_rows": bad, "columns": left_out[:200], "notes": notes[:50]}


def _file_notes(item: dict[str, Any]) -> list[str]:
    """The notes on a file; reports of earlier versions have only the English sentences."""
    return [in_words(found) for found in item.get("told") or []] or [str(text) for text in item.get("notes", [])]


def _with_reason(item: dict[str, Any]) -> dict[str, Any]:
    return item | {"reason": in_words(item["told"])} if item.get("told") else item
