"""Text and JSON that PostgreSQL and ``JSON.parse`` both accept, and sentences and figures in the reader's language."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.plain import json_reason, os_reason
from training.words import Sentence, filled

_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKED = re.compile(r"`([^`]+)`")
NUL_SHOWN = "\u2400"
REPLACEMENT = "\ufffd"
_PART = re.compile(r"(.+) of ((?:call|message) \d+.*)")
_CALL = re.compile(r"call (\d+)")
_MESSAGE = re.compile(r"message (\d+)(?: \((?:a )?(.+)\))?")
_WORDS = {"before", "unit", "kind", "format"}
_PLACES = {"where", "inside"}
MAX_DEPTH = 4
PLACE_CHARS = 200


def clean_text(text: str) -> str:
    """The text with NUL and lone surrogates, which PostgreSQL refuses, made visible."""
    if "\x00" in text:
        text = text.replace("\x00", NUL_SHOWN)
    return text if text.isascii() else _SURROGATE.sub(REPLACEMENT, text)


def clean_json(value: Any) -> Any:
    """The value with clean texts and keys, and ``None`` for NaN and infinities."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value


def first_names(names: Sequence[str], most: int) -> str:
    """The first of some names, and how many there are more."""
    shown, more = ", ".join(names[:most]), len(names) - most
    return _("%(names)s and %(n)d more") % {"names": shown, "n": more} if more > 0 else shown


def unstorable(value: Any) -> str | None:
    """The place in a JSON value of a text or key that PostgreSQL refuses, as ``a.b.0``; ``None``: there is none."""
    left = [("", value)]
    while left:  # no recursion: the sender of a value chooses how deep it is
        place, item = left.pop()
        if isinstance(item, str) and clean_text(item) != item:
            return place
        inside = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        for key, each in inside:
            if isinstance(key, str) and clean_text(key) != key:
                return place
            left.append(((f"{place}.{key}" if place else str(key))[:PLACE_CHARS], each))
    return None


def finite(value: float | None) -> float | None:
    """The number, or ``None`` where JSON has no value for it."""
    return value if value is None or math.isfinite(value) else None


def translated(text: str | None) -> str:
    """A marked text in the reader's language. (gettext answers the empty text with its catalogue's header.)"""
    return _(text) if text else ""


def code_marks(text: object) -> SafeString:
    """A sentence of ours with `names` set as code."""
    return mark_safe(_MARKED.sub(r"<code>\1</code>", escape(str(text))))  # noqa: S308 (escaped; the tags are ours)


def in_words(found: Any, depth: int = 0) -> str:
    """A sentence of the library in the reader's language: as it was raised, as JSON stores it, or a marked text."""
    if isinstance(found, Sentence):
        found = found.data
    if not isinstance(found, dict) or depth > MAX_DEPTH:
        return translated(str(found)) if found else ""
    values, template, plural = found.get("values") or {}, str(found.get("template", "")), str(found.get("plural") or "")
    chosen = ngettext(template, plural, _int_or_zero(values.get("n"))) if plural else translated(template)
    text = filled(chosen, values, lambda name, value: _value_text(name, value, depth))
    return f"{place(str(values['inside']))}: {text}" if "inside" in values else text


def _int_or_zero(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _value_text(name: str, value: Any, depth: int) -> str:
    if isinstance(value, dict):
        return in_words(value, depth + 1)
    if name in _PLACES:
        return place(str(value))
    return translated(value) if name in _WORDS and isinstance(value, str) else str(value)


def place(text: str) -> str:
    """Where in a row something is: ``call 1 of message 2``."""
    if found := _PART.fullmatch(text):
        return _("{part} of {whole}").format(part=place(found[1]), whole=place(found[2]))
    if found := _CALL.fullmatch(text):
        return _("call {n}").format(n=found[1])
    if found := _MESSAGE.fullmatch(text):
        shown = _("message {n}").format(n=found[1])
        return f"{shown} ({found[2]})" if found[2] else shown
    return text


def message_of(report: dict[str, Any]) -> str:
    """A report's sentence on the whole file."""
    sentences = report.get("told")
    return " ".join(in_words(found) for found in sentences) if sentences else str(report.get("message", ""))


def os_words(error: OSError) -> str:
    """Why the operating system refused."""
    return in_words(os_reason(error))


def json_words(error: ValueError | RecursionError) -> str:
    """A sentence for the author of a JSON text: what is wrong, and where."""
    if isinstance(error, json.JSONDecodeError):
        place = {"line": error.lineno, "column": error.colno, "problem": in_words(json_reason(error))}
        return _("This is not valid JSON: %(problem)s (line %(line)s, column %(column)s).") % place
    deep = isinstance(error, RecursionError)
    return _("This JSON is nested too deeply.") if deep else _("This JSON holds a number of too many digits.")


# Figures as people read them; ``static/js/lib/format.js`` writes the same.

NOTHING = "–"


def figure(value: Any, digits: int = 3) -> str:
    """A number with few significant digits; missing and non-finite ones say so."""
    if value is None or value == "":
        return NOTHING
    number = float(value) + 0.0  # no minus before a zero
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("∞" if number > 0 else "−∞")
    if number == 0 or 1e-3 <= abs(number) < 1e5:
        decimals = max(0, digits - 1 - (math.floor(math.log10(abs(number))) if number else 0))
        text = f"{number:.{min(decimals, 6)}f}"
    else:
        text = f"{number:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e")
    return text.replace("-", "−", 1) if number < 0 else text


def percent(value: Any) -> str:
    """A share from 0 to 1 as a percentage."""
    return NOTHING if value is None else f"{float(value) * 100:.3g}%"


def duration(value: Any) -> str:
    """Seconds (or a timedelta) as the two largest units that matter."""
    if value is None or value == "":
        return NOTHING
    seconds = value.total_seconds() if hasattr(value, "total_seconds") else float(value)
    if not math.isfinite(seconds) or seconds < 0:
        return NOTHING
    if seconds < 9.95:
        return _("%(n)s s") % {"n": f"{seconds:.2g}"}
    whole = round(seconds)
    if whole < 60:
        return _("%(n)s s") % {"n": whole}
    if whole < 3600:
        return (
            _("%(m)s min %(s)s s") % {"m": whole // 60, "s": whole % 60}
            if whole < 600
            else _("%(n)s min") % {"n": whole // 60}
        )
    if whole < 86400:
        return _("%(h)s h %(m)s min") % {"h": whole // 3600, "m": whole % 3600 // 60}
    return _("%(d)s d %(h)s h") % {"d": whole // 86400, "h": whole % 86400 // 3600}
