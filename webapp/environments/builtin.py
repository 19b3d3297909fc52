"""The built-in servers: every folder of ``envs/`` that has an ``openenv.yaml``, and its options: declared there,
chosen in a form, passed as an argument list.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from pydantic import BaseModel, ConfigDict, Field

from webapp.common.pages import add_errors
from webapp.common.storage import environment_data, environment_data_root

# --- Texts ----------------------------------------------------------------------------------------------------------
# Titles and help texts of built-in servers' options: manifests cannot be translated, so their texts are
# here.

Text = str | Promise


class OptionText(NamedTuple):
    """One option in a form."""

    label: Text
    help: Text


# By program and option; ``""`` where it means the same in all of them.
OPTION_TEXTS: dict[tuple[str, str], OptionText] = {
    ("", "count"): OptionText(gettext_lazy("Rows"), gettext_lazy("Number of rows; fewer where the tasks run out.")),
    ("", "start"): OptionText(
        gettext_lazy("First task"), gettext_lazy("Leave some out to keep training and evaluation apart.")
    ),
    ("", "seed"): OptionText(gettext_lazy("Seed"), gettext_lazy("Same seed, same rows.")),
    ("", "speech"): OptionText(
        gettext_lazy("Speech"),
        gettext_lazy("native: tool calls of the chat template. text: actions written in the message."),
    ),
    ("", "copies"): OptionText(
        gettext_lazy("Rows of each task"),
        gettext_lazy("With a careless share, each of them is independently careless or not."),
    ),
    ("", "careless"): OptionText(
        gettext_lazy("Careless share"),
        gettext_lazy("Share of conversations with a mistake, 0 to 1, so that training has something to correct."),
    ),
    ("bfcl", "errors"): OptionText(
        gettext_lazy("Error texts"),
        gettext_lazy("standard: the benchmark's own texts. augmented: with hints that a model can learn from."),
    ),
    ("bfcl", "compat"): OptionText(
        gettext_lazy("Score as EnvTuning does"),
        gettext_lazy("With that code's known faults, to compare with its published figures."),
    ),
    ("bfcl", "split"): OptionText(gettext_lazy("Split"), gettext_lazy("One of the benchmark's four parts, or all.")),
    ("bfcl", "count"): OptionText(gettext_lazy("Entries"), gettext_lazy("Of each split; a split has 200.")),
    ("bfcl", "start"): OptionText(
        gettext_lazy("First entry"), gettext_lazy("Of each split. Keep some for evaluation.")
    ),
    ("bfcl", "turns"): OptionText(
        gettext_lazy("Turns at most"), gettext_lazy("Entries with more user turns are left out.")
    ),
    ("bfcl", "calls"): OptionText(
        gettext_lazy("Calls at most"), gettext_lazy("Entries whose solution has more calls are left out.")
    ),
    ("webshop", "data"): OptionText(
        gettext_lazy("Data folder"),
        gettext_lazy("With WebShop's files items_shuffle*.json and items_ins_v2*.json. None: a generated catalogue."),
    ),
    ("webshop", "products"): OptionText(
        gettext_lazy("Products"), gettext_lazy("Of the generated catalogue; 200,000 need 650 MB.")
    ),
    ("webshop", "catalogue-seed"): OptionText(
        gettext_lazy("Catalogue seed"), gettext_lazy("Same seed, same generated products.")
    ),
    ("webshop", "difficulty"): OptionText(
        gettext_lazy("Difficulty"),
        gettext_lazy("starter: generated products with short texts and one option, for tiny models."),
    ),
    ("webshop", "goals"): OptionText(
        gettext_lazy("Goals"),
        gettext_lazy("synthetic: made from products. human: written by people, from a data folder that has them."),
    ),
    ("webshop", "reward"): OptionText(
        gettext_lazy("Reward formula"),
        gettext_lazy("upstream: as published. fixed: with its bug fixed, so that every goal can reach 1."),
    ),
    ("toolbench", "difficulty"): OptionText(
        gettext_lazy("Difficulty"),
        gettext_lazy("starter: queries of the built-in world that one call answers, for tiny models."),
    ),
    ("toolbench", "tools"): OptionText(
        gettext_lazy("Tool documents"),
        gettext_lazy("Folder of <Category>/<tool>.json. Without data the built-in world is played."),
    ),
    ("toolbench", "cache"): OptionText(
        gettext_lazy("Recorded responses"), gettext_lazy("Folder of StableToolBench's cache.")
    ),
    ("toolbench", "queries"): OptionText(
        gettext_lazy("Queries"), gettext_lazy("File with a list of queries and their APIs.")
    ),
    ("toolbench", "query-ids"): OptionText(
        gettext_lazy("Query ids"), gettext_lazy("File with the ids to play; none plays all queries.")
    ),
    ("toolbench", "max-turns"): OptionText(
        gettext_lazy("Turns"), gettext_lazy("An episode without Finish ends after this many turns.")
    ),
    ("toolbench", "dialect"): OptionText(
        gettext_lazy("Dialect"), gettext_lazy("Where the error texts come from that the route /virtual returns.")
    ),
    ("tools", "difficulty"): OptionText(
        gettext_lazy("Difficulty"),
        gettext_lazy("starter: for tiny models. easy, mixed: longer. chained: results of one call feed the next."),
    ),
    ("tools", "language"): OptionText(
        gettext_lazy("Language"), gettext_lazy("Of the questions: English, Chinese or both.")
    ),
}

COMMAND_TEXTS: dict[str, OptionText] = {
    "tasks": OptionText(
        gettext_lazy("Tasks"), gettext_lazy("Prompts that a GRPO run plays and the environment scores.")
    ),
    "demonstrations": OptionText(
        gettext_lazy("Demonstrations"), gettext_lazy("Whole conversations that a supervised run imitates.")
    ),
}


def command_text(name: str) -> OptionText:
    """The texts of a command that writes datasets."""
    return COMMAND_TEXTS.get(name) or OptionText(name, "")


def option_text(program: str, name: str) -> OptionText:
    """The texts of an option; its bare name where it has none."""
    return OPTION_TEXTS.get((program, name)) or OPTION_TEXTS.get(("", name)) or OptionText(name, "")


# --- Options --------------------------------------------------------------------------------------------------------
# Options of built-in servers: declared next to each program, chosen in a form, passed as an argument list.
#
# A manifest (``openenv.yaml``) lists them under ``x-options``, those of commands that write datasets under
# ``x-datasets``. What was chosen is kept without what equals a default. No shell ever reads any of it, and no value can
# look like an option: choices are the manifest's own words, numbers are numbers, and places are absolute paths.

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
    """The chosen options, without those that equal a default. Raises ``ValidationError`` by ``prefix`` and option."""
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
    """The choices of a form: the first folders or files of the data folder, by name."""
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
        """The options chosen in a group, with errors at its fields; faults in other groups are forgotten."""
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


# --- Manifests ------------------------------------------------------------------------------------------------------
# Every folder of ``envs/`` that has an ``openenv.yaml`` is a server that ships with Tiltyard.

MANIFEST = "openenv.yaml"
OWN_IMAGE = "tiltyard-env-"


class Command(NamedTuple):
    """A command that writes dataset rows: its own options, and those of the server that it takes over."""

    options: list[Option]
    shared: list[Option]


class BuiltIn(NamedTuple):
    """One server, what it asks for by itself, its options, and the commands that write datasets for it."""

    name: str
    version: str
    cpus: float
    memory_mb: int
    tags: list[str]
    options: list[Option]
    datasets: dict[str, Command]


@functools.cache
def builtins() -> dict[str, BuiltIn]:
    """By name. Read once: they come with the code."""
    found = [_read_manifest(path) for path in sorted((Path(settings.BASE_DIR) / "envs").glob(f"*/{MANIFEST}"))]
    return {item.name: item for item in found}


def builtin_of_image(image: str) -> BuiltIn | None:
    """The server in an image of ours, ``tiltyard-env-<name>``, of any registry and tag; else ``None``."""
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return builtins().get(name.removeprefix(OWN_IMAGE)) if name.startswith(OWN_IMAGE) else None


def _read_manifest(path: Path) -> BuiltIn:
    manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    validation = manifest.get("validation", {})
    resources = validation.get("resources", {})
    options = _parse_options(manifest.get("x-options"))
    return BuiltIn(
        path.parent.name,
        str(manifest["version"]),
        float(resources.get("cpu", 1.0)),
        int(resources.get("memory_mb", 1024)),
        [str(tag) for tag in validation.get("types", {}).get("tags", [])],
        options,
        {name: _parse_command(item, options) for name, item in (manifest.get("x-datasets") or {}).items()},
    )


def _parse_options(items: Any) -> list[Option]:
    return [Option.model_validate(item) for item in items or []]


def _parse_command(item: dict[str, Any], options: list[Option]) -> Command:
    shared = set(item.get("shared") or [])
    return Command(_parse_options(item.get("options")), [option for option in options if option.name in shared])
