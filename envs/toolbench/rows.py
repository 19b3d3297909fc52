"""Dataset rows of a server's queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envs.toolbench.speech import DIALECTS
from envs.toolbench.tasks import Speech, TaskSet


def task_rows(tasks: TaskSet, count: int, start: int = 0, speech: Speech = "native") -> Iterator[dict[str, Any]]:
    """Dataset rows for ``count`` queries from ``start``, with the opening that a reset repeats; fewer at the end."""
    for index in range(start, min(start + count, len(tasks))):
        task = tasks.at(index)
        row = {"id": f"toolbench-{tasks.name}-{task.query_id}", "query_id": task.query_id, "task_set": tasks.name}
        messages = [{"role": item.role, "content": item.content} for item in DIALECTS[speech].opening(task)]
        yield {**row, "speech": speech, "question": task.query, "messages": messages}
