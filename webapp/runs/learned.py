"""Whether a run learned from the tasks that an evaluation plays: then its figure says little about other tasks."""

from __future__ import annotations

from webapp.runs.config import config_of
from webapp.runs.models import Run


def learned_from(run: Run, data: str, share: float) -> bool:
    """Whether ``run`` learned from rows of ``data`` that an evaluation of this ``share`` plays (0: of all rows).

    ``data`` is what a resolved config means by its dataset. Of a run with stages all count. Rows that the run itself
    held out by a share at least as large were not learned from.
    """
    config = config_of(run)
    if config is None:  # of another version: what it held out is not known
        return bool(data) and str(run.resolved.get("data", {}).get("train") or "") == data
    if not data or not config.method.trains:
        return False
    return any(
        course.data.train == data
        and not 0 < share <= (course.evaluate.share if course.method.learns_from == "rollouts" else 0.0)
        for course in config.courses
    )
