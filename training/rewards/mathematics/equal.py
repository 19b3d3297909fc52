"""Whether a text states a right answer: its claim against the answer, by itself or with the sandbox's help."""

from __future__ import annotations

import re
from functools import lru_cache

from training.errors import RewardFault
from training.rewards.mathematics.claim import Claim, answer_in, claims_of, is_denied
from training.rewards.mathematics.plain import bare, same_value, value_of
from training.rewards.mathematics.units import known_unit
from training.sandbox.pool import pool
from training.sandbox.problems import SandboxProblem
from training.sandbox.process import Limits
from training.words import _, sentence

LIBRARY = "training.rewards.mathematics.inside"
CODE = f"from {LIBRARY} import reward"
LIMITS = Limits(seconds=2.0, memory_mb=1024)
MAX_EXPRESSION_CHARS = 400
REMEMBERED = 8192
_OUTSIDE = frozenset({"unavailable", "busy"})
"""Problems of the machine; all others are the expression's own, which then is not the answer."""
_MATH = re.compile(r"\$+(.+?)\$+|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.S)
_VALUE = re.compile(
    r"(?<![A-Za-z0-9_.])[-+−]?\s?[$€£¥]?(?:\\[dt]?frac\s*\{-?\d+\}\s*\{-?\d+\}|\d+\s+\d+/\d+|\d[\d,]*/\d+|\d+,\d{1,2}(?![\d,])"
    r"|\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?(?:\s*\\?%|\s*°)?",
    re.I,
)
_RELATION = re.compile(
    r"[<>≤≥]|\\(?:le|ge|lt|gt)(?:q|qslant)?\b|\b(?:less|more|greater|fewer|smaller|larger) than\b"
    r"|\bat (?:least|most)\b|\bor (?:more|less|higher|lower|above|below|greater|fewer)\b|\b(?:above|below|up to)\b",
    re.I,
)
_OPTION = re.compile(r"(?<![\w'’])\(?([A-J])\)?(?![\w'’])")
_LINK = re.compile(
    r"(?:\\q?quad|[;,\s])*(?:\b(?:and|or)\b|(?<=[\d)])(?:and|or)(?=[\d(])|或|和|;|\\q?quad)(?:\\q?quad|[;,\s])*|,\s*(?=[a-zA-Z]_)|,\s*(?=[a-z]\s*=)"
)
_NAMED = re.compile(r"([a-zA-Z])(?:_\{?\w+\}?|\([a-z]\))?\s*=\s*")
_VARIABLE = re.compile(r"[a-zA-Z](?:_\{?\w\}?)?(?:\([a-z]\))?")
_LETTERS = re.compile(
    r"\\(?:begin|end)\{[a-zA-Z]*\*?\}(?:\{[lcr|]*\})?|\\[a-zA-Z]+|(?:sqrt|sinh?|cosh?|tanh?|log|ln|exp|pi|inf|infty|infinity)(?![a-z])"
)
_WORDS = re.compile(r"[^\W\d_]{3,}|(?<![^\W\d_])(?:or|is|at|if|no|so|to|of|in|on|an|as|by|it|we|be)(?![^\W\d_])", re.I)


def states(text: str, truth: str) -> bool:
    """Whether the text claims the answer. Raises ``RewardFault`` where the sandbox cannot be used at all."""
    gold = bare(answer_in(truth))
    if not gold:
        return False
    for claim in claims_of(text):
        if same(bare(claim.text), gold) and (not claim.is_prose or not is_denied(claim)):
            return not is_denied(Claim("", claim.before))
        if is_denied(claim):
            return False
        pieces = _values_in(claim.text, gold)
        if len(pieces) == 1 and same(pieces.pop(), gold):
            return True
    return False


def same(said: str, gold: str) -> bool:
    """Whether two bare answers are one."""
    if not said or said.casefold() == gold.casefold():
        return bool(said)
    if (answer := value_of(said)) is not None and (number := value_of(gold)) is not None:
        return same_value(answer, number)
    named = _by_name(said), _by_name(gold)
    if all(len(each) > 1 for each in named):
        return named[0].keys() == named[1].keys() and all(
            same(bare(named[0][name]), bare(named[1][name])) for name in named[0]
        )
    said, gold = as_list(said), as_list(gold)
    return is_expression(said) and is_expression(gold) and _computed(said, gold)


def _by_name(text: str) -> dict[str, str]:
    """The values of several unknowns by their names; empty where one item is no such value, or a name comes twice."""
    items = [_NAMED.match(item.strip()) for item in _LINK.split(text)]
    values = {found[1]: found.string[found.end() :] for found in items if found}
    return values if len(values) == len(items) else {}


def as_list(text: str) -> str:
    """Several answers parted by commas: `1 or 2`, `x_1 = 1, x_2 = 2`."""
    items = [item.strip() for item in _LINK.split(text)]
    names = {found[1] for item in items if (found := _NAMED.match(item))}
    if len(items) > 1 and len(names) == 1:  # of one unknown; of two, it matters which is which
        items = [_NAMED.sub("", item) for item in items]
    return ", ".join(item for item in items if item)


def is_expression(text: str) -> bool:
    """Whether a bare answer can be an expression of mathematics: no words, not long, something to compute with."""
    rest = _LETTERS.sub(" ", text)
    return len(text) <= MAX_EXPRESSION_CHARS and not _WORDS.search(rest) and bool(re.search(r"[\w∞π∅]", text))


def _values_in(text: str, gold: str) -> set[str]:
    """The different answers that the words of a claim name, of the kind that the right one is."""
    spans = {bare(next(filter(None, found.groups()))) for found in _MATH.finditer(text)}
    spans = {span for span in spans if not _VARIABLE.fullmatch(span)} or spans
    if spans and not all(_VARIABLE.fullmatch(span) for span in spans):
        return spans
    if re.fullmatch(r"[A-J]", gold, re.I):
        return set(_OPTION.findall(text))
    if _RELATION.search(text):
        return set()
    found = set()
    for match in _VALUE.finditer(text):
        following = re.match(r"\s*([^\W\d_]+)", text[match.end() :])
        unit = f" {following[1]}" if following and known_unit(following[1]) else ""
        found.add(bare(match[0]) + unit)
    return found


@lru_cache(REMEMBERED)
def _computed(said: str, gold: str) -> bool:
    try:
        return pool.call(CODE, LIMITS, {"said": said, "truth": gold}, LIBRARY).value == 1.0
    except SandboxProblem as exc:
        if exc.problem.kind in _OUTSIDE:
            raise RewardFault(
                sentence(_("The answers cannot be compared. {problem}"), problem=exc.problem.sentence)
            ) from exc
        return False
