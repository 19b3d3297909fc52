"""The one type of sentence that can be said in another language: a template and its values travel with the text.

``sentence`` makes one. It is its own English text; in JSON it is ``{"template", "values"}``, with ``"plural"`` where it
counts, so that a page can translate the template and fill in the values again (``webapp.common.text.in_words``). A
value may itself be a sentence. A place in a template is ``{name}``; ``%(name)s`` is read as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator
from pydantic_core import core_schema

MAX_VALUE_CHARS = 1000
MAX_DEPTH = 4
_PLACE = re.compile(r"\{(\w+)\}|%\((\w+)\)[sd]")


def _(text: str) -> str:
    """Mark a text for translation; the web interface translates it when it shows it."""
    return text


def ngettext(one: str, other: str) -> tuple[str, str]:
    """Mark a text that counts ``{n}`` for translation, as ``_`` does."""
    return one, other


class Sentence(str):
    """A text with the template and the values that it was made of. Equal to its text."""

    __slots__ = ("plural", "template", "values")
    template: str
    values: dict[str, str | int | Sentence]
    plural: str

    def __new__(cls, template: str, values: Mapping[str, Any] | None = None, plural: str = "") -> Sentence:
        values = values or {}
        chosen = plural if plural and values.get("n") != 1 else template
        self = super().__new__(cls, filled(chosen, values) if values else chosen)
        self.template, self.plural = template, plural
        self.values = {name: value_of(value) for name, value in values.items()}
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Sentence, (self.template, self.values, self.plural)

    @property
    def data(self) -> dict[str, Any]:
        """The sentence as JSON."""
        values = {name: _data(value) for name, value in self.values.items()}
        return {"template": self.template, "values": values, **({"plural": self.plural} if self.plural else {})}

    @classmethod
    def of(cls, found: Any, depth: int = 0) -> Sentence:
        """A sentence from its JSON; a text that is none is its own template. Raises ``ValueError``."""
        if isinstance(found, cls):
            return found
        if isinstance(found, str):
            return cls(found)
        if not isinstance(found, Mapping) or depth > MAX_DEPTH:
            raise ValueError("a sentence is a text, or an object with template and values")
        values = found.get("values") or {}
        if not isinstance(values, Mapping):
            raise ValueError("the values of a sentence are an object")
        kept = {
            str(name): cls.of(item, depth + 1) if isinstance(item, Mapping) else item for name, item in values.items()
        }
        return cls(str(found.get("template", "")), kept, str(found.get("plural") or ""))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> core_schema.CoreSchema:
        to_json = core_schema.plain_serializer_function_ser_schema(_data)
        return core_schema.no_info_plain_validator_function(cls.of, serialization=to_json)

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> dict[str, Any]:
        return {"type": "object", "properties": {"template": {"type": "string"}, "values": {"type": "object"}}}


def filled(
    template: str, values: Mapping[str, Any], shown: Callable[[str, Any], str] = lambda _name, it: str(it)
) -> str:
    """A template with its values, each as it is ``shown``; places that have none stay as they are."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return shown(name, values[name]) if name in values else found[0]

    return _PLACE.sub(value, template)


def value_of(value: Any, longest: int = MAX_VALUE_CHARS) -> str | int | Sentence:
    """A value of a sentence as it is kept."""
    return value if isinstance(value, Sentence) or type(value) is int else str(value)[:longest]


def _data(value: Any) -> Any:
    return value.data if isinstance(value, Sentence) else value


def _parsed_value(found: Any) -> str | int | Sentence:
    return Sentence.of(found) if isinstance(found, Mapping) else value_of(found)


Value = Annotated[str | int | Sentence, PlainValidator(_parsed_value), PlainSerializer(_data)]
"""A value of a sentence, as a field of a model."""


def sentence(template: str, **values: str | int) -> Sentence:
    """The sentence of a template."""
    return template if isinstance(template, Sentence) else Sentence(template, values)


def counted(texts: tuple[str, str], n: int, **values: str | int) -> Sentence:
    """The sentence about ``n`` things: ``texts`` are the one for a single thing and the one for any other number."""
    return Sentence(texts[0], {"n": n, **values}, texts[1])


class OptionError(ValueError):
    """What a model finds wrong with one of its options, although it judges several together."""

    def __init__(self, option: str, sentence: str) -> None:
        super().__init__(sentence)
        self.option = option

    def __str__(self) -> str:
        return f"{self.option}: {self.args[0]}"


def option_of(error: Mapping[str, Any]) -> str:
    """The dotted path of the option that one of pydantic's errors is about; empty for the whole model."""
    raised = (error.get("ctx") or {}).get("error")
    named = [raised.option] if isinstance(raised, OptionError) else []
    return ".".join([*(str(part) for part in error["loc"]), *named])


def complaint_of(error: Mapping[str, Any]) -> str:
    """The text of one of pydantic's errors; a ``ValueError`` of ours says what it was made of."""
    raised = (error.get("ctx") or {}).get("error")
    if isinstance(raised, ValueError) and raised.args and isinstance(raised.args[0], str):
        return raised.args[0]
    return str(error["msg"]).removeprefix("Value error, ")
