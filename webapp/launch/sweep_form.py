"""The fold "Sweep" of the form of a new run: which options are varied, and their values as a person writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import ValidationError as ShapeError

from training.config import MOST_AXES, Axis, Mode, scalar_options, value_at, written
from training.errors import ConfigError
from training.words import Sentence, option_of
from webapp.common.fields import error_sentence
from webapp.common.text import in_words
from webapp.launch.forms import RunForm
from webapp.launch.sweeps import Plan, axis_title

MOST_TEXT, MOST_OFFERED = 2000, 12
_APART = re.compile(r"[,\n\r]+")


class AxisRow(NamedTuple):
    """A row of the fold: an option and its values as texts, what is wrong with either, what the form has now, and the
    values that the form offers, where it offers some."""

    number: int
    option: str
    values: str
    problem: str = ""
    title: str = ""
    now: str = ""
    offered: tuple[str, ...] = ()
    more: int = 0


class SweepPart:
    """What a person wrote in the fold. ``general``: what is wrong with all axes together."""

    def __init__(self, data: Mapping[str, str] | None = None) -> None:
        given = data or {}
        self.rows = [
            AxisRow(
                number,
                _text(given, f"sweep-{number}-option").strip()[:120],
                _text(given, f"sweep-{number}-values")[:MOST_TEXT],
            )
            for number in range(MOST_AXES)
        ]
        self.mode: Mode = "single" if given.get("sweep-mode") == "single" else "product"
        self.general = ""
        self.plan: Plan | None = None

    @property
    def filled(self) -> list[AxisRow]:
        """The rows in which something was written."""
        return [row for row in self.rows if row.option or row.values.strip()]

    @property
    def axes(self) -> list[Axis]:
        """The axes that were written, their values as texts."""
        return [Axis(row.option, _values(row.values)) for row in self.filled]

    @property
    def used(self) -> bool:
        """Whether anything was written, so that the fold is open."""
        return bool(self.filled)

    @property
    def options(self) -> list[tuple[str, str]]:
        """The options that can be varied, with their titles."""
        return [(path, axis_title(path)) for path in scalar_options()]

    def show(self, form: RunForm) -> None:
        """Say at each row what its option is, what it is in the form, and which values the form offers."""
        for row in self.filled:
            if row.option not in scalar_options():
                continue
            now = written(value_at(form.config, row.option)) if form.config is not None else ""
            offered = _offered(form, row.option)
            self.rows[row.number] = row._replace(
                title=axis_title(row.option),
                now=now,
                offered=tuple(offered[:MOST_OFFERED]),
                more=max(0, len(offered) - MOST_OFFERED),
            )

    def place(self, exc: ConfigError) -> bool:
        """Show a problem at its row, or below all of them; false where it is about something else."""
        sentence = sentence_of(exc)
        word, _dot, rest = exc.option.partition(".")
        if word != "axes":
            return False
        place = rest.partition(".")[0]
        if place.isdigit():
            row = self.filled[int(place)]
            self.rows[row.number] = row._replace(problem=sentence)
        else:
            self.general = sentence
        return True


def sentence_of(exc: ConfigError) -> str:
    """A problem of an axis in the reader's language; what a model says of a value is said as forms say it."""
    cause, said = exc.__cause__, exc.sentence
    if isinstance(cause, ShapeError) and isinstance(said, Sentence):
        error = cause.errors(include_url=False, include_input=False)[0]
        path = option_of(error)
        named = str(said.values["why"]).startswith(f"{path}: ")
        why = error_sentence(error)
        return in_words(Sentence(said.template, said.values | {"why": f"{path}: {why}" if named else why}))
    return in_words(said)


def _text(given: Mapping[str, str], name: str) -> str:
    """What was written; the database stores no NUL."""
    return given.get(name, "").replace("\x00", "")


def _offered(form: RunForm, option: str) -> list[str]:
    """The values of an option that the form has a list of choices for."""
    field = form.fields.get(option)
    choices = getattr(field.widget, "choices", ()) if field is not None else ()
    return [str(value) for value, _label in choices if value != ""]


def _values(text: str) -> list[str]:
    return [value for part in _APART.split(text) if (value := part.strip())]
