"""The formats of datasets, a module for each family of them, and one line each in this table."""

from __future__ import annotations

from training.data.formats import bfcl, columns, conversations, frameworks, gsm8k, toolbench
from training.data.formats.base import DataFormat, Evidence
from training.data.schema import Sample
from training.errors import DataError
from training.words import _, sentence

_ALL = (
    conversations.CONVERSATION_FORMAT,
    conversations.OPENAI_FORMAT,
    conversations.SHAREGPT_FORMAT,
    conversations.SWIFT_FORMAT,
    frameworks.VERL_FORMAT,
    toolbench.STEPS_FORMAT,
    toolbench.ANSWERS_FORMAT,
    toolbench.QUERIES_FORMAT,
    bfcl.FORMAT,
    conversations.AGENTGYM_FORMAT,
    gsm8k.FORMAT,
    conversations.ALPACA_FORMAT,
    conversations.PREFERENCE_FORMAT,
    frameworks.NEMO_GYM_FORMAT,
    conversations.MARKED_FORMAT,
    columns.FORMAT,
)
FORMATS: dict[str, DataFormat] = {each.name: each for each in _ALL}
ENOUGH = 0.25
"""Certainty below which nothing was recognised."""


def recognise(sample: Sample) -> list[Evidence]:
    """The possible formats of the file, the surest first."""
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
