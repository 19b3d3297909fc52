"""Sentences that can be said in another language: a template and its values travel with the text.

``told`` makes a text that remembers how it was put together; ``said`` gives that as data for a report, so that a page
can translate the template and fill in the values again. A value may itself be such a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field


def _(text: str) -> str:
    """Mark a text for translation; the web interface translates it when it shows it."""
    return text


class Told(str):
    """A text with the template and the values that it was made of."""

    __slots__ = ("template", "values")
    template: str
    values: dict[str, Any]


class Said(BaseModel):
    """A sentence as data: ``{name}`` in the template stands for a value."""

    template: str
    values: dict[str, str | int | Said] = Field(default_factory=dict)

    def __str__(self) -> str:
        return self.template.format(**self.values) if self.values else self.template


def told(template: str, **values: str | int | Said) -> Told:
    """The sentence of a template."""
    if isinstance(template, Told):
        return template
    text = Told(template.format(**values) if values else template)
    text.template, text.values = template, values
    return text


def said(text: str) -> Said:
    """A text as data; one that was not ``told`` is its own template."""
    if isinstance(text, Told):
        return Said(template=text.template, values={name: value_of(value) for name, value in text.values.items()})
    return Said(template=str(text))


def value_of(value: str | int | Said, longest: int = 1000) -> str | int | Said:
    """A value of a sentence as data."""
    if isinstance(value, Told):
        return said(value)
    return value if isinstance(value, int | Said) else str(value)[:longest]


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
    """What one of pydantic's errors says; a ``ValueError`` of ours says what it was ``told`` with."""
    raised = (error.get("ctx") or {}).get("error")
    if isinstance(raised, ValueError) and raised.args and isinstance(raised.args[0], str):
        return raised.args[0]
    return str(error["msg"]).removeprefix("Value error, ")
