"""Bad rows and remarks, one by one: as a list that can be filtered, and as a CSV file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from training.data import MAX_REASON_CHARS, PROBLEMS
from training.data.making import COLUMN
from webapp.common.serving import csv_lines
from webapp.common.text import in_words, translated
from webapp.datasets.choices import remark_words
from webapp.datasets.models import Dataset

# --- Plots ----------------------------------------------------------------------------------------------------------
# The quality report of a dataset as plots: bars with their numbers, drawn by the server.

MOST_BARS = 12


class Bar(NamedTuple):
    """One bar: ``width`` is 0 to 100 of the longest."""

    label: str
    rows: int
    width: float
    share: float


class Plot(NamedTuple):
    """A list of bars. ``note`` says what is counted, ``empty`` is shown where there is nothing."""

    key: str
    title: str
    note: str
    bars: list[Bar]
    empty: str


def plots_of(report: dict[str, Any], rows: int, bad_rows: int) -> list[Plot]:
    """The plots of a report."""
    turns, tools = report.get("turns") or {}, report.get("tools") or {}
    kept, every = max(1, rows), max(1, rows + bad_rows)
    languages = {_script_name(name): count for name, count in (report.get("languages") or {}).items()}
    has_tools = any(name != "0" for name in tools)
    codes = report.get("codes") or {}
    return [
        _length_plot(report.get("length") or {}, kept),
        Plot(
            "turns", _("Turns"), _("messages in a row"), _bars_of(_bin_counts(turns), kept), _("No rows were counted.")
        ),
        Plot(
            "tools",
            _("Tools"),
            _("tools that a row offers"),
            _bars_of(_bin_counts(tools), kept) if has_tools else [],
            _("No row has tools. An environment may offer its own."),
        ),
        Plot(
            "categories",
            _("Categories"),
            _("rows by category"),
            _bars_of(_largest(report.get("categories") or {}), kept),
            _("No row has a category."),
        ),
        Plot(
            "languages",
            _("Languages"),
            _("script of the first user turn"),
            _bars_of(languages, kept),
            _("No rows were counted."),
        ),
        Plot(
            "roles",
            _("Roles"),
            _("messages by role"),
            _bars_of(report.get("roles") or {}, 0),
            _("No rows were counted."),
        ),
        Plot(
            "duplicates",
            _("Duplicates"),
            _("rows"),
            _bars_of(_repeat_counts(codes, rows), kept),
            _("No row is a duplicate.") if rows else _("No rows were counted."),
        ),
        Plot(
            "codes",
            _("Rows to fix"),
            _("problems and remarks; a row may have several"),
            _bars_of({code_words(code): count for code, count in codes.items()}, every),
            _("No row has a problem or a remark.") if rows else _("No rows were counted."),
        ),
    ]


def _length_plot(length: dict[str, Any], kept: int) -> Plot:
    """The lengths of rows, from the first step that has any."""
    edges, counts = length.get("edges") or [], length.get("counts") or []
    steps = {
        f"{low}–{high - 1}" if high - low > 1 else str(low): count
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
    }
    first = next((place for place, count in enumerate(counts) if count), 0)
    note = _("%(unit)s · median %(p50)s · 95%% below %(p95)s · longest %(most)s") % {
        "unit": translated(str(length.get("unit", ""))),
        "p50": length.get("p50", 0),
        "p95": length.get("p95", 0),
        "most": length.get("max", 0),
    }
    bars = _bars_of(dict(list(steps.items())[first:]), kept)
    return Plot("lengths", _("Row lengths"), note if bars else "", bars, _("No rows were counted."))


def _repeat_counts(codes: dict[str, int], rows: int) -> dict[str, int]:
    """Counts of unique rows, of repeats and of rows of the other dataset; empty without repeats."""
    words = {"duplicate": _("repeats of another row"), "leak": _("tasks of the other dataset")}
    found = {name: codes[code] for code, name in words.items() if codes.get(code)}
    return {_("unique rows"): rows - codes.get("duplicate", 0), **found} if found else {}


def _bars_of(counts: dict[str, int], whole: int) -> list[Bar]:
    highest, whole = max(counts.values(), default=0), whole or max(1, sum(counts.values()))
    return [Bar(label, n, round(100 * n / highest, 2) if highest else 0, n / whole) for label, n in counts.items()]


def _largest(counts: dict[str, int]) -> dict[str, int]:
    """The largest few; the rest together."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    rest = sum(count for _label, count in ordered[MOST_BARS:])
    others = {_("%(n)s others") % {"n": len(ordered) - MOST_BARS}: rest} if rest else {}
    return {**dict(ordered[:MOST_BARS]), **others}


def _bin_counts(counts: dict[str, int]) -> dict[str, int]:
    """Counts by number, in at most ``MOST_BARS`` steps of equal width."""
    numbers = sorted(counts.items(), key=lambda item: int(item[0].rstrip("+")))
    if len(numbers) <= MOST_BARS:
        return dict(numbers)
    low, high = (int(numbers[place][0].rstrip("+")) for place in (0, -1))
    is_open = numbers[-1][0].endswith("+")
    width = -(-(high - low + 1) // MOST_BARS)
    bins: dict[str, int] = {}
    for name, count in numbers:
        first = low + (int(name.rstrip("+")) - low) // width * width
        label = f"{first}+" if is_open and first + width > high else f"{first}–{first + width - 1}"
        bins[label] = bins.get(label, 0) + count
    return bins


def _script_name(name: str) -> str:
    words = {
        "latin": _("Latin letters"),
        "cjk": _("Chinese, Japanese or Korean"),
        "both": _("both"),
        "other": _("another script"),
        "none": _("no user turn"),
    }
    return words.get(name, name)


def code_words(code: str) -> str:
    """A code in few words: its sentence without what only a row has."""
    problem = PROBLEMS.get(code)
    if problem is None:
        return code
    short = remark_words(code)
    return (
        short if short != code else in_words({"template": problem.template, "values": _empty_places(problem.template)})
    )


def _empty_places(template: str) -> dict[str, str]:
    return {part.partition("}")[0]: "…" for part in template.split("{")[1:]}


def code_filters(report: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Codes, their words and how often each was found, bad rows first."""
    codes: Iterable[tuple[str, int]] = (report.get("codes") or {}).items()
    ordered = sorted(codes, key=lambda item: (item[0] in PROBLEMS and not PROBLEMS[item[0]].drops, -item[1]))
    return [(code, code_words(code), count) for code, count in ordered]


# --- Words ----------------------------------------------------------------------------------------------------------
# The sentences of a dataset's check about files and rows, in the reader's language.


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
