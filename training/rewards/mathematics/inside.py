"""What runs in the sandbox: Math-Verify decides whether two expressions are the same. Nothing else imports this."""

from __future__ import annotations

import re
import sys
from typing import Any

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
    """Whether two expressions have one value. May never end, and take all memory: only the sandbox calls it."""
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
