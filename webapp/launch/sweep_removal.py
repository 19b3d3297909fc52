"""Deleting a sweep: its page alone, or all of its runs too."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.common import storage
from webapp.common.text import first_names
from webapp.launch.models import Sweep
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction
from webapp.runs.models import Run
from webapp.runs.removal.services import BUSY, SHOWN, Forecast, bytes_of, remove, used_by
from webapp.runs.rollouts.models import Rollout


def sweep_delete(*, sweep: Sweep, with_runs: bool = False) -> None:
    """Delete a sweep; its runs stay, unless they are deleted ``with_runs``.

    Raises ``ValidationError``, and then deletes nothing, while one of these runs is open or something uses it.
    """
    with transaction.atomic():
        if with_runs:
            _delete_runs(sweep)
        audit(AuditAction.SWEEP_DELETED, sweep)
        sweep.delete()


def _delete_runs(sweep: Sweep) -> None:
    ids = [run.pk for run in runs_there(sweep)]
    list(Run.objects.filter(pk__in=ids).select_for_update(no_key=True).order_by("pk").values_list("pk"))
    runs = runs_there(sweep)
    if against := _obstacles(runs):
        raise ValidationError(" ".join(against), code="conflict")
    for run in runs:
        remove(run)


def runs_there(sweep: Sweep) -> list[Run]:
    """The runs of a sweep that were not deleted, in their order."""
    return list(Run.objects.filter(sweep_run__sweep=sweep).select_related("project").order_by("sweep_run__number"))


def sweep_forecast(sweep: Sweep) -> Forecast:
    """The effects of deleting a sweep with its runs, and what blocks it."""
    runs = runs_there(sweep)
    rollouts = Rollout.objects.filter(run__in=runs).count()
    lost = [
        ngettext("%(n)s run with all that it recorded", "%(n)s runs with all that they recorded", len(runs))
        % {"n": len(runs)},
        ngettext("%(n)s rollout with its turns", "%(n)s rollouts with their turns", rollouts) % {"n": rollouts},
    ]
    return Forecast(sweep.name, bytes_of(storage.run_dir(run.pk) for run in runs), lost, _obstacles(runs))


def _obstacles(runs: Sequence[Run]) -> list[str]:
    """Sentences on why the runs cannot be deleted now; empty where they can."""
    if busy := [run.name for run in runs if run.state in BUSY]:
        sentence = _("Runs have not ended: %(names)s. Stop them first, or delete the sweep alone.")
        return [sentence % {"names": first_names(busy, SHOWN)}]
    return [f"{run.name}: {reason}" for run in runs for reason in used_by(run)]
