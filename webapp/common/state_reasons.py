"""Reasons for changes of a run's state without an error: sentences in the reader's language, for pages and scripts."""

from __future__ import annotations

from training.words import Sentence, _, sentence

CREATED = _("created")
PAUSED_BY_DOCTOR = _("paused by a rule of the project: {advisory}")
ROOM = _("the disk has room again: {free} free")
WRITABLE = _("the disk can be written again")
ANSWERS_AGAIN = _("its environment answers again")
BUDGET_AGAIN = _("its endpoint can be called again")
TRIED_AGAIN = _("tried again, in case the cause of the pause is over")
BY_SOMEBODY = {
    "launched": _("launched by {name}"),
    "stopped": _("stopped by {name}"),
    "paused": _("paused by {name}"),
    "resumed": _("resumed by {name}"),
}
BY_ITSELF = {
    "launched": _("launched"),
    "stopped": _("stopped"),
    "paused": _("paused"),
    "resumed": _("resumed"),
}
RECOVERED = (ROOM, WRITABLE, ANSWERS_AGAIN, BUDGET_AGAIN, TRIED_AGAIN)
"""Reasons of runs that resume by themselves."""
STATE_REASONS = (CREATED, PAUSED_BY_DOCTOR, *RECOVERED, *BY_SOMEBODY.values(), *BY_ITSELF.values())


def reason_of(act: str, name: str = "") -> Sentence:
    """The reason for a person's act on a run, or the product's own where there is no name."""
    return sentence(BY_SOMEBODY[act], name=name) if name else sentence(BY_ITSELF[act])
