"""The clockwork's job for chats: lost workers' answers are cut off, and waiting ones get a worker."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now

from training.errors import Boundary, ErrorInfo
from webapp.chat.hints import hint
from webapp.chat.models import Answer, AnswerState, Holder
from webapp.chat.writing import seq_take
from webapp.common.work import silent

WAITED = timedelta(seconds=4)
GONE = timedelta(seconds=30)
LOST = ErrorInfo(code="chat_cut", boundary=Boundary.LEASE, message="The worker that wrote this answer was lost.")


def look() -> None:
    """Cut off what lost workers were writing, and ask again for a worker where answers wait."""
    cut_lost()
    Holder.objects.filter(heard_at__lt=Now() - GONE).delete()
    waiting = Answer.objects.filter(state=AnswerState.WAITING, token="", created_at__lt=Now() - WAITED)
    for pool in set(waiting.order_by().values_list("pool", flat=True)):
        hint(pool)


def cut_lost() -> int:
    """End answers whose worker fell silent with the text that they have. Returns how many."""
    count = 0
    for answer in silent(Answer).select_related("turn")[:200]:
        with transaction.atomic():
            seq = seq_take(answer.turn.chat_id)
            mine = Answer.objects.filter(pk=answer.pk, token=answer.token, heard_at=answer.heard_at).order_by()
            error = LOST.model_dump(mode="json")
            count += mine.update(state=AnswerState.CUT, error=error, seq=seq, token="", progress={})
    return count
