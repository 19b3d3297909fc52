"""The form of an advisory's words."""

from __future__ import annotations

from typing import Literal, NamedTuple

from training.words import _

Severity = Literal["stop", "warn", "note"]
Act = Literal["rollouts", "lab", "stop", "slower"]
OWN = _("our own rule")


class Rule(NamedTuple):
    """One advisory in words.

    ``sentence`` says what was found ({name} are figures), ``meaning`` why it matters, ``formula`` when it is given,
    with ``options`` by name, ``source`` where the rule comes from, ``remedy`` what to do. ``acts`` are what a page
    offers beside it; ``slower`` is a child with half the learning rate.
    """

    title: str
    severity: Severity
    sentence: str
    meaning: str
    formula: str
    source: str
    remedy: str
    options: tuple[str, ...]
    acts: tuple[Act, ...] = ()
