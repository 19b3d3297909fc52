"""The words for the outcome of a rollout's task: the same on every page, in the API and in live frames."""

from __future__ import annotations

import math

from django.db import models
from django.utils.translation import gettext_lazy as _


class Outcome(models.TextChoices):
    """The outcome of a task; ``webapp/runs/rollouts/figures.py`` decides it. Sorting by it uses the order here.

    Whether a rollout was cut off is a separate fact, its status: a task may be failed and truncated.
    """

    FAILED = "failed", _("failed")
    PARTLY = "partly", _("partly")
    SOLVED = "solved", _("solved")
    NO_VERDICT = "no_verdict", _("no verdict")
    EXCLUDED = "excluded", _("excluded")
    IN_FLIGHT = "in_flight", _("in flight")


def outcome_of(verdict: float | None) -> Outcome:
    """The word for a verdict from 0 to 1 on an episode that counts; ``None`` or NaN without a verdict."""
    if verdict is None or math.isnan(verdict):
        return Outcome.NO_VERDICT
    if verdict >= 1:
        return Outcome.SOLVED
    return Outcome.PARTLY if verdict > 0 else Outcome.FAILED
