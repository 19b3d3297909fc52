"""The first frame of a tab, of bounded size, and the later requests of a tab (docs/live.md).

A run of 20,000 rollouts begins with at most 200 kB: the curves that a page shows first, thinned; the newest
step's rollouts without their turns; the last events and checkpoints. Each part has a share of the bytes, so that no run
is too large to begin with, and what was left out is counted in the frame (``more``), never dropped silently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from webapp.common.text import clean_json
from webapp.runs.metrics import selectors as metrics
from webapp.runs.models import Run, RunEvent
from webapp.runs.records.selectors import KEYS, Rows, checkpoint_view, event_view, run_view
from webapp.runs.registry.models import Checkpoint
from webapp.runs.rollouts.models import Rollout, RolloutGroup
from webapp.runs.rollouts.selectors import current_step, group_view, newest_rollouts, rollout_view

# --- Frames ---------------------------------------------------------------------------------------------------------
# Frames: JSON text for the browser, valid for ``JSON.parse`` with any values, and of bounded size.

FRAME_BYTES = 4 << 20
_HEAD_ROOM = 64 << 10


def encode(value: Any) -> str:
    """JSON without NaN; ASCII only, so that a lone surrogate or a separator cannot break a frame."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(clean_json(value), allow_nan=False, separators=(",", ":"))


def frames(head: dict[str, Any], rows: Rows, *, before: int, then: str = "changes") -> Iterator[str]:
    """The head with its rows as one frame, or as several of at most ``FRAME_BYTES``.

    Further frames have the type ``then``. All but the last carry ``seq`` = ``before``: a reader that loses the line
    between two of them asks again from there, and no row is lost.
    """
    parts: dict[str, list[str]] = {key: [] for key in KEYS if key in rows}
    size, kind = 0, str(head["type"])
    for key in parts:
        for row in rows[key]:
            text = encode(row)
            if size and size + len(text) > FRAME_BYTES - _HEAD_ROOM:
                yield _encode_frame(head | {"type": kind, "seq": before}, parts)
                parts, size, kind = {name: [] for name in parts}, 0, then
            parts[key].append(text)
            size += len(text) + 1
    yield _encode_frame(head | {"type": kind}, parts)


def _encode_frame(head: dict[str, Any], parts: dict[str, list[str]]) -> str:
    body = "".join(f',"{key}":[{",".join(texts)}]' for key, texts in parts.items())
    return f"{encode(head)[:-1]}{body}}}"


# Shares of the 200 kB; with the curves (``metrics.FIRST_POINTS`` of about 20 bytes each) they stay below the whole.
NAMES_BYTES, ROLLOUTS_BYTES, GROUPS_BYTES, EVENTS_BYTES, CHECKPOINTS_BYTES = 25_000, 40_000, 10_000, 15_000, 15_000
EVENTS_MAX, CHECKPOINTS_MAX = 200, 100
TASK_SHOWN = 200  # characters; a step that is asked for has the whole task
CURVES_ASKED_MAX = 32
NAME_MAX = 120


def snapshot_text(run: Run) -> str:
    """The encoded first frame."""
    found = metrics.last_values(run)
    names, more_names = _fitting_views(_first_names(found), NAMES_BYTES, lambda name: [name, found[name]])
    step = current_step(run)
    rollouts, groups, more_rollouts = _rows_of_step(run, step)
    events, _none = _fitting_views(
        RunEvent.objects.filter(run=run).order_by("-seq")[:EVENTS_MAX], EVENTS_BYTES, event_view
    )
    checkpoints = Checkpoint.objects.filter(run=run).order_by("-step", "-attempt")
    saved, _none = _fitting_views(checkpoints[:CHECKPOINTS_MAX], CHECKPOINTS_BYTES, checkpoint_view)
    head = {"type": "snapshot", "seq": run.seq, "run": run_view(run), "step": step}
    more = {"names": more_names, "rollouts": more_rollouts}
    curves = metrics.first_curves(run, [name for name, _value in names])
    lists = {"rollouts": rollouts, "groups": groups, "events": events[::-1], "checkpoints": saved[::-1]}
    return encode(head | {"more": more, "names": dict(names), "curves": curves} | lists)


def curves_text(run: Run, names: Sequence[str], span: metrics.Steps = (None, None)) -> str:
    """The encoded answer to a tab that asks for curves, or for the part of them between two steps that it shows:
    all their points, up to some 2,000 of each."""
    head = {"type": "curves", "seq": run.seq}
    if span != (None, None):
        head |= {"first": span[0], "last": span[1]}
    return encode(head | {"curves": metrics.asked_curves(run, names, span)})


def _first_names(names: Iterable[str]) -> list[str]:
    """The names of a run's metrics, those that a page shows first in front."""
    return sorted(names, key=lambda name: (not metrics.is_first(name), name))


def _fitting_views(rows: Iterable[Any], limit: int, view: Callable[[Any], Any]) -> tuple[list[Any], int]:
    """The views of as many rows as fit into ``limit`` bytes, and how many were left out."""
    fitting: list[Any] = []
    left, rows = limit, list(rows)
    for row in rows:
        shown = view(row)
        left -= len(encode(shown)) + 1
        if left < 0:
            break
        fitting.append(shown)
    return fitting, len(rows) - len(fitting)


def _rows_of_step(run: Run, step: int | None) -> tuple[list[Any], list[Any], int]:
    """The newest step's rollouts, those in flight first; its groups; and how many rollouts were left out."""
    if step is None:
        return [], [], 0
    rows = newest_rollouts(run, step)
    rows.sort(key=lambda row: (row.status != "running", row.group, row.index))
    rollouts, more = _fitting_views(rows, ROLLOUTS_BYTES, _short_rollout)
    attempt = rows[0].attempt if rows else 0
    found = RolloutGroup.objects.filter(run=run, attempt=attempt, step=step).order_by("group")
    groups, _none = _fitting_views(found, GROUPS_BYTES, group_view)
    return rollouts, groups, more


def _short_rollout(rollout: Rollout) -> dict[str, Any]:
    """RolloutView with the task cut; ``short`` makes the page take the whole row when it comes."""
    view = rollout_view(rollout)
    if len(view["task"] or "") <= TASK_SHOWN:
        return view
    return view | {"task": f"{view['task'][:TASK_SHOWN]}…", "short": True}
