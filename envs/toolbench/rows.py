"""Dataset rows of a server's queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from envs.toolbench.speech import DIALECTS
from envs.toolbench.tasks import Speech, TaskSet
from envs.toolbench.world import starter_indices


def task_rows(tasks: TaskSet, count: int, start: int = 0, speech: Speech = "native") -> Iterator[dict[str, Any]]:
    """Dataset rows for ``count`` queries from ``start``, with the opening that a reset repeats; fewer at the end."""
    return _rows(tasks, range(start, min(start + count, len(tasks))), speech)


def starter_rows(tasks: TaskSet, count: int, start: int = 0, speech: Speech = "native") -> Iterator[dict[str, Any]]:
    """The same of our own world's starter queries alone; ``start`` of them are left out."""
    return _rows(tasks, islice(starter_indices(0), start, start + count), speech)


def _rows(tasks: TaskSet, indices: Iterable[int], speech: Speech) -> Iterator[dict[str, Any]]:
    for index in indices:
        task = tasks.at(index)
        row = {"id": f"toolbench-{tasks.name}-{task.query_id}", "query_id": task.query_id, "task_set": tasks.name}
        messages = [{"role": item.role, "content": item.content} for item in DIALECTS[speech].opening(task)]
        yield {**row, "speech": speech, "question": task.query, "messages": messages}
