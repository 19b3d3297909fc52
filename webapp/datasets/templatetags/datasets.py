"""Template filters of datasets."""

from __future__ import annotations

import re

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from webapp.datasets.words import lost_words

register = template.Library()
register.filter("lost_words", lost_words)
_MARKED = re.compile(r"`([^`]+)`")


@register.filter
def code_marks(text: object) -> SafeString:
    """A sentence with `names` set as code."""
    return mark_safe(_MARKED.sub(r"<code>\1</code>", escape(str(text))))  # noqa: S308 (escaped; the tags are ours)
