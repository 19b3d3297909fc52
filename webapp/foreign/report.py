"""The report on a foreign run's files, in the reader's language."""

from __future__ import annotations

import json
from typing import Any

from django.utils.translation import gettext as _

from training.imports.kinds import READERS
from training.imports.read import REPORT_NAME
from webapp.common.storage import attempt_dir
from webapp.common.text import in_words, message_of, translated
from webapp.runs.models import Run

REPORT_BYTES = 8 << 20


def import_report(run: Run) -> dict[str, Any]:
    """The report on a foreign run's files, from the run's folder; empty for a run of ours."""
    if not run.imported_from:
        return {}
    try:
        with open(attempt_dir(run.pk, run.attempt) / REPORT_NAME, "rb") as file:
            return import_view(json.loads(file.read(REPORT_BYTES)))
    except (OSError, ValueError):
        return {}


def import_view(report: dict[str, Any]) -> dict[str, Any]:
    """An import's report as pages show it."""
    titles = {reader.name: _(reader.title) for reader in READERS}
    files = [item | {"title": titles.get(item.get("kind", ""), "")} for item in report.get("files", [])]
    bad = sum(int(item.get("bad_rows", 0)) for item in files)
    left_out = [
        {"file": item.get("name", ""), "column": column, "why": translated(why)}
        for item in files
        for column, why in item.get("left_out", {}).items()
    ]
    notes = [*dict.fromkeys(note for item in files for note in _file_notes(item))]
    told = {"message": message_of(report), "tool": translated(report.get("tool"))}
    listed = {name: [_with_reason(item) for item in report.get(name, [])] for name in ("bad", "remarks")}
    return report | told | listed | {"files": files, "bad_rows": bad, "columns": left_out[:200], "notes": notes[:50]}


def _file_notes(item: dict[str, Any]) -> list[str]:
    """The notes on a file; reports of earlier versions have only the English sentences."""
    return [in_words(found) for found in item.get("told") or []] or [str(text) for text in item.get("notes", [])]


def _with_reason(item: dict[str, Any]) -> dict[str, Any]:
    return item | {"reason": in_words(item["told"])} if item.get("told") else item
