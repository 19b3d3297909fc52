"""Template tags of the interface: styles and scripts, icons, figures, times and sparklines."""

from __future__ import annotations

import functools
import math
from datetime import datetime
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join, json_script
from django.utils.safestring import SafeString
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from webapp.common.figures import NOTHING, duration, figure, percent
from webapp.common.static_files import imported_by
from webapp.common.strings import strings_for
from webapp.common.text import code_marks

register = template.Library()
register.filter("figure", figure)
register.filter("percent", percent)
register.filter("duration", duration)
register.filter("code_marks", code_marks)
SPARK_WIDTH, SPARK_HEIGHT = 96, 22


@register.simple_tag
@functools.cache
def module_script(script: str) -> SafeString:
    """A page's script, after links that let a browser fetch its imports in parallel, rather than one layer after
    another: seven layers are half a second of empty waiting on a line of 100 ms."""
    paths = ((static(path),) for path in imported_by(script))
    preloads = format_html_join("", '<link rel="modulepreload" href="{}">', paths)
    return format_html('{}<script src="{}" type="module"></script>', preloads, static(script))


@register.simple_tag
@functools.cache
def styles(*paths: str) -> SafeString:
    """Stylesheets, as paths below ``static/css``."""
    return format_html_join("\n", '<link rel="stylesheet" href="{}">', ((static(f"css/{path}"),) for path in paths))


@register.simple_tag
@functools.cache
def icon(name: str) -> SafeString:
    """A decorative icon of ``static/img/icons.svg``. Templates name a few dozen, and a list draws hundreds."""
    return format_html(
        '<svg class="icon" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        static("img/icons.svg"),
        name,
    )


@register.simple_tag
def js_strings(page: str = "base") -> SafeString:
    """The translated strings that a page's scripts need, as JSON in the page."""
    return _strings_script(page, get_language())


@functools.cache
def _strings_script(page: str, _language: str | None) -> SafeString:
    return json_script(dict(strings_for(page)), f"strings-{page}")


@register.simple_tag(takes_context=True)
def page_address(context: dict[str, Any], number: int, key: str = "") -> str:
    """The address of another page of a list; ``key`` is its parameter where a page has two lists."""
    query = context["request"].GET.copy()
    query[key or "page"] = str(number)
    return f"?{query.urlencode()}"


@register.filter
def weight(value: float) -> str:
    """A weight as a person typed it: 0.5, not 0.5000."""
    return f"{value:g}"


@register.filter
def coarse(value: float | None) -> str:
    """Seconds without a part that ticks: whole minutes below an hour."""
    if value is None or not 60 <= value < 3600:
        return duration(value)
    return _("%(n)s min") % {"n": int(value) // 60}


@register.simple_tag
def ago(value: datetime | None) -> SafeString:
    """A time as a ``<time>`` whose title is the full moment; scripts keep it fresh."""
    if value is None:
        return SafeString(NOTHING)
    seconds = (timezone.now() - value).total_seconds()
    local = timezone.localtime(value)
    return format_html(
        '<time datetime="{}" title="{}" data-ago>{}</time>',
        value.isoformat(),
        local.strftime("%Y-%m-%d %H:%M:%S %Z"),
        ago_text(seconds),
    )


def ago_text(seconds: float) -> str:
    """How long ago, in one unit."""
    if seconds < 45:
        return _("just now")
    if seconds < 3600:
        count = max(1, round(seconds / 60))
        return ngettext("%(count)d min ago", "%(count)d min ago", count) % {"count": count}
    if seconds < 86400:
        count = round(seconds / 3600)
        return ngettext("%(count)d h ago", "%(count)d h ago", count) % {"count": count}
    count = round(seconds / 86400)
    return ngettext("%(count)d day ago", "%(count)d days ago", count) % {"count": count}


@register.simple_tag
def sparkline(values: list[float | None] | None, label: str = "") -> SafeString:
    """A small line of the last values; missing ones leave a gap."""
    finite = [v for v in values or [] if v is not None and math.isfinite(v)]
    if len(finite) < 2 or not values:
        return SafeString("")
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    lines: list[list[str]] = [[]]
    for place, value in enumerate(values):
        if value is None or not math.isfinite(value):
            lines.append([])
            continue
        x, y = place / (len(values) - 1) * SPARK_WIDTH, SPARK_HEIGHT - 2 - (value - low) / span * (SPARK_HEIGHT - 4)
        lines[-1].append(f"{x:.1f},{y:.1f}")
    drawn = format_html_join("", '<polyline points="{}"></polyline>', ((" ".join(line),) for line in lines if line))
    name = f"{label}: " if label else ""
    return format_html(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}{} → {}">{}</svg>',
        SPARK_WIDTH,
        SPARK_HEIGHT,
        name,
        figure(finite[0]),
        figure(finite[-1]),
        drawn,
    )
