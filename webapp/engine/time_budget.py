"""The time budget in a run's health: ``time: {hours, of, over}``, for its page, the API and the client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from training.events import RunFinished

USED = "timing/hours"


def time_used(values: Mapping[str, float], config: Mapping[str, Any], health: Mapping[str, Any]) -> dict[str, Any]:
    """The run's health after a step with these metrics, as a change of its row; nothing where they do not say. ``of``:
    hours that the run may take, as its config says."""
    hours = values.get(USED)
    if hours is None or not math.isfinite(hours):
        return {}
    most = (config.get("run") or {}).get("max_hours")
    used = {"hours": round(hours, 4), "of": float(most) if isinstance(most, int | float) and most else None}
    return {"health": {**health, "time": used}}


def time_over(event: RunFinished, health: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a run that ended because its time was over: how many hours its last step said, and its step."""
    if event.hours is None:
        return {}
    used = (health.get("time") or {}).get("hours", event.hours)
    return {"health": {**health, "time": {"hours": used, "of": event.hours, "over": event.step}}}
