"""Patterns and JSON schemas that a person typed, matched against what a model wrote: both may be hostile."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NoReturn

import regex
from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from training.errors import RewardTimeout
from training.words import _, sentence

# Regular expressions that a person typed, matched against what a model wrote: both may be hostile.
#
# The ``regex`` package stops a match after its time limit, which Python's own cannot. Compiling has none, so patterns
# are short, their fixed repetitions small together, and recursion, fuzzy matching and named lists are refused.
#
# ``regex`` counts the processor time of the whole process, which on a busy machine is a fraction of what an asker
# waits. A process that scores for a person who waits says so (``count_wall_time``), and then a timer ends a match too.

MAX_PATTERN_CHARS = 500
MAX_TEXT_CHARS = 100_000
MAX_REPEATS = 2_000
LIMIT_S = 1.0  # of processor time
WALL_S = 2.0
_COUNT = re.compile(r"\{\s*(\d{1,9})")
_REFUSED = re.compile(r"\(\?(?:R|&|P>|[+-]?\d)|\\L<|\{[^{}]*[a-zA-Z<]")


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a pattern, as a sentence without its end stop, or ``None``."""
    if len(pattern) > MAX_PATTERN_CHARS:
        return sentence(_("the pattern has more than {most} characters"), most=MAX_PATTERN_CHARS)
    if _REFUSED.search(pattern):
        return sentence(_("recursion, fuzzy matching and named lists are not allowed"))
    if math.prod(max(1, int(count)) for count in _COUNT.findall(pattern)) > MAX_REPEATS:
        return sentence(_("its fixed repetitions make more than {most} together"), most=MAX_REPEATS)
    try:
        _compiled(pattern)
    except (regex.error, ValueError, OverflowError, RecursionError) as exc:
        place = getattr(exc, "pos", None)
        if place is None:
            return sentence(_("the pattern is no regular expression"))
        return sentence(_("the pattern is no regular expression; see its character {place}"), place=place + 1)
    return None


def found(pattern: str, text: str, *, whole: bool = False) -> bool:
    """Whether the pattern matches the text, or the whole of it. Raises ``RewardTimeout`` when that takes too long."""
    return first_match(pattern, text, whole=whole) is not None


def first_match(pattern: str, text: str, *, whole: bool = False) -> tuple[int, int] | None:
    """Where the pattern matches first. Raises ``RewardTimeout`` when that takes too long."""
    matcher = _compiled(pattern)
    match = matcher.fullmatch if whole else matcher.search
    try:
        with _wall_limit():
            at = match(text[:MAX_TEXT_CHARS], timeout=LIMIT_S)
    except TimeoutError as exc:
        limit_s = WALL_S if isinstance(exc, _WallLimit) else LIMIT_S
        raise RewardTimeout(
            sentence(_("A pattern took longer than {limit} s."), limit=f"{limit_s:g}"),
            hint=_("Write it without nested repetitions."),
        ) from exc
    return None if at is None else (int(at.start()), int(at.end()))


class _WallLimit(TimeoutError):
    """The timer of ``WALL_S`` went off."""


def count_wall_time() -> None:
    """From now on a match also ends after ``WALL_S``. Only for a process that scores in its main thread alone: no other
    one hears the timer."""
    signal.signal(signal.SIGALRM, _ring)


@contextmanager
def _wall_limit() -> Iterator[None]:
    """Raise ``_WallLimit`` in the block once the wall time is over, where that is counted."""
    if signal.getsignal(signal.SIGALRM) is not _ring:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, WALL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _ring(_signal: int, _frame: object) -> NoReturn:
    raise _WallLimit


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    return regex.compile(pattern, regex.V0)


# JSON schemas that a person typed, checked against what a model wrote.
#
# References are followed only inside the schema: nothing is fetched. Patterns go through ``patterns``.

MAX_SCHEMA_CHARS = 20_000
MAX_DEPTH = 64
MAX_ITEMS = 10_000


def schema_problem(text: str) -> str | None:
    """What is wrong with a schema, as a sentence without its end stop, or ``None``."""
    if len(text) > MAX_SCHEMA_CHARS:
        return f"the schema has more than {MAX_SCHEMA_CHARS} characters"
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            return "the schema is not a JSON object"
        problem = _content_problem(value)
        if problem is None:
            Draft202012Validator.check_schema(value)
    except SchemaError as exc:
        return f"this is no JSON schema: {exc.message[:200]}"
    except (ValueError, RecursionError):
        return "the schema is not valid JSON"
    return problem


def matches(schema: str, text: str) -> bool:
    """Whether the text is JSON that the schema accepts."""
    text = text.strip()
    if text.startswith("```"):
        text = text.strip("`").removeprefix("json").strip()
    if len(text) > MAX_TEXT_CHARS:
        return False
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    if not _bounded(value):
        return False
    try:
        return bool(_validator(schema).is_valid(value))
    except Unresolvable as exc:
        raise ValueError("the schema refers to something outside itself") from exc


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    return _Checked(json.loads(schema), registry=Registry())


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not found(pattern, instance):
        yield ValidationError("does not match")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, subschema in patterns.items():
        for key, value in instance.items():
            if found(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


_Checked = extend(Draft202012Validator, {"pattern": _pattern, "patternProperties": _pattern_properties})


def _content_problem(value: Any) -> str | None:
    """What a schema must not hold: patterns that are refused, and references to elsewhere."""
    for part in _objects(value):
        reference = part.get("$ref", part.get("$dynamicRef"))
        if isinstance(reference, str) and not reference.startswith("#"):
            return "references to outside the schema are not followed"
        if "additionalProperties" in part and "patternProperties" in part:
            return "additionalProperties next to patternProperties is not supported"
        named = part.get("patternProperties")
        for pattern in [part.get("pattern"), *(named if isinstance(named, dict) else ())]:
            if isinstance(pattern, str) and (problem := pattern_problem(pattern)):
                return problem
    return None


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _bounded(value: Any) -> bool:
    """Whether a model's JSON is small and shallow enough to be checked."""
    level, seen = [value], 0
    for _depth in range(MAX_DEPTH):
        seen += len(level)
        if seen > MAX_ITEMS:
            return False
        inner = [part for part in level if isinstance(part, (dict, list))]
        if not inner:
            return True
        level = [item for part in inner for item in (part.values() if isinstance(part, dict) else part)]
    return False


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
