"""Applying the rules: decided for a run under its lock, hidden at once, deleted by a worker as any deletion.

1. Every five minutes the clockwork measures runs that have ended (``measuring.py``), then looks at each project with a
   rule, and takes at most ``AT_ONCE`` runs in all, those that ended first first.
2. Of each, one transaction locks the run, looks again whether it ended and nothing keeps it, and writes the ``Expiry``
   that pages show, the ``Removal`` for a worker, and the row of the audit.
3. One that fails is logged, and the others are still done. A worker that fails leaves its ``Removal`` as failed, which
   the pages of the team show with its cause.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from django.db import transaction
from django.db.models import Count, Sum
from django.db.models.functions import Now
from django.template.defaultfilters import filesizeformat
from django.utils import timezone

from webapp.common.errors import DATABASE_AWAY
from webapp.common.workers.beating import folder_problem
from webapp.people.teams.audit import audit_rule
from webapp.people.teams.models import AuditAction, Project
from webapp.retention.candidates import Forecast, Item, checkpoints_free, due, forecast_of, items_of
from webapp.retention.measuring import files_of, measure_some, unmeasured
from webapp.retention.rules import Rule, rules_of
from webapp.runs.models import Attempt, Run
from webapp.runs.registry.models import Checkpoint, CheckpointState
from webapp.runs.removal.models import Expiry, Kept, StoredSize
from webapp.runs.removal.services import EXPIRY, removal_add
from webapp.runs.states import TERMINAL

logger = logging.getLogger(__name__)
AT_ONCE = 50
FREED_WITHIN = timedelta(days=30)


def look() -> int:
    """Measure what has ended, then apply the rules of all projects; return from how many runs something is removed."""
    if folder_problem():
        return 0
    measure_some()
    count = 0
    for project in Project.objects.order_by("pk").iterator(chunk_size=100):
        if count >= AT_ONCE:
            break
        count += apply(project, AT_ONCE - count)
    return count


def apply(project: Project, most: int = AT_ONCE) -> int:
    """Remove what the rules of a project say, from ``most`` runs at most. Returns how many that were."""
    rules = {kind: rule for kind, rule in rules_of(project).items() if rule.limits}
    if not rules:
        return 0
    items, now, count = items_of(project), timezone.now(), 0
    for kind, rule in rules.items():
        for item, by in due(items[kind], rule, now):
            if count >= most:
                return count
            about = {"action": "retention", "run_id": str(item.run), "kind": kind}
            try:
                count += expire(project, kind, rule, item, by)
            except DATABASE_AWAY:
                raise
            except Exception:  # one that cannot be removed must not keep the others
                logger.exception("not removed by its rule", extra=about)
    return count


def expire(project: Project, kind: Kept, rule: Rule, item: Item, by: str) -> bool:
    """Remove one kind of one run, unless it has been resumed, is kept by now, or has nothing left."""
    with transaction.atomic():
        # Not ``no_key``: a star or a vote that is given meanwhile waits for this decision.
        run = Run.objects.select_for_update().filter(pk=item.run, state__in=TERMINAL).first()
        found = items_of(project, run=item.run)[kind] if run is not None else []
        if run is None or not found or found[0].kept:
            return False
        bytes_, number, paths = _hide(project, run, kind, found[0])
        name = f"{run.name}: {kind.label}"
        expiry = Expiry(
            project=project, run=run, run_name=run.name, kind=kind, bytes=bytes_, number=number, seq=run.seq
        )
        expiry.rule = {"days": rule.days, "gib": rule.gib, "by": by}
        expiry.removal = removal_add(name, paths, project, kind=EXPIRY, object_id=expiry.pk)
        expiry.save(force_insert=True)
        subject = f"{name} · {filesizeformat(bytes_)}"
        audit_rule(AuditAction.RETENTION_APPLIED, run, project=project, subject=subject)
    logger.info("removed by its rule", extra={"action": "retention", "run_id": str(run.pk), "kind": kind, "by": by})
    return True


def _hide(project: Project, run: Run, kind: Kept, item: Item) -> tuple[int, int, list[Path]]:
    """Note on the run's rows that it is gone; bytes, number and paths of what a worker deletes."""
    sizes = StoredSize.objects.filter(run=run)
    if kind == Kept.CHECKPOINTS:
        rows = list(checkpoints_free(project, run.pk))
        gone = Checkpoint.objects.filter(pk__in=[row.pk for row in rows])
        gone.update(state=CheckpointState.REMOVED, removed_at=Now())
        return item.bytes, len(rows), [row.folder for row in rows]
    paths = files_of(run, kind)
    if kind == Kept.WORDS:
        paths += files_of(run, Kept.TOKENS)  # the ids of tokens spell what was said
        sizes.update(words=0, tokens=0, turns=0, sampled=0)
        # The journal is gone, so a backup must not miss it.
        Attempt.objects.filter(run=run).update(journal_offset=0, journal_line=0)
        return item.bytes, item.number, paths
    sizes.update(**{kind.value: 0})
    return item.bytes, len(paths), paths


# --- For people -----------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A kind on the page: its rule, what there is of it, what is kept and why, and what its rule frees."""

    kind: Kept
    rule: Rule
    items: Sequence[Item]
    forecast: Forecast

    @property
    def bytes(self) -> int:
        """All bytes, those that are kept too."""
        return sum(item.bytes for item in self.items)

    @property
    def kept(self) -> list[Item]:
        """What no rule removes, because something refers to its run."""
        return [item for item in self.items if item.kept]


@dataclass(frozen=True)
class Overview:
    """What a project's rules free: now, within 30 days, and what they freed in the last 30.

    ``turns`` rows of the database are estimated from ``sampled`` of them. ``unmeasured`` runs have ended and are not
    measured yet: they are in no figure.
    """

    rows: list[Row]
    unmeasured: int
    turns: int
    sampled: int
    freed: int
    freed_runs: int

    @property
    def now_bytes(self) -> int:
        """What the rules free now."""
        return sum(row.forecast.now_bytes for row in self.rows)

    @property
    def now_runs(self) -> int:
        """From how many runs."""
        return len({item.run for row in self.rows for item in row.forecast.now})

    @property
    def later_bytes(self) -> int:
        """What they free within 30 days besides."""
        return sum(row.forecast.later_bytes for row in self.rows)

    @property
    def recent(self) -> int:
        """Runs that ended in the last 30 days: the rate is theirs."""
        return max((row.forecast.recent for row in self.rows if row.rule.limits), default=0)

    @property
    def aging(self) -> int:
        """Runs that reach an age limit within 30 days; counted by kind."""
        return sum(row.forecast.aging for row in self.rows)


def overview(project: Project, rules: dict[Kept, Rule] | None = None, now: datetime | None = None) -> Overview:
    """What the rules of a project free, or what these rules would, from what was measured."""
    now = now or timezone.now()
    rules, items = rules or rules_of(project), items_of(project)
    # What waits for the end of the words goes with them, so that nothing is counted twice.
    words = {item.run for item, _by in due(items[Kept.WORDS], rules[Kept.WORDS], now)}
    items[Kept.TOKENS] = [item for item in items[Kept.TOKENS] if item.run not in words]
    rows = [Row(kind, rules[kind], items[kind], forecast_of(items[kind], rules[kind], now)) for kind in Kept]
    sampled = StoredSize.objects.filter(run__project=project, run__removed_at=None)
    sums = sampled.aggregate(turns=Sum("turns"), sampled=Sum("sampled"))
    freed = Expiry.objects.filter(project=project, at__gt=now - FREED_WITHIN)
    found = freed.aggregate(bytes=Sum("bytes"), runs=Count("run_name", distinct=True))
    return Overview(
        rows,
        unmeasured().filter(project=project).count(),
        sums["turns"] or 0,
        sums["sampled"] or 0,
        found["bytes"] or 0,
        found["runs"],
    )


def lately_freed(project: Project, most: int = 20) -> list[Expiry]:
    """The newest removals by rules, with the state of their deletion."""
    return list(Expiry.objects.filter(project=project).select_related("run__project", "removal")[:most])
