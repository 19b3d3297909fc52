"""Two configs side by side: which options of one differ from the other's."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from webapp.common.ui.templatetags.ui import NOTHING, weight


class Changed(NamedTuple):
    """One option in which a run differs from the run that it comes from."""

    path: str
    before: str
    after: str


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[Changed]:
    """What differs, as the two were written: references, not what they meant."""
    old, new = flat(before), flat(after)
    paths = [path for path in new if old.get(path) != new[path]]
    return [Changed(path, plain(old.get(path)), plain(new[path])) for path in paths]


def flat(config: dict[str, Any]) -> dict[str, Any]:
    """``group.option`` to value."""
    flat: dict[str, Any] = {}
    for group, values in config.items():
        items = values.items() if isinstance(values, dict) else []
        flat |= {f"{group}.{name}": value for name, value in items} or {group: values}
    return flat


def plain(value: Any) -> str:
    """An option's value as a page shows it."""
    if value in (None, "", []):
        return NOTHING
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    of_a_mix = any(isinstance(part, dict) and "environment" in part for part in parts)  # which have more to say
    if parts and not of_a_mix and all(isinstance(part, dict) and {"name", "weight"} <= part.keys() for part in parts):
        return ", ".join(f"{part['name']} × {weight(part['weight'])}" for part in parts)  # of a reward
    return json.dumps(value, ensure_ascii=False)
