"""What a text asserts: the one answer that it ends with, and nothing that it denies, offers or asks."""

from __future__ import annotations

import re
from typing import NamedTuple

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
"""Words that deny what stands beside them, or leave it open, in the languages that models answer in most."""
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
    """What a row's answer comes to: all of it, its boxes where it is a solution, what stands behind `####`."""
    truth = truth[-MAX_CHARS:].rpartition("####")[2]
    boxes = boxes_in(truth)
    return ", ".join(_inner(truth, *box) for box in boxes) if boxes else truth


def is_denied(claim: Claim) -> bool:
    """Whether the claim's own words, or those that lead to it, say the opposite."""
    return bool(NEGATION.search(claim.text) or _DENIED.search(claim.before))


def _spoken(text: str) -> str:
    """The text without its thoughts; what stands in answer tags, where there are any."""
    text = _THOUGHT_END.sub("", _THOUGHT.sub(" ", text))
    tagged = _TAGGED.findall(text)
    return str(tagged[-1]) if tagged else text


def _boxed_claim(body: str) -> Claim | None:
    """What the last boxes hold; boxes that only commas and `or` part are one list."""
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
    said = _REASON.split(body[begin:end])[0]
    return _unless_taken_back(Claim(said, _sentence_before(body, last.start())), body[end:])


def _unless_taken_back(claim: Claim, after: str) -> Claim | None:
    """The claim, or what a later sentence puts in its place; nothing where one takes it back."""
    for sentence in filter(str.strip, _END.split(after)):
        if _TAKEN_BACK.search(sentence):
            return Claim("")
        if _CORRECTION.search(sentence) and re.search(r"\d|\\", sentence):
            claim = Claim(sentence, is_prose=True)
    return claim


def _prose(body: str) -> list[Claim]:
    """The last sentence that says something: all of it, what it sets equal, what it says that something is."""
    said = [sentence for sentence in _sentences(body) if re.search(r"[\w\\]", sentence)]
    claims = [Claim(said[0].rstrip("."))] if len(said) == 1 and "\n" not in body.strip() else []
    with_value = [sentence for sentence in said if re.search(r"\d|\\[a-z]|\*\*", sentence)]
    for sentence in (with_value or said)[-1:]:
        if sentence.rstrip().endswith(("?", "？")):
            return []
        if said.index(sentence) < len(said) - 1 and any(
            _TAKEN_BACK.search(later) for later in said[said.index(sentence) :]
        ):
            return []
        claims += _pieces(sentence.rstrip().rstrip(".!。！"))
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
