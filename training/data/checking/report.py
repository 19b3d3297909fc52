"""The report of one dataset check, and the statistics it is made from. Memory stays bounded whatever the file holds."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from pydantic import BaseModel, Field

from training.data.learned import facts_of
from training.data.problems import (
    FACTS,
    IGNORED,
    MAX_BAD_ROWS_LISTED,
    MAX_CATEGORIES,
    MAX_COLUMNS,
    MAX_FINDINGS_LISTED,
    MAX_REMARKS_WRITTEN,
    Finding,
    Ignored,
    RowError,
    finding,
)
from training.data.reader import Recognition
from training.data.schema import Row
from training.rows import category_of
from training.words import Sentence, _, sentence

SHORT_ROWS, SHORT_BARS = 64, 12

MAX_TURNS_SHOWN = 50
PREVIEW_TEXT_CHARS = 500
PREVIEW_ITEMS = 50
LANGUAGE_CHARS = 200
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")


class Lengths(BaseModel):
    """Distribution of row lengths: ``counts[i]`` rows have ``edges[i] <= length < edges[i + 1]``."""

    unit: str = _("tokens (estimated)")
    edges: list[int] = Field(default_factory=list)
    counts: list[int] = Field(default_factory=list)
    p50: int = 0
    p95: int = 0
    max: int = 0


class FormatFound(BaseModel):
    """The format that the file was read as, and why."""

    name: Literal["jsonl", "json", "csv", "parquet", "unknown"] = "unknown"
    rows: str = ""
    """Name of the format of its rows, of ``formats.FORMATS``."""
    evidence: list[str] = Field(default_factory=list)
    told: list[Sentence] = Field(default_factory=list)
    """The evidence, for translation."""

    def note(self, evidence: Iterable[str]) -> None:
        """Add to the evidence."""
        texts = list(evidence)
        self.evidence += [str(text) for text in texts]
        self.told += [Sentence.of(text) for text in texts]


class IgnoredColumn(BaseModel):
    """A column, or values of one, that no row has, and how many rows of the file had them."""

    column: str
    code: str
    rows: int
    told: Sentence
    """The sentence, for translation."""


class Report(BaseModel):
    """Outcome of a check. ``rows`` are the usable ones; ``turns`` counts messages in a row ("50+" and more together).

    ``columns`` are the keys kept besides conversation and tools with how many rows have them, ``ignored`` those that
    are in no row: every column of the file is in the conversation, in one of these, or of a bad row. ``preview`` holds
    the first rows with long texts shortened. ``bad`` are rows that are left out, ``findings`` remarks on rows that are
    kept: the first of them; ``codes`` counts all of both by their code. With verdict ``rejected`` there is no
    ``rows.jsonl``; ``unsure`` asks how the file is to be read.
    """

    verdict: Literal["ok", "bad_rows", "unsure", "rejected"] = "rejected"
    message: str = ""
    told: list[Sentence] = Field(default_factory=list)
    """The message, for translation."""
    recognised: Recognition = Field(default_factory=Recognition)
    rows: int = 0
    bad_rows: int = 0
    bad: list[Finding] = Field(default_factory=list)
    findings: list[Finding] = Field(default_factory=list)
    codes: dict[str, int] = Field(default_factory=dict)
    tools: dict[str, int] = Field(default_factory=dict)
    categories: dict[str, int] = Field(default_factory=dict)
    languages: dict[str, int] = Field(default_factory=dict)
    bytes: int = 0
    sha256: str = ""
    columns: dict[str, int] = Field(default_factory=dict)
    ignored: list[IgnoredColumn] = Field(default_factory=list)
    link: str = ""
    """Where a page leads on: ``import_run`` for the file of a run."""
    roles: dict[str, int] = Field(default_factory=dict)
    turns: dict[str, int] = Field(default_factory=dict)
    length: Lengths = Field(default_factory=Lengths)
    preview: list[dict[str, Any]] = Field(default_factory=list)
    format: FormatFound = Field(default_factory=FormatFound)


class Measure(NamedTuple):
    """How long a text is, and in what unit."""

    unit: str
    length: Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Tokens of a text by rule of thumb: a CJK character is 1, of other text 4 bytes are 1 (rounded up)."""
    if text.isascii():
        return -(-len(text) // 4)
    other, cjk = _CJK.subn("", text)
    return cjk - (-len(other.encode()) // 4)


ESTIMATE = Measure(_("tokens (estimated)"), estimate_tokens)


def tokenizer_measure(folder: Path) -> Measure:
    """Count with the ``tokenizer.json`` of a model folder. Raises ``OSError`` or ``ValueError`` when it has none."""
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError("the folder holds no tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as exc:  # the library raises bare Exception
        raise ValueError(f"tokenizer.json cannot be read: {type(exc).__name__}") from exc
    return Measure(_("tokens"), lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))


class Statistics:
    """Counts over all rows of a file, one ``add`` a row."""

    def __init__(self, measure: Measure, preview_rows: int) -> None:
        self.measure = measure
        self.preview_rows = preview_rows
        self.rows = self.bad_rows = 0
        self.bad: list[Finding] = []
        self.columns: Counter[str] = Counter()
        self.roles: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        self.turns: Counter[int] = Counter()
        self.lengths = array("I")
        self.findings: list[Finding] = []
        self.codes: Counter[str] = Counter()
        self.tools: Counter[int] = Counter()
        self.categories: Counter[str] = Counter()
        self.languages: Counter[str] = Counter()
        self.preview: list[dict[str, Any]] = []
        self.ignored: Counter[Ignored] = Counter()
        self.facts: Counter[str] = Counter()
        self.remarks = 0
        self.written: TextIO | None = None
        """Where every bad row goes, and the first ``MAX_REMARKS_WRITTEN`` remarks, one JSON line each."""

    def add_bad(self, line: int, error: RowError) -> None:
        """Count a bad row; the first ones are listed, all of them go to the list."""
        self.bad_rows += 1
        self.codes[error.code] += 1
        self._list(self.bad, MAX_BAD_ROWS_LISTED, line, error.code, error.values)

    def add(self, row: Row, length: int) -> None:
        """Count a good row; ``length`` is what ``length_of`` gave."""
        self.rows += 1
        self.keys[row.spelling.key] += 1
        for name in row.extra:
            if name in self.columns or len(self.columns) < MAX_COLUMNS:
                self.columns[name] += 1
        roles = self.roles
        for message in row.messages:
            roles[message.role] += 1
        self.turns[min(len(row.messages), MAX_TURNS_SHOWN)] += 1
        self.lengths.append(length)
        self.tools[min(len(row.tools or row.offered), MAX_TURNS_SHOWN)] += 1
        self.languages[_language(row)] += 1
        category = category_of(row.extra)
        if category and (category in self.categories or len(self.categories) < MAX_CATEGORIES):
            self.categories[category] += 1
        self.facts.update(row.facts)
        self.facts.update(facts_of(row))
        if len(self.preview) < self.preview_rows:
            self.preview.append(shorten(row.normal()))

    def add_ignored(self, columns: Iterable[Ignored]) -> None:
        """Count columns that were kept out of a row."""
        for each in columns:
            if each in self.ignored or len(self.ignored) < MAX_COLUMNS:
                self.ignored[each] += 1

    def add_remarks(self, line: int, remarks: list[tuple[str, dict[str, str | int]]]) -> None:
        """Count remarks on a good row; the first ones are listed."""
        for code, values in remarks:
            self.codes[code] += 1
            self.remarks += 1
            if self.remarks <= MAX_REMARKS_WRITTEN:
                self._list(self.findings, MAX_FINDINGS_LISTED, line, code, values)

    def _list(self, shown: list[Finding], most: int, line: int, code: str, values: dict[str, str | int]) -> None:
        if len(shown) >= most and self.written is None:
            return
        found = finding(line, code, values)
        if len(shown) < most:
            shown.append(found)
        if self.written is not None:
            self.written.write(found.model_dump_json(include={"line", "code", "values"}) + "\n")

    def length_of(self, row: Row) -> int:
        """Length of a row in the unit of the measure."""
        measure, length = self.measure.length, 0
        for message in row.messages:
            length += measure(message.content)
            if message.reasoning:
                length += measure(message.reasoning)
            if message.tool_calls:
                length += measure("".join(call.name + str(call.arguments) for call in message.tool_calls))
        return length

    def fill(self, report: Report) -> None:
        """Write everything counted into a report."""
        report.rows, report.bad_rows, report.bad = self.rows, self.bad_rows, self.bad
        report.columns, report.roles = dict(self.columns), dict(self.roles)
        report.turns, report.tools = _by_number(self.turns), _by_number(self.tools)
        report.findings, report.codes = self.findings, dict(self.codes.most_common())
        report.categories, report.languages = dict(self.categories.most_common()), dict(self.languages)
        report.length = length_histogram(self.lengths, self.measure.unit)
        report.preview = self.preview
        report.ignored = [_ignored(each, count) for each, count in self.ignored.items()]
        report.format.note(sentence(FACTS[code], count=count) for code, count in self.facts.items())
        report.format.note(
            sentence(_("{count} rows have their messages under `{key}`."), count=count, key=key)
            for key, count in self.keys.items()
            if key
        )


def _ignored(each: Ignored, count: int) -> IgnoredColumn:
    column = "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in each.column)
    remark = sentence(IGNORED[each.code], column=column, count=count, detail=each.detail)
    return IgnoredColumn(column=column, code=each.code, rows=count, told=Sentence.of(remark))


def _by_number(counts: Counter[int]) -> dict[str, int]:
    return {f"{n}+" if n == MAX_TURNS_SHOWN else str(n): count for n, count in sorted(counts.items())}


def _language(row: Row) -> str:
    """The script of the first user turn: `latin`, `cjk`, `both` or `other`; `none` without one."""
    text = next((message.content for message in row.messages if message.role == "user"), "")[:LANGUAGE_CHARS]
    if not text:
        return "none"
    if text.isascii():
        return "latin"
    cjk = len(_CJK.findall(text))
    latin = sum(mark.isascii() and mark.isalpha() for mark in text)
    if cjk and latin > cjk:
        return "both"
    return "cjk" if cjk else "latin" if latin * 2 > len(text) else "other"


def length_histogram(lengths: array[int], unit: str) -> Lengths:
    """Histogram with edges 0, 16, 32, 64, … up to above the longest row; equal steps where all rows are short."""
    if not lengths:
        return Lengths(unit=unit)
    ordered = sorted(lengths)
    if ordered[-1] < SHORT_ROWS:
        width = (ordered[-1] - ordered[0]) // SHORT_BARS + 1
        edges = list(range(ordered[0], ordered[-1] + width + 1, width))
    else:
        edges = [0, 16]
        while edges[-1] <= ordered[-1]:
            edges.append(edges[-1] * 2)
    counts = [0] * (len(edges) - 1)
    for value in ordered:
        counts[bisect_right(edges, value) - 1] += 1
    last = len(ordered) - 1
    return Lengths(
        unit=unit,
        edges=edges,
        counts=counts,
        p50=ordered[round(last * 0.5)],
        p95=ordered[round(last * 0.95)],
        max=ordered[-1],
    )


def shorten(value: Any, text_chars: int = PREVIEW_TEXT_CHARS) -> Any:
    """A copy for the preview: texts and lists cut, so that a report stays small."""
    if isinstance(value, str):
        return value if len(value) <= text_chars else value[:text_chars] + "…"
    if isinstance(value, list):
        return [shorten(item, text_chars) for item in value[:PREVIEW_ITEMS]]
    if isinstance(value, dict):
        return {shorten(key, 100): shorten(item, text_chars) for key, item in list(value.items())[:PREVIEW_ITEMS]}
    return value
