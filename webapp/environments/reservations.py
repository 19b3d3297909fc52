"""The sessions of an environment that runs have reserved, and the queued runs that play in it, as claims count them.

A run plays only in environments of its own project, so a reader who sees an environment sees these runs.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from django.db.models import Count
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.common.pools import ENDPOINT, TRAIN
from webapp.environments.models import Environment
from webapp.runs.models import Run
from webapp.runs.records.order import can_start
from webapp.runs.records.sessions import rooms_of, sessions_in
from webapp.runs.states import LEASED


class Reservation(NamedTuple):
    """A run at work, and how many sessions it has reserved."""

    run_id: UUID
    run: str
    sessions: int


class Reservations(NamedTuple):
    """The sessions of one environment.

    ``slots`` are those that its answering servers hold together; ``None`` where none answers or one does not say: then
    they are not counted, and no run waits for them. ``queued`` runs could start if a worker took them; ``waiting`` are
    those of them that need more sessions than are free now.
    """

    slots: int | None
    sessions: int
    runs: list[Reservation]
    queued: int
    waiting: int

    @property
    def title(self) -> str:
        """How many sessions runs have reserved, and how many runs wait for some."""
        return " ".join(filter(None, (self._reserved_text(), self._queued_text())))

    def _reserved_text(self) -> str:
        values = {"n": len(self.runs), "sessions": self.sessions, "slots": self.slots}
        if self.slots is None:
            return _("Its sessions are not counted now: no server answers, or one does not say how many it holds.")
        if not self.runs:
            return _("Runs have reserved none of its %(slots)d sessions.") % values
        text = ngettext(
            "%(n)d run at work has reserved %(sessions)d of its %(slots)d sessions.",
            "%(n)d runs at work have reserved %(sessions)d of its %(slots)d sessions.",
            len(self.runs),
        )
        return text % values

    def _queued_text(self) -> str:
        values = {"n": self.queued, "waiting": self.waiting}
        if not self.queued:
            return ""
        if not self.waiting:
            return ngettext("%(n)d queued run plays in it.", "%(n)d queued runs play in it.", self.queued) % values
        text = ngettext(
            "%(n)d queued run plays in it; too few sessions are free for it.",
            "%(n)d queued runs play in it; too few sessions are free for %(waiting)d of them.",
            self.queued,
        )
        return text % values


def reservations_of(environment: Environment) -> Reservations:
    """The sessions of an environment as claims count them now; runs at work in the order in which they were made."""
    room = rooms_of([environment.project_id]).get(environment.pk)
    named = {"project": environment.project_id, "imported": False, "sessions__contains": str(environment.pk)}
    at_work = Run.objects.filter(**named, state__in=LEASED).order_by("created_at", "pk")
    runs = []
    for pk, name, text in at_work.values_list("pk", "name", "sessions"):
        at_once = sessions_in(text)[environment.pk]
        runs.append(Reservation(pk, name, room.taken_by(at_once) if room else at_once))
    reserved, queued, waiting = sum(each.sessions for each in runs), 0, 0
    alike = can_start(TRAIN, ENDPOINT).filter(**named).values_list("sessions").annotate(runs=Count("pk"))
    for text, count in alike:
        queued += count
        if room and reserved + room.taken_by(sessions_in(text)[environment.pk]) > room.slots:
            waiting += count
    return Reservations(room.slots if room else None, reserved, runs, queued, waiting)
