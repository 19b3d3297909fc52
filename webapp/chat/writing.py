"""Every write to a chat takes the chat's next ``seq`` in the same transaction, and wakes its open pages after it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F

from webapp.chat.models import Answer, Chat
from webapp.common.text import clean_json
from webapp.common.work import Claim, Lost
from webapp.runs.nudge import nudge


def seq_take(chat_id: UUID) -> int:
    """The chat's next number; holds its row until the transaction ends, so numbers are seen in their order.

    Raises ``Lost`` where the chat was deleted.
    """
    Chat.objects.filter(pk=chat_id).update(seq=F("seq") + 1)
    seq = Chat.objects.filter(pk=chat_id).values_list("seq", flat=True).first()
    if seq is None:
        raise Lost
    transaction.on_commit(lambda: nudge(chat_id, seq))
    return seq


def answer_keep(claim: Claim[Answer], chat_id: UUID, **columns: Any) -> None:
    """Write columns of an answer that this worker still has. Raises ``Lost``."""
    with transaction.atomic():
        claim.keep(seq=seq_take(chat_id), **clean_json(columns))


def answer_finish(claim: Claim[Answer], chat_id: UUID, **columns: Any) -> None:
    """Write an answer's end. Raises ``Lost``."""
    with transaction.atomic():
        claim.finish(seq=seq_take(chat_id), **clean_json(columns))
