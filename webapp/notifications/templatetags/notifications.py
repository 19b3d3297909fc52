"""Template tags of notifications: the number at the bell, stored sentences."""

from __future__ import annotations

from typing import Any

from django import template

from webapp.notifications.selectors import MOST_COUNTED, unread_count
from webapp.text import in_words

register = template.Library()
register.filter("in_words", in_words)


@register.simple_tag(takes_context=True)
def unread(context: dict[str, Any]) -> str:
    """How many notifications the reader has not read, as the bell shows it; empty for none."""
    request = context.get("request")
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return ""
    count = unread_count(user)
    return f"{MOST_COUNTED - 1}+" if count >= MOST_COUNTED else str(count or "")
