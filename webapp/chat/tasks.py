"""Celery tasks of chats. A message is only a hint; rows decide."""

from __future__ import annotations

import logging
from datetime import timedelta

from celery import shared_task
from django.db import OperationalError, transaction
from django.db.models.functions import Now

from training.errors import Boundary, ErrorInfo
from webapp.chat.hints import HINT, hint
from webapp.chat.holder import Desk, waiting_run
from webapp.chat.models import Answer, AnswerState, Holder
from webapp.chat.writing import seq_take
from webapp.engine.supervisor import closing, nudge_next
from webapp.work import silent
from webapp.workers.identity import folder_problem

logger = logging.getLogger(__name__)
WAITED = timedelta(seconds=4)
GONE = timedelta(seconds=30)
LOST = ErrorInfo(code="chat_cut", boundary=Boundary.LEASE, message="The worker that wrote this answer was lost.")


@shared_task(name=HINT, ignore_result=True)
def hold() -> None:
    """Answer chats until nobody asks any more, or a run needs this worker's device."""
    if problem := folder_problem():
        logger.error("this worker answers no chat", extra={"action": "chat", "problem": problem})
        return
    if closing():
        return
    if waiting_run() is None and Answer.objects.filter(state=AnswerState.WAITING, token="").exists():
        Desk().run()
    nudge_next()


@shared_task(name="chat.look", ignore_result=True, soft_time_limit=25, time_limit=30)
def look() -> None:
    """Cut off what lost workers were writing, and ask again for a worker where answers wait."""
    try:
        cut_lost()
        Holder.objects.filter(heard_at__lt=Now() - GONE).delete()
        if Answer.objects.filter(state=AnswerState.WAITING, token="", created_at__lt=Now() - WAITED).exists():
            hint()
    except OperationalError as exc:  # nobody is judged by what could not be looked at
        logger.warning("chats not looked at", extra={"action": "chat", "error": repr(exc)[:200]})


def cut_lost() -> int:
    """Answers whose worker fell silent end with what they have; how many."""
    count = 0
    for answer in silent(Answer).select_related("turn")[:200]:
        with transaction.atomic():
            seq = seq_take(answer.turn.chat_id)
            mine = Answer.objects.filter(pk=answer.pk, token=answer.token, heard_at=answer.heard_at).order_by()
            error = LOST.model_dump(mode="json")
            count += mine.update(state=AnswerState.CUT, error=error, seq=seq, token="", progress={})
    return count
