"""Datasets that people ask of built-in environments.

1. ``order_create`` writes what is wanted and sends a message, which is only a hint.
2. ``order_run`` takes an order that waits (one update decides between two workers), has the rows written and handed in
   as a dataset, whose check begins then. A failure is kept as a sentence.
3. ``orders_look`` sends again what nobody took, and gives up what a worker that was killed left behind.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from training.errors import TiltyardError
from webapp.datasets.operations.lineage import origin_note
from webapp.environments.builtin import BuiltIn, Command
from webapp.environments.generate import TIME_LIMIT_S, OrderFailed, dataset_generate
from webapp.environments.models import DatasetOrder, Environment, OrderState
from webapp.environments.options import arguments_argv, arguments_clean
from webapp.pages import clean_name
from webapp.teams.models import User

logger = logging.getLogger(__name__)
MAX_OPEN = 3
SEND_AGAIN_AFTER = timedelta(seconds=30)
GIVE_UP_AFTER = timedelta(seconds=TIME_LIMIT_S + 120)
OPEN = (OrderState.WAITING, OrderState.WRITING)


def order_create(
    *, environment: Environment, user: User, name: str, command: str, arguments: dict[str, Any]
) -> DatasetOrder:
    """Ask for a dataset. Raises ``ValidationError`` by field, options as ``<command>-<option>``."""
    _program, chosen = _command(environment, command)
    order = DatasetOrder(
        environment=environment,
        name=clean_name(name),
        command=command,
        created_by=user,
        arguments=arguments_clean(chosen.options, arguments, prefix=f"{command}-"),
    )
    if DatasetOrder.objects.filter(environment__project=environment.project_id, state__in=OPEN).count() >= MAX_OPEN:
        raise ValidationError(_("This project's environments write datasets already; wait until one is done."))
    with transaction.atomic():
        order.save(force_insert=True)
        transaction.on_commit(lambda: order_enqueue(order.pk))
    return order


def _command(environment: Environment, name: str) -> tuple[BuiltIn, Command]:
    program = environment.built_in
    if program is None or name not in program.datasets:
        raise ValidationError({"command": _("This environment cannot write that.")})
    return program, program.datasets[name]


def order_enqueue(order_id: UUID) -> None:
    """Tell a worker. A broker that is down costs only time: orders that wait are sent again."""
    from kombu.exceptions import OperationalError

    from webapp.environments.tasks import write_dataset

    try:
        write_dataset.apply_async((str(order_id),), retry=False)
    except (OperationalError, OSError) as exc:
        logger.warning("order not sent: %s", exc, extra={"order_id": order_id})


def order_run(order_id: UUID | str) -> None:
    """Have an order written, unless somebody is at it."""
    waiting = DatasetOrder.objects.filter(pk=order_id, state=OrderState.WAITING)
    if not waiting.update(state=OrderState.WRITING, started_at=timezone.now()):
        return
    order = DatasetOrder.objects.filter(pk=order_id).select_related("environment__project", "created_by").first()
    if order is None:
        return
    environment = order.environment
    try:
        program, command = _command(environment, order.command)
        words = arguments_argv(command.shared, _shared(environment, command))
        words += arguments_argv(command.options, order.arguments)
        dataset = dataset_generate(
            project=environment.project,
            user=order.created_by,
            name=order.name,
            program=program.name,
            command=order.command,
            words=words,
            memory_mb=environment.memory_mb,
        )
    except ValidationError as exc:
        order_fail(order_id, OrderFailed(" ".join(exc.messages)))
    except TiltyardError as exc:
        order_fail(order_id, exc)
    except OSError as exc:
        logger.exception("order could not be written", extra={"order_id": order_id})
        order_fail(order_id, OrderFailed(_("The rows could not be stored: %(why)s.") % {"why": exc.strerror}))
    else:
        origin_note(dataset, environment=environment.name, command=order.command, arguments=order.arguments)
        DatasetOrder.objects.filter(pk=order_id).update(state=OrderState.DONE, dataset=dataset)


def _shared(environment: Environment, command: Command) -> dict[str, Any]:
    """The server's options that the command takes over, so that both mean the same tasks."""
    names = {option.name for option in command.shared}
    return {name: value for name, value in environment.arguments.items() if name in names}


def order_fail(order_id: UUID | str, error: TiltyardError) -> None:
    """Keep why an order came to nothing."""
    logger.info("order failed: %s", error.message, extra={"order_id": order_id})
    open_orders = DatasetOrder.objects.filter(pk=order_id, state__in=OPEN)
    open_orders.update(state=OrderState.FAILED, error=error.info.model_dump(mode="json"))


def orders_look() -> None:
    """Send again what nobody took; give up what nobody works on any more."""
    now = timezone.now()
    waiting = DatasetOrder.objects.filter(state=OrderState.WAITING, created_at__lt=now - SEND_AGAIN_AFTER)
    for order_id in waiting.values_list("pk", flat=True)[:100]:
        order_enqueue(order_id)
    lost = DatasetOrder.objects.filter(state=OrderState.WRITING, started_at__lt=now - GIVE_UP_AFTER)
    for order_id in lost.values_list("pk", flat=True)[:100]:
        order_fail(order_id, OrderFailed(_("The worker that wrote it was stopped."), hint=_("Ask for it again.")))


def orders_of(environment: Environment) -> QuerySet[DatasetOrder]:
    """What was asked of an environment, newest first; not what was made and deleted since."""
    orders = DatasetOrder.objects.filter(environment=environment).exclude(state=OrderState.DONE, dataset=None)
    return orders.select_related("dataset", "created_by").order_by("-created_at")
