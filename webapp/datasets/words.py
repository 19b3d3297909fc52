"""The sentences of a dataset's check about files and rows, in the reader's language."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from training.data.limits import MAX_REASON_CHARS
from training.data.making.losses import COLUMN
from training.data.problems import PROBLEMS
from webapp.common.text import in_words, translated


def finding_sentence(finding: dict[str, Any]) -> str:
    """The sentence of a finding, without its end stop."""
    problem = PROBLEMS.get(str(finding.get("code")))
    if problem is None:
        return str(finding.get("reason", ""))
    text = in_words({"template": problem.template, "values": finding.get("values") or {}})
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…"


def suggestion_of(code: str) -> str:
    """The advice for a problem."""
    return translated(PROBLEMS[code].suggestion) if code in PROBLEMS else ""


def ignored_of(report: dict[str, Any]) -> list[str]:
    """Columns that were left out of all rows, each with its reason and count."""
    return [in_words(item.get("told")) for item in report.get("ignored") or []]


def lost_words(name: str) -> str:
    """The name of something that a format cannot hold: a part of a row, or a column."""
    if name.startswith(COLUMN):
        return _("column %(name)s") % {"name": name.removeprefix(COLUMN)}
    return translated(name)


def evidence_of(report: dict[str, Any]) -> list[str]:
    """The evidence for a file's recognised format."""
    form = report.get("format") or {}
    return [in_words(found) for found in form.get("told") or []] or [str(text) for text in form.get("evidence") or []]
