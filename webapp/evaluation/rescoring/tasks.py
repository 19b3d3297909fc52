"""What workers do to score recorded rollouts."""

from __future__ import annotations

from webapp.common.work import Kind, register
from webapp.evaluation.rescoring.models import Rescoring, RescoringState
from webapp.evaluation.rescoring.scoring import LATE, rescoring_run
from webapp.evaluation.rescoring.services import rescoring_failed

register(Kind(Rescoring, rescoring_run, rescoring_failed, too_long=LATE, at_work=RescoringState.SCORING))
