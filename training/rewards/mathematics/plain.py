"""Answers that need no algebra: words, option letters, and numbers however they are written."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from training.rewards.mathematics.units import Unit, unit_of

TOLERANCE = Fraction(1, 10**6)
"""How far a decimal may be from a number that no decimal reaches, relatively: 0.3333333 for 1/3."""
MAX_EXPONENT = 100
MAX_WRAPS = 8
_WRAPS = (
    re.compile(r"^\$+(.*?)\$+$", re.S),
    re.compile(r"^\\[(\[](.*)\\[)\]]$", re.S),
    re.compile(r"^\\(?:boxed|text|textbf|mathrm|mathbf|mbox)\s*\{((?:[^{}]|\{[^{}]*\})*)\}$", re.S),
    re.compile(r"^\*{1,2}(.*?)\*{1,2}$", re.S),
    re.compile(r"^[a-z](?:\s*=|\s*\\in(?![a-z]))\s*([^=]*)$", re.S | re.I),
    re.compile(r"^\(([^(),]*)\)$", re.S),
)
_WIDE = str.maketrans("－−–０１２３４５６７８９％（），：", "---0123456789%(),:")
_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mbox)\s*\{\s*([^{}]*)\}")
_TIGHT = re.compile(r"\\!\s*")
_LAYOUT = re.compile(r"\\(?:left|right|displaystyle)(?![a-z])|(?<!\\)\\[,;: ]|~|\\?[$€£¥]")
_SPACES = re.compile(r"\s+")
_ARTICLE = re.compile(r"^(?:the|an?)\s+(?=\S{2})", re.I)
_FRAC = re.compile(r"\\[dt]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(-?\d+)\s*\}|(\d))")
_RATIO = re.compile(r"([-+]?)\s*(?:(\d+)\s+)?(-?\d+)\s*/\s*(-?\d+)(?![\d.])")
_DECIMAL = re.compile(
    r"([-+]?)\s*(0,\d+(?![\d,.])|\d{1,3}(?:(?:,|\{,\}|[ \u202f\u00a0])\d{3})+(?:\.\d+)?"
    r"|\d+,\d{1,2}(?![\d,.])|\d+(?:\.\d*)?|\.\d+)"
    r"(?:e\s*([-+]?\d+)|\s*(?:\*|×|\\times|\\cdot)\s*10\s*(?:\^|\*\*)\s*\{?([-+]?\d+)\}?)?",
    re.I,
)
_GROUPS = re.compile(r"(?<=\d)(?:,|\{,\}|[ \u202f\u00a0])(?=\d{3}(?!\d))")
_SCALE = re.compile(r"\s*(?:(million|billion|thousand|万|亿|千)(?![a-z]))?\s*(\\?%|percent\b|per cent\b)?", re.I)
_SCALES = {"million": 10**6, "billion": 10**9, "thousand": 1000, "万": 10**4, "亿": 10**8, "千": 1000, "": 1}


class Value(NamedTuple):
    """A number as it is written: in percent or not, as a decimal or exactly, with a unit or none."""

    number: Fraction
    percent: bool
    decimal: bool
    unit: Unit | None


def bare(text: str) -> str:
    """An answer without what is around it: dollar signs, boxes, emphasis, `x =`, a full stop."""
    text = _TIGHT.sub("", text.translate(_WIDE))
    for _round in range(MAX_WRAPS):
        before, text = text, text.strip().rstrip(".。;；,").strip()
        for wrap in _WRAPS:
            text = wrap.sub(r"\1", text)
        if text == before:
            break
    text = _LAYOUT.sub(" ", _TEXT.sub(r" \1", text))
    return _ARTICLE.sub("", _SPACES.sub(" ", text).strip())


def value_of(text: str) -> Value | None:
    """The number that a bare answer is, with its unit; ``None`` where it is something else, or more than one."""
    text = _FRAC.sub(lambda found: f" {found[1] or found[2]}/{found[3] or found[4]} ", text).strip()
    if found := _RATIO.match(text):
        number, decimal = _ratio(found), False
    elif found := _DECIMAL.match(text):
        number, decimal = _decimal(found), "." in found[2] or bool(found[3] or found[4])
    else:
        return None
    scale = _SCALE.match(text, found.end())
    if number is None or scale is None:
        return None
    rest = text[scale.end() :].strip()
    unit = unit_of(rest) if rest else None
    if rest and unit is None:
        return None
    return Value(number * _SCALES[(scale[1] or "").lower()], bool(scale[2]), decimal, unit)


def _ratio(found: re.Match[str]) -> Fraction | None:
    whole, above, below = int(found[2] or 0), int(found[3]), int(found[4])
    if not below:
        return None
    number = whole + Fraction(above, below)
    return -number if found[1] == "-" else number


def _decimal(found: re.Match[str]) -> Fraction | None:
    exponent = int(found[3] or found[4] or 0)
    if abs(exponent) > MAX_EXPONENT:
        return None
    digits = (found[2] if found[2].startswith("0,") else _GROUPS.sub("", found[2])).replace(",", ".")
    number = Fraction(digits.rstrip(".")) * Fraction(10) ** exponent
    return -number if found[1] == "-" else number


def same_value(said: Value, truth: Value) -> bool:
    """Whether two numbers are one: 50% is 0.5 and 50; 5 m is 500 cm and 5, and not 5 feet."""
    factor = Fraction(1)
    if said.unit is not None and truth.unit is not None:
        if said.unit.kind != truth.unit.kind:
            return False
        factor = said.unit.factor / truth.unit.factor
    numbers = [said.number * factor]
    if said.percent != truth.percent:
        numbers.append(numbers[0] / 100 if said.percent else numbers[0] * 100)
    return any(_close(number, truth.number, decimal=said.decimal or truth.decimal) for number in numbers)


def _close(said: Fraction, truth: Fraction, *, decimal: bool) -> bool:
    """Equal; or, of a decimal and a number that no decimal reaches, nearly so."""
    if said == truth:
        return True
    endless = any(_is_endless(number) for number in (said, truth))
    return decimal and endless and abs(said - truth) <= TOLERANCE * abs(truth)


def _is_endless(number: Fraction) -> bool:
    below = number.denominator
    for prime in (2, 5):
        while below % prime == 0:
            below //= prime
    return below != 1
