"""Units behind numbers: their spellings, and what they are worth in one another."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

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
    found = _UNITS.get(words[0].casefold())
    if found is not None and len(words) == 1:
        return Unit(*found)
    if any(map(_LINK.fullmatch, words)):
        return None
    return Unit(" ".join(word.casefold().removesuffix("s") for word in words), Fraction(1))


def known_unit(word: str) -> bool:
    """Whether a word is a unit that is known by its name."""
    return word.casefold() in _UNITS
