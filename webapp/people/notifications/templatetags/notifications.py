"""Template tags of notifications: the number at the bell, stored sentences."""

from __future__ import annotations

from typing import Any

from django import template

from webapp.common.text import in_words
from webapp.people.notifications.selectors import MOST_COUNTED, reader_of_page

register = template.Library()
register.filter("in_words", in_words)


@register.simple_tag(takes_context=True)
def unread(context: dict[str, Any]) -> str:
    """How many notifications the reader has not read, as the bell shows it; empty for none."""
    count = reader_of_page(context).unread
    return f"{MOST_COUNTED - 1}+" if count >= MOST_COUNTED else str(count or "")
