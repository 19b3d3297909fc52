"""Orders about rollouts in flight, from a person to the trainer that plays them.

1. An order is an event of the run, written with its audit row under the run's lock: of two people one is first, and
   the other gets an error that says so.
2. The attempt's supervisor looks twice a second and appends the orders of its own attempt to a file in its folder,
   which the trainer obeys (``training/rollout/orders.py``); the rollout's end comes by the journal as every other.
3. An attempt that ends ends its orders too: what it left in flight is excluded anyway, and the next attempt plays
   rollouts of its own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from training.rollout.orders import ORDERS_NAME
from webapp.engine.history import Lease, event_add
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User
from webapp.runs.models import Run, RunEvent
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.states import RunState

logger = logging.getLogger(__name__)
Act = Literal["end", "fail"]
ORDER = "rollout_order"
ACTIONS = {"end": AuditAction.ROLLOUT_ENDED, "fail": AuditAction.ROLLOUT_FAILED}


def rollout_order(*, rollout: Rollout, act: Act, user: User) -> dict[str, Any]:
    """Have a rollout in flight ended, or marked as failed; what was ordered.

    Raises ``ValidationError`` with the code ``conflict`` where it is not in flight, or an order was given before.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(no_key=True).select_related("project").filter(pk=rollout.run_id).first()
        rollout.refresh_from_db(fields=["status", "attempt"])
        if run is None or run.state != RunState.RUNNING or rollout.attempt != run.attempt:
            state = run.get_state_display() if run is not None else ""
            raise _conflict(
                _("Nothing was changed: the run is %(state)s, and this rollout is over.") % {"state": state}
            )
        if rollout.status != RolloutStatus.RUNNING:
            raise _conflict(_("Nothing was changed: this rollout has ended by itself."))
        if rollout.held_out:
            raise _conflict(_("Nothing was changed: rollouts on held-out tasks are played to their end."))
        if (before := order_of(rollout)) is not None:
            raise _conflict(_("Nothing was changed: %(name)s ordered its end just before.") % {"name": before["by"]})
        place = {"step": rollout.step, "group": rollout.group, "index": rollout.index}
        order = {"rollout": str(rollout.pk), "act": act, "by": user.get_username(), **place}
        event_add(run.pk, ORDER, order, attempt=run.attempt)
        audit(ACTIONS[act], run, by=user, subject=f"{run.name} · {rollout}")
    return order


def order_of(rollout: Rollout) -> dict[str, Any] | None:
    """The order that was given for the rollout, or ``None``."""
    rows = RunEvent.objects.filter(run_id=rollout.run_id, kind=ORDER, payload__rollout=str(rollout.pk))
    return rows.values_list("payload", flat=True).first()


def orders_pass(lease: Lease, folder: Path, after: int) -> int:
    """Give the trainer the orders of its attempt that came after a ``seq``; the ``seq`` up to which it has them."""
    newest = Run.objects.filter(pk=lease.run_id).values_list("seq", flat=True).first() or after
    rows = RunEvent.objects.filter(run_id=lease.run_id, seq__gt=after, seq__lte=newest, kind=ORDER)
    found = list(rows.filter(attempt=lease.attempt).order_by("seq").values_list("payload", flat=True))
    if found:
        lines = "".join(f"{json.dumps(_trainer_order(lease, payload))}\n" for payload in found)
        try:
            with open(folder / ORDERS_NAME, "a", encoding="utf-8") as file:
                file.write(lines)
        except OSError as exc:  # tried again at the next look
            logger.warning("orders not passed on", extra={"action": "orders", "error": repr(exc)[:200]})
            return after
    return newest


def _trainer_order(lease: Lease, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The order as the trainer reads it: it knows rollouts by their names in the journal."""
    name = f"a{lease.attempt}-s{payload['step']}-g{payload['group']}-i{payload['index']}"
    return {"rollout": name, "act": payload["act"], "by": payload["by"]}


def _conflict(sentence: str) -> ValidationError:
    return ValidationError(sentence, code="conflict")
