"""Options of built-in servers: declared next to each program, chosen in a form, passed as an argument list.

A manifest (``openenv.yaml``) lists them under ``x-options``, those of commands that write datasets under
``x-datasets``. What was chosen is kept without what equals a default. No shell ever reads any of it, and no value can
look like an option: choices are the manifest's own words, numbers are numbers, and places are absolute paths.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field

from webapp.common.pages import add_errors
from webapp.common.storage import environment_data, environment_data_root
from webapp.environments.strings import option_text

Kind = Literal["choice", "flag", "integer", "number", "folder", "file"]
PLACES = ("folder", "file")
# A folder may lie in another, and a file in either.
DEPTH = {"folder": 2, "file": 3}
MAX_OFFERED, MAX_SCANNED = 500, 1_000
MAX_PLACE_CHARS = 500


class Option(BaseModel):
    """One option of a program, ``--<name>`` on its command line. ``needs`` names one without which it means nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern="^[a-z][a-z-]*$")
    kind: Kind
    choices: tuple[str, ...] = ()
    default: str | int | float | None = None
    minimum: int | None = None
    maximum: int | None = None
    needs: str = ""


def arguments_clean(options: Sequence[Option], given: Mapping[str, Any], *, prefix: str = "") -> dict[str, Any]:
    """What was chosen, without what equals a default. Raises ``ValidationError`` by ``prefix`` and option."""
    known = {option.name: option for option in options}
    errors: dict[str, str] = {}
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or value == "":
            continue
        try:
            if name not in known:
                raise ValueError(_("There is no such option."))
            _require_valid(known[name], value)
        except ValueError as exc:
            errors[f"{prefix}{name}"] = str(exc)
        else:
            if value is not False and value != known[name].default:
                chosen[name] = value
    for option in options:
        if option.name in chosen and option.needs and option.needs not in chosen:
            errors[prefix + option.name] = _("This needs “%(other)s” too.") % {"other": option.needs}
    if errors:
        raise ValidationError(errors)
    return chosen


def _require_valid(option: Option, value: Any) -> None:
    """Raise ``ValueError`` with a sentence for a value that the option cannot have."""
    if option.kind in PLACES:
        place_find(option.kind, value)
    elif option.kind == "flag":
        if not isinstance(value, bool):
            raise ValueError(_("Choose yes or no."))
    elif option.kind == "choice":
        if value not in option.choices:
            raise ValueError(_("Choose one of: %(names)s.") % {"names": ", ".join(option.choices)})
    else:
        _require_number(option, value)


def _require_number(option: Option, value: Any) -> None:
    whole = option.kind == "integer"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not math.isfinite(value):
        raise ValueError(_("Write a whole number.") if whole else _("Write a number."))
    low, high = option.minimum, option.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(_("Between %(low)s and %(high)s.") % {"low": low, "high": high})


def arguments_argv(
    options: Sequence[Option], arguments: Mapping[str, Any], place: Callable[[Option, Path], str] | None = None
) -> list[str]:
    """The words of a command line, in the manifest's order. ``place`` says where the program will find a path.

    Checked once more, because folders go and manifests change. Raises ``ValidationError``.
    """
    chosen = arguments_clean(options, arguments)
    words: list[str] = []
    for option in options:
        if option.name not in chosen:
            continue
        words.append(f"--{option.name}")
        if option.kind in PLACES:
            path = place_find(option.kind, chosen[option.name])
            words.append(place(option, path) if place else str(path))
        elif option.kind != "flag":
            words.append(str(chosen[option.name]))
    return words


def place_find(kind: str, relative: Any) -> Path:
    """A folder or file of the data folder; ``ValueError`` with a sentence for everything else."""
    sentence = _("This is not in the data folder.")
    if not isinstance(relative, str) or len(relative) > MAX_PLACE_CHARS or relative.count("/") >= DEPTH[kind]:
        raise ValueError(sentence)
    try:
        path = environment_data(relative)
        there = path.is_dir() if kind == "folder" else path.is_file()
    except (ValueError, OSError):
        raise ValueError(sentence) from None
    if not there:
        raise ValueError(sentence)
    return path


def places_offered(kind: str) -> list[str]:
    """What a form offers: the first folders or files of the data folder, by name."""
    found: list[str] = []
    _add_places(kind, environment_data_root(), "", found)
    return sorted(found)[:MAX_OFFERED]


def _add_places(kind: str, folder: Path, prefix: str, found: list[str]) -> None:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry, _number in zip(entries, range(MAX_SCANNED), strict=False))
    except OSError:
        return
    for name in names:
        if len(found) >= MAX_OFFERED:
            return
        relative = prefix + name
        if _is_place(kind, relative):
            found.append(relative)
        if relative.count("/") + 1 < DEPTH[kind] and _is_place("folder", relative):
            _add_places(kind, folder / name, f"{relative}/", found)


def _is_place(kind: str, relative: str) -> bool:
    try:
        place_find(kind, relative)
    except ValueError:
        return False
    return True


# --- Option fields --------------------------------------------------------------------------------------------------
# Options of built-in servers as fields of a form, named ``<group>-<option>``.


@dataclass(frozen=True)
class Group:
    """The options of one program or command; ``fields`` are as a template shows them."""

    name: str
    options: Sequence[Option]
    fields: list[forms.BoundField]
    needs_data: bool

    @property
    def data_root(self) -> str:
        """Where the operator puts data."""
        return str(environment_data_root())


class OptionsForm(forms.Form):
    """A form that options can be added to. Only those of the group that is read are judged."""

    def add_options(
        self, name: str, options: Sequence[Option], values: Mapping[str, Any] | None = None, *, program: str = ""
    ) -> Group:
        """Fields for all options of a group, with the values that they have now."""
        places = {kind: places_offered(kind) for kind in {option.kind for option in options} if kind in PLACES}
        for option in options:
            value = (values or {}).get(option.name, option.default)
            field = _form_field(option, value, places.get(option.kind, []))
            text = option_text(program or name, option.name)
            field.label, field.help_text, field.initial = str(text.label), str(text.help), value
            self.fields[f"{name}-{option.name}"] = field
        fields = [self[f"{name}-{option.name}"] for option in options]
        return Group(name, options, fields, needs_data=bool(places))

    def read_options(self, group: Group | None) -> dict[str, Any]:
        """What was chosen in a group, errors at its fields; faults in other groups are forgotten."""
        prefix = f"{group.name}-" if group else "-"
        for name in [name for name in self.errors if "-" in name and not name.startswith(prefix)]:
            del self.errors[name]
        if group is None:
            return {}
        given = {option.name: self.cleaned_data.get(prefix + option.name) for option in group.options}
        try:
            return arguments_clean(group.options, given, prefix=prefix)
        except ValidationError as exc:
            add_errors(self, exc)
            return {}


def _form_field(option: Option, value: Any, places: list[str]) -> forms.Field:
    if option.kind == "flag":
        return forms.BooleanField(required=False)
    if option.kind == "integer":
        return forms.IntegerField(min_value=option.minimum, max_value=option.maximum, required=False)
    if option.kind == "number":
        return forms.FloatField(
            min_value=option.minimum,
            max_value=option.maximum,
            required=False,
            widget=forms.NumberInput(attrs={"step": "any"}),
        )
    if option.kind == "choice":
        return forms.ChoiceField(choices=[(word, word) for word in option.choices], required=False)
    # The present value stays choosable although it is gone, so that its sentence is shown at the field.
    names = places if value in (None, *places) else [*places, str(value)]
    return forms.ChoiceField(choices=[("", _("none")), *((name, name) for name in names)], required=False)
