"""The size of what ended runs take up, measured once for each by the clockwork: a page cannot walk folders."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID

from django.db.models import Count, F, IntegerField, Q, QuerySet, Sum
from django.db.models.expressions import Func
from django.db.models.functions import Coalesce

from training.journal import JOURNAL_NAME
from training.token_file import FOLDER as TOKENS
from webapp.common import storage
from webapp.runs.models import Run
from webapp.runs.removal.models import Kept, StoredSize
from webapp.runs.removal.services import bytes_of
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import TERMINAL

FILES: dict[Kept, tuple[str, ...]] = {
    Kept.WORDS: (JOURNAL_NAME, f"actors/*/{JOURNAL_NAME}"),
    Kept.TOKENS: (TOKENS,),
    Kept.LOGS: ("*.log", "logs", "actors/*/*.log"),
}
"""The files and folders of each kind in an attempt's folder."""
SECONDS = 20.0
STEPS, OF_STEP = 20, 20
ROW_BYTES = 80  # of a turn besides its texts: the header, numbers and ids


def files_of(run: Run, kind: Kept) -> list[Path]:
    """What lies in the folders of a run's attempts of a kind that is kept in files, by path."""
    found: list[Path] = []
    for number in range(1, run.attempt + 1):
        folder = storage.attempt_dir(run.pk, number)
        found += [path for pattern in FILES[kind] for path in sorted(folder.glob(pattern))]
    return found


def unmeasured() -> QuerySet[Run]:
    """Runs that ended and were not measured since."""
    known = Q(stored__measured_at__gte=Coalesce("finished_at", "created_at"))
    return Run.objects.filter(state__in=TERMINAL).exclude(known).order_by("finished_at", "pk")


def measure_some() -> int:
    """Measure for a while; return how many runs were."""
    until, count = time.monotonic() + SECONDS, 0
    for run in unmeasured().iterator(chunk_size=100):
        measure(run)
        count += 1
        if time.monotonic() > until:
            break
    return count


def measure(run: Run) -> StoredSize:
    """Measure what one run takes up, and keep it."""
    turns = Turn.objects.filter(run=run).count()
    sampled, in_sample = _sample(run) if turns else (0, 0)
    in_database = round(turns * in_sample / sampled) if sampled else 0
    sizes = {kind: _bytes_of_files(files_of(run, kind)) for kind in FILES}
    values = {
        "words": in_database + sizes[Kept.WORDS],
        "tokens": sizes[Kept.TOKENS],
        "logs": sizes[Kept.LOGS],
        "turns": turns,
        "sampled": sampled,
    }
    return StoredSize.objects.update_or_create(run=run, defaults=values)[0]


def _sample(run: Run) -> tuple[int, int]:
    """How many turns were looked at, and their bytes: of a few rollouts of steps all over the run."""
    steps = sorted(Rollout.objects.filter(run=run).order_by().values_list("step", flat=True).distinct())
    chosen = steps[:: max(1, -(-len(steps) // STEPS))]
    ids = list(_some_of_each(run, chosen))
    size = Func(F("messages"), function="pg_column_size", output_field=IntegerField())
    words = Coalesce(Func(F("words"), function="pg_column_size", output_field=IntegerField()), 0)
    wrote = Func(F("wrote"), function="pg_column_size", output_field=IntegerField())
    found = Turn.objects.filter(rollout__in=ids).aggregate(n=Count("number"), bytes=Sum(size + words + wrote))
    return found["n"], (found["bytes"] or 0) + ROW_BYTES * found["n"]


def _some_of_each(run: Run, steps: Iterable[int]) -> Iterator[UUID]:
    for step in steps:
        rows = Rollout.objects.filter(run=run, step=step).order_by("group", "index")
        yield from rows.values_list("pk", flat=True)[:OF_STEP]


def _bytes_of_files(paths: list[Path]) -> int:
    return bytes_of(path for path in paths if path.is_dir()) + sum(
        path.lstat().st_size for path in paths if not path.is_dir()
    )
