"""Whether a text states a right answer: its claim against the answer, by itself or with the sandbox's help."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from training.errors import RewardFault
from training.sandbox.problems import SandboxProblem
from training.sandbox.process import Limits, pool
from training.words import _, sentence

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
_UNIT_WORDS = re.compile(r"[^\W\d_](?:[^\W\d_]|[-/²³]|\^\{?\d\}?)*|°|\^\\circ|\^\{\\circ\}")
_UNIT_LINK = re.compile(
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
    if not words or len(words) > MAX_WORDS or not all(_UNIT_WORDS.fullmatch(word) for word in words):
        return None
    found = _UNITS.get(words[0].casefold())
    if found is not None and len(words) == 1:
        return Unit(*found)
    if any(map(_UNIT_LINK.fullmatch, words)):
        return None
    return Unit(" ".join(word.casefold().removesuffix("s") for word in words), Fraction(1))


def known_unit(word: str) -> bool:
    """Whether a word is a unit that is known by its name."""
    return word.casefold() in _UNITS


# What a text asserts: the one answer that it ends with, and nothing that it denies, offers or asks.

MAX_CHARS = 8_000
MAX_CLAIM_CHARS = 2_000
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|$)", re.S | re.I)
_THOUGHT_END = re.compile(r"^.*</think(?:ing)?>", re.S | re.I)
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.S | re.I)
_MARKER = re.compile(
    r"(?:answers?|result)\**\s*(?:(?:is|are|was|equals|becomes|comes out (?:to|as)"
    r"|(?:must|should|would|will|has to|can only) be)\b(?:\s*:)?|[:=：])|####|答案(?:应该|就|应)?(?:是|为|等于|[:：])",
    re.I,
)
_END = re.compile(r"(?<!\d)\.(?!\d)|\.(?=\s|$)|[!?！？。]|\n")
_REASON = re.compile(
    r"[\s,，]+(?:because|since|given that|as can be|(?:which|that) is why|因为)|\s+\(\s*(?:since|because|i\.e)", re.I
)
NEGATION = re.compile(
    r"\b(?:not|never|cannot|nor|neither|unlikely|untrue|false|wrong|incorrect|anything but|other than|except"
    r"|ruled? out|ruling out|rules out)\b|n['’]t\b|≠|\\neq?\b|不是|并非|不等于|不可能|绝不|除了|错"
    r"|\b(?:could|might|may) be\b|\b(?:possibly|perhaps|maybe|either)\b|可能|也许"
    r"|\bno (?:es|son|é)\b|\bnicht\b|\bkeine?\b|\bne\b.*\bpas\b|\bn['’]est\b|\bnão\b|\bне\b|ない|ありません|아니",
    re.I,
)
"""Words that deny what is next to them, or leave it open, in the languages that models answer in most."""
_DENIED = re.compile(
    r"(?:\bnot|n['’]t|\bnever)\s+(?:\w+\s+){0,2}(?:true|case|correct|right|think|believe|say|claim|mean)\b"
    r"|\b(?:doubt|deny|wrong|false|incorrect)\b[^.]*\bthat\b|\b(?:opposite|contrary) of\b|不(?:认为|觉得|能说)"
    r"|\b(?:if|whether|suppose|assume|imagine)\s+(?:that\s+)?(?:the\s+)?(?:\w+\s+)?$"
    r"|\b(?:someone|somebody|people|others|they|he|she)\s+(?:say|said|says|thinks?|thought|claims?|claimed)\s+[^.]*$"
    r"|(?:\bnot|n['’]t|\bnever|\bexcept|\bbut|\bthan|不是|并非)\s*(?:\w+\s+){0,1}[$*(\\]*$",
    re.I,
)
"""In the words that lead to a claim: what denies or only supposes it, and a denial right in front of it."""
_TAKEN_BACK = re.compile(
    r"\b(?:that|this|it|which|the (?:above|answer))(?:\s+(?:is|was|must be|seems)|['’]s)\s+(?:\w+\s+)?"
    r"(?:wrong|incorrect|false|untrue|not\s+(?:\w+\s+)?(?:right|correct|true|it|so))\b"
    r"|\b(?:just kidding|ignore (?:that|this)|scratch that)\b|^\s*not\s+[$*(\\]*[-+]?\d|这是错|这不对|上面.{0,4}错",
    re.I,
)
_CORRECTION = re.compile(
    r"\b(?:actually|wait|correction|on (?:reflection|second thought)|rather|instead|or (?:maybe|perhaps))\b|其实|更正",
    re.I,
)
_EQUALS, _IS = re.compile(r"="), re.compile(r"\b(?:is|are|was|equals)\b|是|为", re.I)
_BOLD = re.compile(r"\*\*([^*]+)\*\*")


_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|[{}]")


class Claim(NamedTuple):
    """``text`` is what is said to be the answer, ``before`` its sentence up to there; ``is_prose``: no mark said so."""

    text: str
    before: str = ""
    is_prose: bool = False


def claims_of(text: str) -> list[Claim]:
    """The claim of a text in the words that may hold it, the likeliest first; empty where it claims nothing."""
    body = _spoken(text[-MAX_CHARS:])
    found = _boxed_claim(body) or _marked_claim(body)
    claims = _prose(body) if found is None else [found, *_pieces(found.text)[1:]] if found.text else []
    return [claim for claim in claims if claim.text.strip() and len(claim.text) <= MAX_CLAIM_CHARS]


def answer_in(truth: str) -> str:
    """What a row's answer comes to: all of it, its boxes where it is a solution, the text behind `####`."""
    truth = truth[-MAX_CHARS:].rpartition("####")[2]
    boxes = boxes_in(truth)
    return ", ".join(_inner(truth, *box) for box in boxes) if boxes else truth


def is_denied(claim: Claim) -> bool:
    """Whether the claim's own words, or those that lead to it, say the opposite."""
    return bool(NEGATION.search(claim.text) or _DENIED.search(claim.before))


def _spoken(text: str) -> str:
    """The text without its thoughts; the text in answer tags, where there are any."""
    text = _THOUGHT_END.sub("", _THOUGHT.sub(" ", text))
    tagged = _TAGGED.findall(text)
    return str(tagged[-1]) if tagged else text


def _boxed_claim(body: str) -> Claim | None:
    """The text in the last boxes; boxes that only commas and `or` part are one list."""
    boxes = boxes_in(body)
    if not boxes:
        return None
    first = len(boxes) - 1
    while first and not re.search(
        r"[^\W_]",
        re.sub(
            r"\\q?quad|\\text\s*\{|\b(?:and|or|[a-z](?:_\w)?\s*=)|或|和",
            "",
            body[boxes[first - 1][1] : boxes[first][0]],
        ),
    ):
        first -= 1
    inner = ", ".join(_inner(body, *box) for box in boxes[first:])
    begin, end = boxes[first][0], boxes[-1][1]
    return _unless_taken_back(Claim(inner, _sentence_before(body, begin)), body[end:])


def _inner(body: str, begin: int, end: int) -> str:
    return body[body.index("{", begin) + 1 : end - 1]


def boxes_in(body: str) -> list[tuple[int, int]]:
    """Where each outermost `\\boxed{…}` begins and ends; one that is not closed is none."""
    closed: list[tuple[int, int]] = []
    opened: list[int] = []  # where the box of each open brace begins, or -1
    for match in _BRACE.finditer(body):
        if match[0] != "}":
            opened.append(match.start() if len(match[0]) > 1 else -1)
        elif opened and (begin := opened.pop()) >= 0:
            closed.append((begin, match.end()))
    outer: list[tuple[int, int]] = []
    for box in sorted(closed):
        if not outer or box[0] >= outer[-1][1]:
            outer.append(box)
    return outer


def _marked_claim(body: str) -> Claim | None:
    """What follows the last words such as `the answer is`, to the end of its sentence."""
    markers = list(_MARKER.finditer(body))
    if not markers:
        return None
    last = markers[-1]
    begin = last.end() + len(body[last.end() :]) - len(body[last.end() :].lstrip(" \n*:："))
    stop = _END.search(body, begin)
    if stop is not None and stop[0] in "?？":
        return Claim("")
    end = stop.start() if stop else len(body)
    claim = _REASON.split(body[begin:end])[0]
    return _unless_taken_back(Claim(claim, _sentence_before(body, last.start())), body[end:])


def _unless_taken_back(claim: Claim, after: str) -> Claim | None:
    """The claim, or what a later sentence puts in its place; nothing where one takes it back."""
    for asserted in filter(str.strip, _END.split(after)):
        if _TAKEN_BACK.search(asserted):
            return Claim("")
        if _CORRECTION.search(asserted) and re.search(r"\d|\\", asserted):
            claim = Claim(asserted, is_prose=True)
    return claim


def _prose(body: str) -> list[Claim]:
    """The last sentence that says something: all of it, what it sets equal, what it says that something is."""
    sentences = [asserted for asserted in _sentences(body) if re.search(r"[\w\\]", asserted)]
    claims = [Claim(sentences[0].rstrip("."))] if len(sentences) == 1 and "\n" not in body.strip() else []
    with_value = [asserted for asserted in sentences if re.search(r"\d|\\[a-z]|\*\*", asserted)]
    for asserted in (with_value or sentences)[-1:]:
        if asserted.rstrip().endswith(("?", "？")):
            return []
        if sentences.index(asserted) < len(sentences) - 1 and any(
            _TAKEN_BACK.search(later) for later in sentences[sentences.index(asserted) :]
        ):
            return []
        claims += _pieces(asserted.rstrip().rstrip(".!。！"))
    return claims


def _pieces(sentence: str) -> list[Claim]:
    """A sentence, what follows its last `=` and its last `is`, and the one thing that is printed bold."""
    pieces = [Claim(sentence, is_prose=True)]
    for marks in (_EQUALS, _IS):
        if found := list(marks.finditer(sentence)):
            before, after = sentence[: found[-1].start()], sentence[found[-1].end() :]
            pieces.append(Claim(after.strip(" :："), before, is_prose=True))
    if len(bold := _BOLD.findall(sentence)) == 1:
        pieces.append(Claim(bold[0], sentence, is_prose=True))
    return pieces


def _sentences(body: str) -> list[str]:
    """Sentences with the mark that ends each."""
    found, begin = [], 0
    for stop in _END.finditer(body):
        found.append(body[begin : stop.end()])
        begin = stop.end()
    return [sentence.strip() for sentence in [*found, body[begin:]] if sentence.strip()]


def _sentence_before(body: str, place: int) -> str:
    return _END.split(body[:place])[-1]


# Answers that need no algebra: words, option letters, and numbers however they are written.

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


def same_value(answer: Value, truth: Value) -> bool:
    """Whether two numbers are one: 50% is 0.5 and 50; 5 m is 500 cm and 5, and not 5 feet."""
    factor = Fraction(1)
    if answer.unit is not None and truth.unit is not None:
        if answer.unit.kind != truth.unit.kind:
            return False
        factor = answer.unit.factor / truth.unit.factor
    numbers = [answer.number * factor]
    if answer.percent != truth.percent:
        numbers.append(numbers[0] / 100 if answer.percent else numbers[0] * 100)
    return any(_close(number, truth.number, decimal=answer.decimal or truth.decimal) for number in numbers)


def _close(answer: Fraction, truth: Fraction, *, decimal: bool) -> bool:
    """Equal; or, of a decimal and a number that no decimal reaches, nearly so."""
    if answer == truth:
        return True
    endless = any(_is_endless(number) for number in (answer, truth))
    return decimal and endless and abs(answer - truth) <= TOLERANCE * abs(truth)


def _is_endless(number: Fraction) -> bool:
    below = number.denominator
    for prime in (2, 5):
        while below % prime == 0:
            below //= prime
    return below != 1


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


def same(claimed: str, gold: str) -> bool:
    """Whether two bare answers are one."""
    if not claimed or claimed.casefold() == gold.casefold():
        return bool(claimed)
    if (answer := value_of(claimed)) is not None and (number := value_of(gold)) is not None:
        return same_value(answer, number)
    named = _by_name(claimed), _by_name(gold)
    if all(len(each) > 1 for each in named):
        return named[0].keys() == named[1].keys() and all(
            same(bare(named[0][name]), bare(named[1][name])) for name in named[0]
        )
    claimed, gold = as_list(claimed), as_list(gold)
    return is_expression(claimed) and is_expression(gold) and _computed(claimed, gold)


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
def _computed(claimed: str, gold: str) -> bool:
    try:
        return pool.call(CODE, LIMITS, {"said": claimed, "truth": gold}, LIBRARY).value == 1.0
    except SandboxProblem as exc:
        if exc.problem.kind in _OUTSIDE:
            raise RewardFault(
                sentence(_("The answers cannot be compared. {problem}"), problem=exc.problem.sentence)
            ) from exc
        return False
