"""Filters for transcripts on pages without scripts. The text is hostile: all is escaped, nothing is hidden."""

from __future__ import annotations

import json
import re
from typing import Any

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

register = template.Library()
# The same set as HIDDEN in static/js/lib/format.js: bidirectional marks, invisible characters, controls.
HIDDEN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f\U000e0100-\U000e01ef\ud800-\udfff]"
)


@register.filter
def visible(text: Any) -> SafeString:
    """Escaped text in which each hidden character is shown as a mark such as U+202E."""
    parts, start = [], 0
    raw = str(text)
    for match in HIDDEN.finditer(raw):
        parts.append(escape(raw[start : match.start()]))
        parts.append(format_html('<span class="hidden-char">U+{}</span>', f"{ord(match[0]):04X}"))
        start = match.end()
    parts.append(escape(raw[start:]))
    return mark_safe("".join(parts))  # noqa: S308 - every part was escaped above


@register.filter
def pretty(value: Any) -> str:
    """A call's arguments as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
