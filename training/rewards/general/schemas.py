"""JSON schemas that a person typed, checked against what a model wrote.

References are followed only inside the schema: nothing is fetched. Patterns go through ``patterns``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from training.rewards.general.patterns import found, pattern_problem

MAX_SCHEMA_CHARS = 20_000
MAX_TEXT_CHARS = 100_000
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
            return "additionalProperties beside patternProperties is not supported"
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
