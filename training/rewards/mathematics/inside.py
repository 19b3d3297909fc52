"""What runs in the sandbox: Math-Verify decides whether two expressions are the same. Nothing else imports this."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from typing import Any, NamedTuple

from math_verify import LatexExtractionConfig, parse, verify

DIGITS = 6
_CONFIG = [LatexExtractionConfig()]
_ROOT = re.compile(r"(?<!\\)sqrt\s*\(([^()]*)\)|√\s*\(([^()]*)\)|√\s*(\d+|[a-z])")
_SIGNS = {
    "π": r"\pi ",
    "∞": r"\infty ",
    "×": r"\times ",
    "·": r"\cdot ",
    "÷": "/",
    "≤": r"\le ",
    "≥": r"\ge ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "²": "^2",
    "³": "^3",
    "**": "^",
}
_WORD = re.compile(r"(?<![\\a-zA-Z])(pi|infty|inf|infinity|sin|cos|tan|ln|log|exp)(?![a-zA-Z])")
_MACRO = {"inf": "infty", "infinity": "infty"}
WARM = (
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"),
    ("x^2+2x+1", "(x+1)^2"),
    (r"\{1,2,3\}", r"\{3,2,1\}"),
    ("[0,1)", "(0,1)"),
    (r"(-\infty, 2] \cup [3,4]", r"[3,4] \cup (-\infty,2]"),
    ("(1,2,3)", "(1,2,4)"),
    (r"x \le 3", r"3 \ge x"),
    ("x=5", "5"),
    (r"\sin(x)^2+\cos(x)^2", "1"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}"),
    (r"\ln(2)+e^{x}", r"\log(3)"),
    (r"5!", "120"),
    (r"\int_0^1 x dx", r"\frac12"),
    (r"\sum_{i=1}^{3} i", "6"),
    (r"\lim_{x \to 0} x", "0"),
    (r"50\%", "0.5"),
    ("1,2", "2,1"),
    (r"\pm 3", r"\{3,-3\}"),
    ("1+2i", "2i+1"),
    (r"\binom{5}{2}", "10"),
    (r"|x|", r"\sqrt{x^2}"),
    (r"\lfloor 2.5 \rfloor", "2"),
)
"""Pairs that make sympy load what it loads at first use: nothing can be loaded once the process is confined."""


def same(said: str, truth: str) -> bool:
    """Whether two expressions have one value. May take for ever, and all memory: only the sandbox calls it."""
    answer, gold = (parse(f"${_latex(text)}$", _CONFIG, "no_fallback", parsing_timeout=None) for text in (said, truth))
    return bool(answer and gold) and _verified(gold, answer)


def _verified(gold: Any, answer: Any) -> bool:
    return bool(verify(gold, answer, float_rounding=DIGITS, timeout_seconds=None))


def _latex(text: str) -> str:
    """An expression of plain text as LaTeX: `2*sqrt(3)`, `π`, `x**2`, `{1, 2}`."""
    text = _ROOT.sub(lambda found: rf"\sqrt{{{found[1] or found[2] or found[3]}}}", text)
    for sign, macro in _SIGNS.items():
        text = text.replace(sign, macro)
    if text.startswith("{") and text.endswith("}"):
        text = rf"\{{{text[1:-1]}\}}"
    return _WORD.sub(lambda found: "\\" + _MACRO.get(found[1], found[1]), text)


def reward(pair: dict[str, Any]) -> float:
    """What the sandbox is asked."""
    return float(same(pair["said"], pair["truth"]))


def warm() -> None:
    """Load all that is loaded at first use, before the process is confined."""
    import logging

    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(2000)
    for said, truth in WARM:
        same(said, truth)


# --- Units ----------------------------------------------------------------------------------------------------------
# Units behind numbers: their spellings, and what they are worth in one another.

MAX_WORDS = 4
_KNOWN: dict[str, dict[str, str]] = {
    "length": {
        "1": "m meter meters metre metres 米",
        "1/1000": "mm millimeter millimeters millimetre millimetres 毫米",
        "1/100": "cm centimeter centimeters centimetre centimetres 厘米",
        "1000": "km kilometer kilometers kilometre kilometres 千米 公里",
        "254/10000": "in inch inches",
        "3048/10000": "ft foot feet",
        "9144/10000": "yd yard yards",
        "1609344/1000": "mi mile miles",
    },
    "mass": {
        "1": "g gram grams 克",
        "1/1000": "mg milligram milligrams 毫克",
        "1000": "kg kilogram kilograms 千克 公斤",
        "45359237/100000": "lb lbs pound pounds",
    },
    "time": {
        "1": "s sec secs second seconds 秒",
        "60": "min mins minute minutes 分钟",
        "3600": "h hr hrs hour hours 小时",
        "86400": "day days 天",
        "604800": "week weeks 周",
    },
    "volume": {
        "1": "l liter liters litre litres 升",
        "1/1000": "ml milliliter milliliters millilitre millilitres 毫升",
    },
    "angle": {"1": "degree degrees deg ° ^\\circ ^{\\circ} 度"},
    "money": {"1": "dollar dollars usd 美元", "1/100": "cent cents"},
    "euro": {"1": "euro euros eur"},
    "yuan": {"1": "yuan rmb 元"},
}
_UNITS = {
    spelled: (kind, Fraction(factor))
    for kind, factors in _KNOWN.items()
    for factor, names in factors.items()
    for spelled in names.split()
}
_WORDS = re.compile(r"[^\W\d_](?:[^\W\d_]|[-/²³]|\^\{?\d\}?)*|°|\^\\circ|\^\{\\circ\}")
_LINK = re.compile(
    r"and|or|but|not|nor|plus|minus|times|over|in|to|is|are|with|without|than|less|more|of|.*[或和不非].*", re.I
)
"""Words that join two things, and so belong to no unit."""


class Unit(NamedTuple):
    """``kind`` names what is measured; ``factor`` is one of it in the kind's first unit."""

    kind: str
    factor: Fraction


def unit_of(text: str) -> Unit | None:
    """The unit that a few words are: a known one, else the words themselves; ``None`` where it is no unit."""
    words = text.strip().rstrip(".").split()
    if not words or len(words) > MAX_WORDS or not all(_WORDS.fullmatch(word) for word in words):
        return None
    found = _UNITS.get(words[0]) or _UNITS.get(words[0].casefold())
    if found is not None and len(words) == 1:
        return Unit(*found)
    if any(map(_LINK.fullmatch, words)):
        return None
    return Unit(" ".join(word.casefold().removesuffix("s") for word in words), Fraction(1))


def known_unit(word: str) -> bool:
    """Whether a word is a unit that is known by its name."""
    return word in _UNITS or word.casefold() in _UNITS
