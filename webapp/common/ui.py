"""The interface of every page: template tags, filters for hostile text, form fields drawn without templates."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django import template
from django.forms.renderers import DjangoTemplates
from django.http import HttpRequest
from django.templatetags.static import static
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import conditional_escape, escape, format_html, format_html_join, json_script
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify
from django.utils.translation import get_language, gettext_lazy, ngettext
from django.utils.translation import gettext as _

from webapp.common.static_files import imported_by
from webapp.common.strings import strings_for
from webapp.common.text import NOTHING, code_marks, duration, figure, percent

# Words of the field that pages explain where they use them.

TERMS: dict[str, tuple[str | Promise, str | Promise]] = {
    "surprise": (
        gettext_lazy("surprise"),
        gettext_lazy(
            "How rare a rollout is in its group, in bits: 0 where all came out alike, 1 for a half of them, 3 for the "
            "only one of eight. It is −log₂ of the share of the group with the same outcome and a reward at most half "
            "a standard deviation away."
        ),
    ),
    "phantom": (
        gettext_lazy("phantom"),
        gettext_lazy(
            "All rollouts of the group came equally far with the task, but their rewards differ: only shaping terms "
            "distinguish them. Training on it teaches form, not the task."
        ),
    ),
    "no_signal": (
        gettext_lazy("no learning signal"),
        gettext_lazy(
            "All rewards of a group are equal (zero variance). Then no rollout is better than another, every advantage "
            "is 0, and the run learns nothing from it."
        ),
    ),
    "bounds": (
        gettext_lazy("bounds"),
        gettext_lazy("The least and the largest value that a figure may have. ≥ and ≤ include the value, < does not."),
    ),
    "pass_hat": (
        gettext_lazy("pass^k"),
        gettext_lazy(
            "pass^k is the chance that all of k tries at a task solve it: how reliable a model is. pass@k is the "
            "chance that at least one of k tries does: what it can reach."
        ),
    ),
    "chance": (
        gettext_lazy("expected by chance"),
        gettext_lazy(
            "Each task is tested for a change (Fisher's exact test, two-sided, at 5%). Of many tasks some differ by "
            "chance: this is how many would if none had changed, given how many of their rollouts solved each."
        ),
    ),
}
"""Each with the word that it explains."""


# Template tags of the interface: styles and scripts, icons, figures, times and sparklines.

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
def term(name: str, place: str = "") -> SafeString:
    """A button with a question mark that opens the explanation of a word of the field; the browser does it without a
    script, also by keyboard, and Escape closes it. ``place`` keeps several of one word on a page apart."""
    word, text = TERMS[name]
    target = "-".join(part for part in ("term", name, slugify(place)) if part)
    return format_html(
        '<button type="button" class="term" popovertarget="{}" aria-label="{}">?</button>'
        '<span class="term-text" id="{}" popover>{}</span>',
        target,
        _("What does “%(word)s” mean?") % {"word": word},
        target,
        text,
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


# Form fields drawn without templates. Django's own give the same HTML, by an include for each option and attribute.
#
# The form of a run has a hundred fields, and selects of hundreds of options: half of its page's time.

Widget = dict[str, Any]


class Renderer(DjangoTemplates):
    """Draws the widgets of ``DRAWN`` itself, and leaves all others to Django's templates."""

    def render(self, template_name: str, context: dict[str, Any], request: HttpRequest | None = None) -> SafeString:
        """The HTML of a widget."""
        draw = DRAWN.get(template_name)
        if draw is None:
            return mark_safe(super().render(template_name, context, request))  # noqa: S308 (a template escaped it)
        return mark_safe(draw(context["widget"]))  # noqa: S308 (every value is escaped below)


def _attributes_html(widget: Widget) -> str:
    found = ((name, value) for name, value in widget["attrs"].items() if value is not False)
    return "".join(
        f" {_escaped(name)}" if value is True else f' {_escaped(name)}="{_escaped(value)}"' for name, value in found
    )


def _escaped(value: Any) -> str:
    """Escaped, and a number as code writes it: a field takes no thousands' separator."""
    return conditional_escape(value if isinstance(value, str) else str(value))


def _input_html(widget: Widget) -> str:
    value = "" if widget["value"] is None else f' value="{_escaped(widget["value"])}"'
    return (
        f'<input type="{_escaped(widget["type"])}" name="{_escaped(widget["name"])}"{value}{_attributes_html(widget)}>'
    )


def _textarea_html(widget: Widget) -> str:
    # The first new line in a textarea does not count, so that one of the text would be lost without this.
    text = _escaped(widget["value"] or "")
    return f'<textarea name="{_escaped(widget["name"])}"{_attributes_html(widget)}>\n{text}</textarea>'


def _select_html(widget: Widget) -> str:
    groups = "".join(_optgroup_html(name, options) for name, options, _index in widget["optgroups"])
    return f'<select name="{_escaped(widget["name"])}"{_attributes_html(widget)}>{groups}\n</select>'


def _optgroup_html(name: Any, options: list[Widget]) -> str:
    drawn = "".join(f"\n  {_option_html(option)}" for option in options)
    return f'\n  <optgroup label="{_escaped(name)}">{drawn}\n  </optgroup>' if name else drawn


def _option_html(option: Widget) -> str:
    return f'<option value="{_escaped(option["value"])}"{_attributes_html(option)}>{_escaped(option["label"])}</option>'


FOLDER = "django/forms/widgets/"
INPUTS = ("input", "text", "number", "email", "url", "password", "hidden", "checkbox", "file")
DRAWN: dict[str, Callable[[Widget], str]] = {f"{FOLDER}{name}.html": _input_html for name in INPUTS} | {
    f"{FOLDER}textarea.html": _textarea_html,
    f"{FOLDER}select.html": _select_html,
}


# Filters for transcripts on pages without scripts. The text is hostile: all is escaped, nothing is hidden.

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
