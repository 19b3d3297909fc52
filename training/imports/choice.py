"""Which of several runs in one file is meant: its name is asked for, never guessed."""

from __future__ import annotations

from collections.abc import Sequence

from training.errors import DataError
from training.words import _, sentence

_SHOWN = 10


def one_run(runs: Sequence[str], chosen: str) -> str:
    """The run that is meant: the ``chosen`` one, or the only one. Raises ``DataError`` that lists them otherwise."""
    if chosen in runs or (len(runs) == 1 and not chosen):
        return chosen or runs[0]
    listed = ", ".join(runs[:_SHOWN]) + (", …" if len(runs) > _SHOWN else "")
    if chosen:
        text = _("It has no run {run}; its runs are {runs}.")
        raise DataError(sentence(text, run=chosen, runs=listed or "–"), hint=_("Name one of its runs."))
    raise DataError(
        sentence(_("It holds the figures of {count} runs: {runs}."), count=len(runs), runs=listed),
        hint=_("Name the one to import: Run in the file, or `--run NAME`."),
    )
