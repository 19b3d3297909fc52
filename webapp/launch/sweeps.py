"""Sweeps: what one would launch, and launching all of its runs at once.

A run of a sweep is launched as any other (``webapp.launch.background``): a draft that a worker checks and queues. All
of them are made in one transaction, or none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.config import Axis, JobConfig, Mode, Point, Value, base_setting, points_of, typed_axes, written
from training.errors import ConfigError
from webapp.common import storage
from webapp.common.pages import clean_name
from webapp.common.text import first_names
from webapp.engine.resolve import resolve
from webapp.launch.background import launch_checked
from webapp.launch.estimates import disk_forecast
from webapp.launch.findings import option_name
from webapp.launch.models import Sweep, SweepRun
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.models import Run
from webapp.runs.removal.services import BUSY, SHOWN, Forecast, bytes_of, remove, used_by
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import Priority

MOST_NAME, MOST_VALUE = 80, 24
SHORT = {
    "optim.learning_rate": "lr",
    "model.lora_rank": "rank",
    "model.source": "model",
    "data.train": "data",
    "environment.name": "env",
    "rewards.spec": "reward",
    "rollout.temperature": "temp",
    "rollout.num_generations": "group",
    "rollout.prompts_per_step": "prompts",
    "run.max_steps": "steps",
}
"""How a name of a run calls an option; all others by the last part of their path."""


class Plan(NamedTuple):
    """What a sweep would launch. ``steps``: of all runs together, 0 where none trains; ``bytes``: on the disk, ``None``
    where the size of a model is not known."""

    points: list[Point]
    axes: list[Axis]
    mode: Mode
    steps: int
    bytes: int | None

    @property
    def counts(self) -> str:
        """How many runs there are, and of what: ``Learning rate (3) × Seed (2) = 6 runs``."""
        total = ngettext("%(n)d run", "%(n)d runs", len(self.points)) % {"n": len(self.points)}
        if self.mode == "single":
            return _("%(runs)s: the setting of the form, and one for each change") % {"runs": total}
        parts = " × ".join(f"{axis_title(axis.option)} ({len(axis.values)})" for axis in self.axes)
        return _("%(parts)s = %(runs)s") % {"parts": parts, "runs": total}

    @property
    def words(self) -> str:
        """The counts, with all steps and bytes together."""
        more = []
        if self.steps:
            more.append(ngettext("%(n)s step in all", "%(n)s steps in all", self.steps) % {"n": f"{self.steps:,}"})
        if self.bytes is not None:
            more.append(_("about %(bytes)s on the disk") % {"bytes": filesizeformat(self.bytes)})
        else:
            more.append(_("bytes on the disk: not known, as the size of the model is not"))
        return " · ".join([self.counts, *more])


def axis_title(option: str) -> str:
    """The title of an option that is varied, in the reader's language."""
    return _("Method") if option == "kind" else option_name(option)


def plan_of(project: Project, config: JobConfig, axes: Sequence[Axis], mode: Mode) -> Plan:
    """What would be launched. Raises ``ConfigError``, whose option names the axis."""
    points = points_of(config, axes, mode)
    steps, size = 0, 0
    known = True
    for point in points:
        try:
            resolved = resolve(project, point.config).config
        except ConfigError as exc:
            raise at_axis(exc, axes) from exc
        steps += resolved.run.max_steps if resolved.method.trains else 0
        forecast = disk_forecast(resolved)
        known, size = known and forecast is not None, size + (forecast.total if forecast else 0)
    return Plan(points, typed_axes(config, axes), mode, steps, size if known else None)


def at_axis(exc: ConfigError, axes: Sequence[Axis]) -> ConfigError:
    """A problem of one of the jobs, at the axis that varies the option where there is one."""
    place = next((place for place, axis in enumerate(axes) if axis.option == exc.option), None)
    return exc if place is None else ConfigError(exc.sentence, option=f"axes.{place}.values", hint=exc.hint)


def sweeps_of(project: Project) -> QuerySet[Sweep]:
    """The project's sweeps, the newest first; one whose runs were all deleted is no longer one."""
    there = SweepRun.objects.filter(sweep=OuterRef("pk"), run__removed_at=None)
    return Sweep.objects.filter(Exists(there), project=project).select_related("created_by")


def sweep_create(
    *,
    project: Project,
    user: User,
    name: str,
    config: JobConfig,
    axes: Sequence[Axis],
    mode: Mode = "product",
    idempotency_key: str | None = None,
    anyway: bool = False,
    priority: Priority | None = None,
) -> Sweep:
    """Launch all runs of a sweep with one ``priority``, or none. Sent twice under one key it is one sweep.

    Raises ``ValidationError`` for the name and ``ConfigError``, whose option names the axis.
    """
    key = idempotency_key or None
    if key and (found := Sweep.objects.filter(project=project, idempotency_key=key).first()):
        return found
    name = clean_name(name)
    points, typed = points_of(config, axes, mode), typed_axes(config, axes)
    try:
        with transaction.atomic():
            Sweep.objects.filter(project=project, name=name).exclude(pk__in=sweeps_of(project).values("pk")).delete()
            sweep = Sweep.objects.create(
                project=project,
                name=name,
                mode=mode,
                config=config.model_dump(mode="json"),
                axes=[{"option": axis.option, "values": list(axis.values)} for axis in typed],
                base=base_setting(config, typed, mode),
                points=[point.values for point in points],
                idempotency_key=key,
                created_by=user,
            )
            _launch(sweep, user, points, anyway, priority)
    except IntegrityError as exc:
        if key and (found := Sweep.objects.filter(project=project, idempotency_key=key).first()):
            return found  # the first of two clicks
        raise ConfigError(_("there is a sweep named '%(name)s' already") % {"name": name}, option="name") from exc
    return sweep


def _launch(sweep: Sweep, user: User, points: Sequence[Point], anyway: bool, priority: Priority | None) -> None:
    names = run_names(sweep.name, [point.values for point in points])
    for number, (point, name) in enumerate(zip(points, names, strict=True)):
        try:
            run = launch_checked(
                project=sweep.project, user=user, name=name, config=point.config, anyway=anyway, priority=priority
            )
        except ConfigError as exc:
            raise at_axis(exc, sweep.varied) from exc
        SweepRun.objects.create(sweep=sweep, number=number, run=run)


def run_names(name: str, values: Sequence[Mapping[str, Value]]) -> list[str]:
    """A name for each run: what differs comes first, because tables cut names at their end."""
    found: list[str] = []
    for number, point in enumerate(values):
        parts = [f"{_short(option)}-{_name_part(value)}" for option, value in point.items()]
        text = _fitting(".".join(parts), name)
        found.append(text if text not in found else _fitting(f"{number + 1}.{'.'.join(parts)}", name))
    return found


def _fitting(differs: str, name: str) -> str:
    return f"{differs[: MOST_NAME - 20]}.{name}"[:MOST_NAME].rstrip(" .-")


def _short(option: str) -> str:
    return SHORT.get(option) or option.rpartition(".")[2]


def _name_part(value: Value) -> str:
    """A value in a name: of a reference without its kind, of a path its end."""
    text = written(value)
    text = text.rpartition("/" if "/" in text else ":")[2]
    return re.sub(r"[^\w.()+-]+", "-", text).strip("-.")[-MOST_VALUE:].strip("-.") or "none"


# Deleting a sweep: its page alone, or all of its runs too.


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
