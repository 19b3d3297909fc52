"""The outbox that wakes workers, and when the reaper last looked.

Their rows are in the app ``runs``, where they were made: a new label would rename tables that hold data.
"""

from __future__ import annotations

from django.db import models

from webapp.runs.models import Run


class Outbox(models.Model):
    """A nudge that must reach a worker; written with the run, sent after, so a dead broker loses nothing."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        app_label = "runs"

    def __str__(self) -> str:
        return f"nudge for {self.run_id}"


class ReaperMark(models.Model):
    """One row: when the reaper last looked, by the clock of the database, and until when it must not reap.

    A gap in ``ran_at`` means an outage or a jump of the clock, after which living workers get one TTL to beat again.
    """

    ran_at = models.DateTimeField()
    idle_until = models.DateTimeField(null=True)

    class Meta:
        app_label = "runs"

    def __str__(self) -> str:
        return f"reaper at {self.ran_at}"
