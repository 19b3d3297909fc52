"""The formats that a dataset can be written in, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from pydantic import BaseModel, ConfigDict, Field

from training.data.formats import FORMATS
from training.data.making.convert import GUIDE, OWN, writers

_OTHERS = {
    OWN: gettext_noop("Tiltyard's own rows"),
    GUIDE: gettext_noop("verl, as ToolBench's converter writes it"),
    "helloagents_sft": gettext_noop("HelloAgents, for SFT"),
    "helloagents_rl": gettext_noop("HelloAgents, for RL"),
}
_SUFFIXES = {GUIDE: "parquet"}


class Target(NamedTuple):
    """One format to write."""

    name: str
    title: str
    suffix: str

    @property
    def label(self) -> str:
        """As a list of choices shows it."""
        return f"{self.title} (.{self.suffix})"


class ExportOptions(BaseModel):
    """The options of an export: a format, whole or in two parts, and how many rows at most."""

    model_config = ConfigDict(extra="forbid")

    to: str = Field(max_length=40)
    split: bool = False
    train_ratio: float = Field(default=0.9, ge=0, le=1)
    max_samples: int | None = Field(default=None, ge=1)


def targets() -> list[Target]:
    """Every format that can be written, our own rows first."""
    found = []
    for name in writers():
        form = FORMATS.get(name)
        suffix = form.written_as if form else _SUFFIXES.get(name, "jsonl")
        found.append(Target(name, form.title if form else _(_OTHERS[name]), suffix))
    return found


def file_name(stem: str, options: ExportOptions) -> str:
    """The name of the file: two parts come in a zip."""
    named = stem if options.to == OWN else f"{stem}.{options.to}"
    return f"{named}.zip" if options.split else f"{named}.{suffix_of(options.to)}"


def suffix_of(name: str) -> str:
    """The ending of a format's files."""
    return next(target.suffix for target in targets() if target.name == name)


def part_names(stem: str, options: ExportOptions, folder: Path) -> list[Path]:
    """The two parts, named as ToolBench's converter names them."""
    return [folder / f"{stem}_{part}.{suffix_of(options.to)}" for part in ("train", "val")]
