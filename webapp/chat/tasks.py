"""The Celery task of chats. A message is only a hint; rows decide."""

from __future__ import annotations

import logging

from celery import shared_task

from webapp.chat.holder import HINT, Desk, run_waits
from webapp.chat.models import Answer, AnswerState
from webapp.common import objects
from webapp.common.pools import TRAIN
from webapp.common.workers.beating import draining, training_problem
from webapp.engine.supervisor import closing, nudge_next

logger = logging.getLogger(__name__)


@shared_task(name=HINT, ignore_result=True)
def hold(pool: str = TRAIN) -> None:
    """Answer chats until no question is left, or a run needs this place."""
    if problem := training_problem():
        logger.error("this worker answers no chat", extra={"action": "chat", "problem": problem})
        return
    if closing() or draining():
        return
    if not run_waits(pool) and Answer.objects.filter(pool=pool, state=AnswerState.WAITING, token="").exists():
        with objects.in_use():
            Desk(pool).run()
    nudge_next(pool)
