"""The first messages of a chat that starts from a dataset's row or a rollout. Addresses name these, never their
text."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.http import Http404, QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _

from training.config import name_in
from training.plain import number_in
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.selectors import datasets_of, runs_using
from webapp.environments.models import DatasetOrder, Environment
from webapp.environments.playground.play import start_of_row
from webapp.people.teams.access import object_for
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.registry.selectors import checkpoints_of
from webapp.runs.rollouts.models import Rollout, Turn


class Beginning(NamedTuple):
    """The source (in words, and its page), and the fields of the form; unknown ones are empty."""

    title: str
    url: str
    system: str = ""
    first: str = ""
    environment: str = ""
    model: str = ""

    @property
    def values(self) -> dict[str, str]:
        """The fields of the form that it fills."""
        named = {name: getattr(self, name) for name in ("system", "first", "environment", "model")}
        return {name: value for name, value in named.items() if value}


def beginning_of(user: User, project: Project, asked: QueryDict) -> Beginning | None:
    """What ``?dataset=<id>&row=<from 1>`` or ``?rollout=<id>`` of an address; ``None`` where it names neither.

    Raises ``Http404`` for what is not in this project, ``ValidationError`` for a row that is not there.
    """
    rollout, dataset = str(asked.get("rollout", "")), str(asked.get("dataset", ""))
    if rollout:
        return _beginning_of_rollout(project, rollout)
    if not dataset:
        return None
    within = datasets_of(project).filter(state=DatasetState.READY)
    found = object_for(user, Dataset, dataset, within=within, project=project)
    return _beginning_of_row(found, str(asked.get("row", "")))


def _beginning_of_row(dataset: Dataset, row: str) -> Beginning:
    number = number_in(row, 11)
    if number is None:
        raise ValidationError({"row": _("Say which row: a number from 1.")})
    start = start_of_row(dataset, number)
    made = Environment.objects.filter(pk__in=DatasetOrder.objects.filter(dataset=dataset).values("environment"))
    place = made.values_list("name", flat=True).first()
    if place is None:  # no environment wrote the rows: that of the newest run on them
        newest = runs_using(dataset).order_by("-created_at").first()
        place = _environment_of(newest) if newest is not None else ""
    title = _("Row %(row)s of %(name)s") % {"row": row, "name": dataset}
    url = reverse("dataset-detail", args=[dataset.project.slug, dataset.pk])
    messages = [message.model_dump() for message in start.messages]
    return Beginning(title, url, *_system_and_question(messages), environment=place)


def _beginning_of_rollout(project: Project, pk: str) -> Beginning:
    rows = Rollout.objects.filter(run__project=project).select_related("run")
    try:
        rollout = rows.filter(pk=UUID(pk)).first()
    except ValueError:
        rollout = None
    if rollout is None:
        raise Http404
    turn = Turn.objects.filter(rollout=rollout, number=0).first()
    left = checkpoints_of(project).filter(run=rollout.run, final=True).first()
    title = _("Rollout %(place)s of %(run)s") % {
        "place": f"{rollout.step}.{rollout.group}.{rollout.index}",
        "run": rollout.run.name,
    }
    return Beginning(
        title,
        reverse("rollout-detail", args=[project.slug, rollout.pk]),
        *_system_and_question(turn.messages if turn is not None else []),
        environment=_environment_of(rollout.run),
        model=left.reference if left is not None else "",
    )


def _system_and_question(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """The system message and the first user message; imported runs may have recorded odd ones."""
    said = [(message.get("role"), str(message.get("content") or "")) for message in messages]
    system = said[0][1] if said and said[0][0] == "system" else ""
    return system, next((text for role, text in said if role == "user"), "")


def _environment_of(run: Run) -> str:
    """The environment that a run names, while the project has it."""
    wanted = name_in("environment", str((run.config.get("environment") or {}).get("name") or ""))
    return wanted if wanted and Environment.objects.filter(project=run.project_id, name=wanted).exists() else ""
