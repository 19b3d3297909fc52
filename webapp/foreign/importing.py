"""A standalone run's folder as a run in the browser.

1. The folder is known by the first lines of its journals; a project takes the same one once (the unique idempotency
   key).
2. Journals, logs, config and the checkpoints that the journals name are copied under the data folder; links are not
   followed.
3. Run, attempts and every row are written in one transaction, by the same projection as a live run: all of it or
   nothing.
"""

from __future__ import annotations

import hashlib
import shutil
from datetime import UTC, datetime
from pathlib import Path

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from training.config import JobConfig, config_load
from training.errors import Boundary, ConfigError, DataError, ErrorInfo
from training.imports.read import REPORT_NAME
from training.journal import JOURNAL_NAME, CheckpointSaved, RunStarted
from webapp.engine.history import Lease
from webapp.engine.outcome import attempt_end
from webapp.engine.projection import Projector, parse_line, read_lines
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.states import RunState
from webapp.storage import attempt_dir, inside, run_dir
from webapp.teams.models import Project, User
from webapp.text import clean_text

OWNER = "import"
TAIL_BYTES = 1 << 16  # of a journal, in which its last event lies
FILES = (JOURNAL_NAME, "config.yaml", "output.log", "log.txt", REPORT_NAME)
NO_END = ErrorInfo(
    code="trainer_died",
    boundary=Boundary.TRAINER,
    message="The imported journal has no end: the trainer died, or it still ran when it was imported.",
)


def run_import(*, project: Project, folder: Path, name: str = "", user: User | None = None) -> tuple[Run, bool]:
    """Import ``folder``; returns the run and whether it is new. Raises ``DataError`` when it holds no journal."""
    sources = _attempts(folder)
    key = _key(sources)
    found = Run.objects.filter(project=project, idempotency_key=key).first()
    if found is not None:
        return found, False
    config = _config(sources)
    run = Run(project=project, name=_free_name(project, name or folder.resolve().name), kind=config.kind)
    try:
        for number, source in sources.items():
            _copy(source, attempt_dir(run.pk, number))
        with transaction.atomic():
            _write(run, sources, config, key, user)
    except BaseException:
        shutil.rmtree(run_dir(run.pk), ignore_errors=True)
        raise
    run.refresh_from_db()
    return run, True


def _attempts(folder: Path) -> dict[int, Path]:
    """Folders with a journal by attempt: the folder itself, or its numbered folders."""
    if (folder / JOURNAL_NAME).is_file():
        return {1: folder}
    numbered = [path for path in folder.glob("*") if path.name.isdecimal() and (path / JOURNAL_NAME).is_file()]
    if not numbered:
        raise DataError(f"{folder} holds no {JOURNAL_NAME}.", hint="Give the --run-dir of a standalone run.")
    return dict(enumerate(sorted(numbered, key=lambda path: int(path.name)), start=1))


def _key(sources: dict[int, Path]) -> str:
    started = _started(sources)
    if started is not None and started.versions.get("source_sha256"):  # a foreign run is known by its files
        return f"import:{started.versions['source_sha256'][:56]}"
    digest = hashlib.sha256()
    for source in sources.values():
        with open(source / JOURNAL_NAME, "rb") as file:
            digest.update(file.readline(1 << 16))
    return f"import:{digest.hexdigest()[:56]}"


def _config(sources: dict[int, Path]) -> JobConfig:
    for source in reversed(sources.values()):
        path = source / "config.yaml"
        if path.is_file():
            try:
                return config_load(path)
            except (ConfigError, ValueError) as exc:
                raise DataError(f"{path} is not a job's config: {exc}") from exc
    started = _started(sources)
    return JobConfig(kind=started.kind) if started else JobConfig()


def _started(sources: dict[int, Path]) -> RunStarted | None:
    """The first event that says that a trainer is up."""
    for source in sources.values():
        for line in read_lines(source / JOURNAL_NAME, 0, 0):
            event = parse_line(line)
            if isinstance(event, RunStarted):
                return event
    return None


def _lasted(journal: Path) -> tuple[datetime, datetime] | None:
    """When the first and the last event of a journal were written, of those that can be read."""
    with open(journal, "rb") as file:
        file.seek(max(0, journal.stat().st_size - TAIL_BYTES))
        file.readline()  # of which a part may be missing
        tail = file.tell()
    lines = [*read_lines(journal, 0, 0)[:1], *read_lines(journal, tail, 1)]
    times = [event.t for event in map(parse_line, lines) if not isinstance(event, str)]
    return (datetime.fromtimestamp(times[0], UTC), datetime.fromtimestamp(times[-1], UTC)) if times else None


def _free_name(project: Project, wanted: str) -> str:
    kept = "".join(letter if letter.isalnum() or letter in " ._()+-" else "-" for letter in wanted)
    base = kept.lstrip(" .()+-")[:70] or "imported"
    taken = set(Run.objects.filter(project=project, name__startswith=base).values_list("name", flat=True))
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base} ({number})"
    return name


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True, mode=0o700)
    for name in FILES:
        if (source / name).is_file() and not (source / name).is_symlink():
            shutil.copyfile(source / name, target / name)
    for path in _checkpoints(target / JOURNAL_NAME):
        try:
            origin, place = inside(source, path), inside(target, path)
        except ValueError:
            continue
        if origin.is_dir() and place != target.resolve() and not place.exists():
            shutil.copytree(origin, place, ignore=_links)


def _links(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_symlink()]


def _checkpoints(journal: Path) -> list[str]:
    paths, offset, number = [], 0, 0
    while lines := read_lines(journal, offset, number):
        events = [parse_line(line) for line in lines]
        paths += [event.path for event in events if isinstance(event, CheckpointSaved)]
        offset, number = lines[-1].end, lines[-1].number
    return paths


def _write(run: Run, sources: dict[int, Path], config: JobConfig, key: str, user: User | None) -> None:
    run.config = run.resolved = config.model_dump(mode="json")
    run.state, run.attempt, run.lease_owner = RunState.RUNNING, max(sources), OWNER
    run.imported, run.idempotency_key, run.created_by = True, key, user
    run.total_steps = config.run.max_steps
    started = _started(sources)
    run.imported_from = clean_text(started.versions.get("source", ""))[:60] if started else ""
    run.save(force_insert=True)
    lease = Lease(run.pk, run.attempt, OWNER)
    for number in sources:
        Attempt.objects.create(run=run, number=number, owner=OWNER, started_at=Now())
        Projector(lease, number).drain()
    events = RunEvent.objects.filter(run=run)
    first, last = events.order_by("at").first(), events.order_by("-at").first()
    has_end = Attempt.objects.filter(run=run, outcome__isnull=False).exists()
    attempt_end(lease, None if has_end else NO_END)
    for number, source in sources.items():  # as its trainer says; reading it took another time
        if (lasted := _lasted(source / JOURNAL_NAME)) is not None:
            Attempt.objects.filter(run=run, number=number).update(started_at=lasted[0], ended_at=lasted[1])
    if first is not None and last is not None:
        Run.objects.filter(pk=run.pk).update(queued_at=first.at, started_at=first.at, finished_at=last.at)
    if run.imported_from:  # the times in its files, if any, are too coarse to tell how long a step takes
        Run.objects.filter(pk=run.pk).update(step_seconds=None)
        Run.objects.filter(pk=run.pk, started_at=F("finished_at")).update(started_at=None)
