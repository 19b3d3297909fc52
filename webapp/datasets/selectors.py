"""Reading datasets."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from training.data import is_off, reasoning_of
from webapp.common.ids import latest_versions
from webapp.datasets.models import Dataset, DatasetState
from webapp.people.teams.models import Project
from webapp.runs.config import having
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL

LONG_TEXT_CHARS = 280


def datasets_of(project: Project) -> QuerySet[Dataset]:
    """All versions of all datasets of a project, newest first."""
    return Dataset.objects.filter(project=project).select_related("project", "created_by")


def latest_datasets(project: Project) -> QuerySet[Dataset]:
    """The newest version of each dataset with how many versions there are, newest first."""
    return latest_versions(datasets_of(project), project)


def versions_of(dataset: Dataset) -> QuerySet[Dataset]:
    """All versions under the same name, newest first."""
    return datasets_of(dataset.project).filter(name=dataset.name).order_by("-version")


def ready_datasets(project: Project) -> QuerySet[Dataset]:
    """The datasets that a job may be started with."""
    return datasets_of(project).filter(state=DatasetState.READY).order_by("name", "-version")


def runs_using(dataset: Dataset, *, active: bool = False) -> QuerySet[Run]:
    """Runs whose config names this version, or that resolved to its rows."""
    runs = Run.objects.filter(project=dataset.project).filter(
        having("data", "train", dataset.reference)
        | having("data", "train", str(dataset.rows_path), config="resolved")
        | Q(config__evaluate__data=dataset.reference)
        | Q(resolved__evaluate__data=str(dataset.rows_path))
    )
    return runs.exclude(state__in=TERMINAL) if active else runs


class Bar(NamedTuple):
    """One bar of the length histogram, in units of its drawing."""

    x: int
    y: int
    width: int
    height: int
    middle: int
    label: str
    rows: int


class Histogram(NamedTuple):
    """The length histogram as a drawing of 640 by 180."""

    bars: list[Bar]
    unit: str
    p50: int
    p95: int
    max: int


def histogram_of(report: dict[str, Any]) -> Histogram | None:
    """Bars for the lengths of rows; ``None`` when nothing was measured."""
    length = report.get("length") or {}
    counts, edges = length.get("counts"), length.get("edges") or []
    if not counts or len(edges) != len(counts) + 1:
        return None
    width, highest = 640 // len(counts), max(counts)
    bars = []
    for index, count in enumerate(counts):
        height = max(2 if count else 0, round(130 * count / highest)) if highest else 0
        low, high = edges[index], edges[index + 1] - 1
        label = f"{low}–{high}" if high > low else str(low)
        bars.append(Bar(index * width + 2, 150 - height, width - 4, height, index * width + width // 2, label, count))
    return Histogram(
        bars, str(length.get("unit", "")), length.get("p50", 0), length.get("p95", 0), length.get("max", 0)
    )


def preview_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The first rows in the form that the page shows them: messages with roles, calls and foldable long texts."""
    shown = []
    for number, row in enumerate(report.get("preview") or [], start=1):
        if not isinstance(row, dict):
            continue
        tools = row.get("tools") or []
        names = [str((tool.get("function") or tool).get("name", "?")) for tool in tools if isinstance(tool, dict)]
        extra = [(key, _value_shown(value)) for key, value in row.items() if key not in {"messages", "tools"}]
        messages = [_message_view(item) for item in row.get("messages") or [] if isinstance(item, dict)]
        asked = next((item["text"] for item in messages if item["role"] == "user"), "")
        shown.append({"number": number, "title": asked, "messages": messages, "tools": names, "extra": extra})
    return shown


def _message_view(item: dict[str, Any]) -> dict[str, Any]:
    text = str(item.get("content") or "")
    calls = [_call_text(call) for call in item.get("tool_calls") or [] if isinstance(call, dict)]
    role = str(item.get("role", ""))
    is_long = len(text) > LONG_TEXT_CHARS
    return {
        "role": role,
        "name": str(item.get("name") or ""),
        "reasoning": (reasoning_of(item) or "") if role == "assistant" else "",
        "is_learned": role != "assistant" or not is_off(item),
        "text": text,
        "calls": calls,
        "is_long": is_long,
        "head": text[:LONG_TEXT_CHARS] if is_long else "",
    }


def _call_text(call: dict[str, Any]) -> str:
    """A call as its tool's name and its arguments in JSON."""
    given = call.get("arguments")
    arguments = given if isinstance(given, dict) else {}
    shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return f"{call.get('name', '')}({shown})"


def percent_of(dataset: Dataset) -> int:
    """The progress of the check, 0 to 100."""
    total = int(dataset.progress.get("total") or 0)
    return min(100, round(100 * int(dataset.progress.get("bytes") or 0) / total)) if total else 0


def _value_shown(value: Any) -> Any:
    """A column's value as its file had it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool | None) else value
