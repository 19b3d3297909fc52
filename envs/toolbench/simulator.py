"""The offline simulator: a made-up response in the shape that an API's document gives, the same each time.

Shapes are trees whose leaves name types: ``str``, ``int``, ``float``, ``bool``, ``NoneType``, ``empty list``, or
``list of str with length 5``. A list of objects shows one of them, with its length as ``_list_length``. Long shapes are
JSON text cut off after 1,000 characters, which is closed again here.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping
from typing import Any

from envs.toolbench.documents import Api, standardize

MAX_ITEMS = 3
MAX_NODES = 120
MAX_DEPTH = 10
LENGTH_KEY = "_list_length"

_LIST = re.compile(r"list of (\w+) with length (\d{1,9})")
_WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbor", "iris", "juniper", "kestrel", "linden"),
    *("maple", "nova", "onyx", "pine", "quartz", "river", "sable", "tundra", "umber", "violet", "willow", "zephyr"),
)


def simulate(api: Api, arguments: dict[str, Any], text: str) -> Any:
    """A response for ``arguments``, whose canonical form is ``text``. The API must have a template."""
    shape = read_template(api.document.template_response)
    return _Maker((*api.name, text), arguments).make(shape, "", 0)


def has_template(api: Api) -> bool:
    """Whether the document says anything about the shape of responses."""
    return api.document.template_response not in (None, "", {}, [])


def read_template(template: Any) -> Any:
    """A template as a tree; one that was cut off ends where its last whole value does."""
    if not isinstance(template, str) or template[:1] not in ("{", "["):
        return template
    for text in (template, _closed(template)):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    return "str"


def _closed(text: str) -> str:
    """The longest start of a cut JSON text that ends with a whole value, and the brackets that it lacks."""
    open_brackets: list[str] = []
    whole = ""
    inside = escaped = False
    for position, character in enumerate(text):
        if inside:
            inside = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            inside = True
        elif character in "{[":
            open_brackets.append("}" if character == "{" else "]")
        elif character in "}]":
            open_brackets = open_brackets[:-1]
            whole = text[: position + 1] + "".join(reversed(open_brackets))
        elif character == ",":
            whole = text[:position] + "".join(reversed(open_brackets))
    return whole


class _Maker:
    """Makes one response. Values depend on the API and all of its arguments, and on nothing else."""

    def __init__(self, seed: tuple[str, ...], arguments: Mapping[str, Any]) -> None:
        digest = hashlib.sha256("\0".join(seed).encode("utf-8", "replace")).digest()
        self._rng = random.Random(digest)  # noqa: S311 - reproducible on purpose
        self._arguments = {standardize(name): value for name, value in arguments.items()}
        self._nodes = 0

    def make(self, shape: Any, field: str, depth: int) -> Any:
        """A value of this shape; ``field`` is the name that it goes by."""
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            return None
        if isinstance(shape, dict):
            return {
                name: self.make(inner, name, depth + 1)
                for name, inner in shape.items()
                if name != LENGTH_KEY and self._nodes <= MAX_NODES
            }
        if isinstance(shape, list):
            return self._list(shape, field, depth)
        echoed = self._arguments.get(standardize(field)) if field else None
        if echoed is not None:
            return echoed
        return self._leaf(shape, field, depth) if isinstance(shape, str) else shape

    def _list(self, shape: list[Any], field: str, depth: int) -> list[Any]:
        if not shape:
            return []
        if len(shape) == 1 and isinstance(shape[0], str) and _LIST.fullmatch(shape[0]):
            # Upstream writes a list of plain values as a list with one sentence about them.
            made = self.make(shape[0], "", depth + 1)
            return made if isinstance(made, list) else []
        length = shape[0].get(LENGTH_KEY, 1) if isinstance(shape[0], dict) else len(shape)
        count = length if isinstance(length, int) else 1
        return [self.make(shape[0], field, depth + 1) for _ in range(max(min(count, MAX_ITEMS), 0))]

    def _leaf(self, kind: str, field: str, depth: int) -> Any:
        rng = self._rng
        listed = _LIST.fullmatch(kind)
        if listed:
            return [self.make(listed[1], "", depth + 1) for _ in range(min(int(listed[2]), MAX_ITEMS))]
        match kind:
            case "int":
                return rng.randrange(1, 10_000)
            case "float":
                return round(rng.uniform(0, 1000), 2)
            case "bool":
                return rng.random() < 0.5
            case "NoneType":
                return None
            case "list" | "empty list":
                return []
            case "dict":
                return {}
        return self._text(field.lower())

    def _text(self, field: str) -> str:
        rng = self._rng
        first, second = rng.choice(_WORDS), rng.choice(_WORDS)
        if any(part in field for part in ("url", "link", "image", "uri", "href")):
            return f"https://example.org/{first}/{rng.randrange(1000, 10_000)}"
        if "email" in field:
            return f"{first}.{second}@example.org"
        if "date" in field or "time" in field:
            return f"2023-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
        if field == "id" or field.endswith(("_id", "Id")):
            return str(rng.randrange(100_000, 1_000_000))
        return f"{first.capitalize()} {second}"
