"""Figures as people read them; ``static/js/lib/format.js`` writes the same."""

from __future__ import annotations

import math
from typing import Any

from django.utils.translation import gettext as _

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
