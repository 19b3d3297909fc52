"""Writes that happen only if no other write came between: ``ETag`` of what people write, ``If-Match`` before it.

The tag is that of what people write on a thing (tags, notes, rules), not of its whole answer: a run at work changes
with each step, and its notes do not. It says whether a write may happen, and nothing about caches.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, TypeVar

from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from ninja import Header
from ninja.errors import HttpError

from webapp.api.base import api

M = TypeVar("M", bound=Model)
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", max_length=1000, description="write only if the ETag that was read still holds, else 412"),
]


def etag_of(written: Any) -> str:
    """The tag of people's texts, as plain data."""
    text = json.dumps(written, sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def tagged(request: HttpRequest, shown: dict[str, Any], written: Any) -> HttpResponse:
    """An answer with the tag of its texts."""
    answer = api.create_response(request, shown, status=200)
    answer["ETag"] = etag_of(written)
    return answer


def held(item: M) -> M:
    """The row as it is now, locked until the transaction ends: no other write comes between this read and the write."""
    return type(item)._default_manager.select_for_update(no_key=True).filter(pk=item.pk)[0]


def require_match(if_match: str | None, written: Any) -> None:
    """Raise 412 where the row was written since ``if_match`` was read."""
    if if_match is None or if_match.strip() == "*":
        return
    if etag_of(written) not in [tag.strip() for tag in if_match.split(",")]:
        raise HttpError(412, "")
