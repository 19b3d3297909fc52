"""The formats of datasets: one module each, and one line in this table."""

from __future__ import annotations

from training.data.formats import (
    agentgym,
    alpaca,
    bfcl,
    columns,
    conversation,
    gsm8k,
    marked,
    nemo_gym,
    openai,
    preference,
    queries,
    sharegpt,
    swift,
    toolbench,
    toolbench_answers,
    verl,
)
from training.data.formats.base import DataFormat, Evidence
from training.data.raw import Sample
from training.errors import DataError
from training.words import _, sentence

_MODULES = (
    conversation,
    openai,
    sharegpt,
    swift,
    verl,
    toolbench,
    toolbench_answers,
    queries,
    bfcl,
    agentgym,
    gsm8k,
    alpaca,
    preference,
    nemo_gym,
    marked,
    columns,
)
FORMATS: dict[str, DataFormat] = {module.FORMAT.name: module.FORMAT for module in _MODULES}
ENOUGH = 0.25
"""Certainty below which nothing was recognised."""


def recognise(sample: Sample) -> list[Evidence]:
    """What the file can be, the surest first."""
    found = [evidence for each in FORMATS.values() if (evidence := each.evidence(sample)) is not None]
    return sorted(found, key=lambda evidence: -evidence.certainty)


def format_of(name: str) -> DataFormat:
    """A format by its name. Raises ``DataError``."""
    if name not in FORMATS:
        raise DataError(
            sentence(_("There is no format {name}."), name=repr(name[:40])),
            hint=sentence(_("There are: {names}."), names=", ".join(FORMATS)),
        )
    return FORMATS[name]


def choose(sample: Sample) -> tuple[DataFormat, Evidence | None]:
    """The surest format; conversations, with nothing to show for it, where none is recognised."""
    found = recognise(sample)
    if found and found[0].certainty >= ENOUGH:
        return FORMATS[found[0].format], found[0]
    return FORMATS["conversation"], None
