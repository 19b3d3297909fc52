"""Notifications of a run: it succeeded, failed or paused, or an evaluation has its figures.

They are written in the transaction of the transition, once for each: the key is the run with the number of that event.
"""

from __future__ import annotations

from typing import Any

from training.errors import ErrorInfo
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Kind
from webapp.runs.models import Run
from webapp.runs.states import RunState

KINDS = {
    RunState.SUCCEEDED: Kind.RUN_SUCCEEDED,
    RunState.FAILED: Kind.RUN_FAILED,
    RunState.PAUSED: Kind.RUN_PAUSED,
}
HEADLINES = ("success", "reward")


def announce(run: Run, error: ErrorInfo | None) -> None:
    """Notify of the run's new state, if it is one that people wait for. Imports are not announced."""
    kind = KINDS.get(RunState(run.state))
    if kind is None or run.imported:
        return
    facts: dict[str, Any] = {"step": run.step, "total_steps": run.total_steps}
    if error is not None:
        facts["error"] = error.model_dump(mode="json")
    if kind == Kind.RUN_SUCCEEDED and run.measures:
        kind, facts = Kind.EVALUATION_READY, _headline_and_left_out(run.evaluation)
    notify(kind, run, key=f"run:{run.pk}:{run.seq}", person_id=run.created_by_id, facts=facts)


def _headline_and_left_out(report: dict[str, Any] | None) -> dict[str, Any]:
    """The headline of a report (``training.evaluation.recorded.Report``) and what it leaves out; empty without one."""
    if report is None:
        return {}
    figures = report.get("figures") or {}
    name = next((name for name in HEADLINES if (figures.get(name) or {}).get("value") is not None), None)
    left_out = {key: report.get(key) or 0 for key in ("missing_tasks", "excluded")}
    return left_out | ({"figure": {"name": name, **figures[name]}} if name else {})
