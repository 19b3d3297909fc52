"""Bad rows and remarks, one by one: as a list that can be filtered, and as a CSV file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from training.data.problems import PROBLEMS
from webapp.common.csv_text import csv_lines
from webapp.datasets.models import Dataset
from webapp.datasets.words import finding_sentence, suggestion_of

PER_PAGE = 100
MAX_PAGES = 50
MAX_LINE_BYTES = 64 << 10


class Found(NamedTuple):
    """One finding as it is shown. ``kept``: the row is used anyway."""

    line: int
    code: str
    reason: str
    suggestion: str
    kept: bool


class Page(NamedTuple):
    """Some findings, and whether there are more before and after them."""

    items: list[Found]
    number: int
    has_next: bool


def findings_of(dataset: Dataset, code: str = "") -> Iterator[Found]:
    """Every bad row and the remarks that were written down, in the order of the file."""
    for item in _stored_findings(dataset):
        if not code or item.get("code") == code:
            name = str(item.get("code", ""))
            refused = name in (dataset.checking.get("refuse") or [])
            kept = name in PROBLEMS and not PROBLEMS[name].drops and not refused
            reason = finding_sentence(item)
            yield Found(int(item.get("line") or 0), name, reason, suggestion_of(name), kept)


def _stored_findings(dataset: Dataset) -> Iterator[dict[str, Any]]:
    try:
        with dataset.findings_path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                item = json.loads(line)
                if isinstance(item, dict):
                    yield item
    except (FileNotFoundError, ValueError):  # checked before findings were kept, or cut off
        yield from (dataset.report.get("bad") or []) + (dataset.report.get("findings") or [])


def findings_page(dataset: Dataset, code: str, number: int) -> Page:
    """One page of the list."""
    number = max(1, min(number, MAX_PAGES))
    start = (number - 1) * PER_PAGE
    found = list(islice(findings_of(dataset, code), start, start + PER_PAGE + 1))
    return Page(found[:PER_PAGE], number, len(found) > PER_PAGE and number < MAX_PAGES)


def findings_csv(dataset: Dataset, code: str = "") -> Iterator[str]:
    """The list as lines of CSV."""
    header = [_("line"), _("code"), _("row"), _("what is wrong"), _("what to do")]
    rows = (
        (item.line, item.code, _("kept") if item.kept else _("left out"), item.reason, item.suggestion)
        for item in findings_of(dataset, code)
    )
    return csv_lines(header, rows)
