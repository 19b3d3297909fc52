"""Datasets that people ask of built-in environments, written by a worker (``webapp.common.work``)."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from training.errors import TiltyardError
from webapp.common import work
from webapp.common.pages import clean_name
from webapp.common.work import Claim
from webapp.datasets.models import Dataset
from webapp.datasets.operations.lineage import origin_note
from webapp.environments.builtin import BuiltIn, Command
from webapp.environments.generate import dataset_generate
from webapp.environments.models import DatasetOrder, Environment, OrderState
from webapp.environments.options import arguments_argv, arguments_clean
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User

MAX_OPEN = 3
OPEN = DatasetOrder.OPEN


def order_create(
    *, environment: Environment, user: User, name: str, command: str, arguments: dict[str, Any]
) -> DatasetOrder:
    """Ask for a dataset. Raises ``ValidationError`` by field, options as ``<command>-<option>``."""
    _program, chosen = _program_and_command(environment, command)
    order = DatasetOrder(
        environment=environment,
        name=clean_name(name),
        command=command,
        created_by=user,
        arguments=arguments_clean(chosen.options, arguments, prefix=f"{command}-"),
    )
    if not order_room(environment.project):
        full = _("%(n)s datasets of this project are being generated already. Wait until one is done, then try again.")
        raise ValidationError(full % {"n": MAX_OPEN})
    with transaction.atomic():
        order.save(force_insert=True)
        work.enqueue(order)
        audit(AuditAction.DATASET_ORDERED, environment, by=user, subject=f"{environment}: {order.name}")
    return order


def order_room(project: Project) -> bool:
    """Whether one more dataset may be asked for now."""
    return DatasetOrder.objects.filter(environment__project=project, state__in=OPEN).count() < MAX_OPEN


def _program_and_command(environment: Environment, name: str) -> tuple[BuiltIn, Command]:
    program = environment.built_in
    if program is None or name not in program.datasets:
        raise ValidationError({"command": _("This environment cannot generate that.")})
    return program, program.datasets[name]


def order_run(claim: Claim[DatasetOrder]) -> None:
    """Have a claimed order written; the dataset and the end of the order are one transaction."""
    order, environment = claim.item, claim.item.environment
    program, command = _program_and_command(environment, order.command)
    words = arguments_argv(command.shared, _shared_arguments(environment, command))
    words += arguments_argv(command.options, order.arguments)

    def handed_in(dataset: Dataset) -> None:
        origin_note(dataset, environment=environment.name, command=order.command, arguments=order.arguments)
        claim.finish(state=OrderState.DONE, dataset=dataset)

    dataset_generate(
        project=environment.project,
        user=order.created_by,
        name=order.name,
        program=program.name,
        command=order.command,
        words=words,
        memory_mb=environment.memory_mb,
        handed_in=handed_in,
    )


def order_failed(order: DatasetOrder, error: TiltyardError) -> dict[str, Any]:
    """The columns of an order that failed."""
    return {"state": OrderState.FAILED, "error": error.info.model_dump(mode="json")}


def _shared_arguments(environment: Environment, command: Command) -> dict[str, Any]:
    """The server's options that the command takes over, so that both mean the same tasks."""
    names = {option.name for option in command.shared}
    return {name: value for name, value in environment.arguments.items() if name in names}


def orders_of(environment: Environment) -> QuerySet[DatasetOrder]:
    """The orders of an environment, newest first, without those whose dataset was deleted."""
    orders = DatasetOrder.objects.filter(environment=environment).exclude(state=OrderState.DONE, dataset=None)
    return orders.select_related("dataset", "created_by").order_by("-created_at")
