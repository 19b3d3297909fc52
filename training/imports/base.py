"""The results of the readers of foreign files: figures of a step, rollouts, or why a row is neither."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envs.wire import Message
from training.errors import DataError
from training.imports.axis import MAX_STEP, Steps
from training.words import Sentence, _, counted, ngettext, sentence

MAX_NAME_CHARS = 120
MAX_REASON_CHARS = 200


class BadRow(ValueError):
    """Why a row cannot be used: one sentence without its end stop, a ``Sentence`` where it has values."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class Figures(NamedTuple):
    """Metrics of one step under their own names. ``at`` is when, in Unix seconds, where the file says."""

    step: int
    values: dict[str, float]
    at: float | None = None


class Sampled(NamedTuple):
    """One rollout. Rollouts of one step with the same ``key`` form a group. ``None`` is missing, never 0.

    The first ``prompt`` messages are the prompt. ``summed`` says that the reward is our sum of the parts. ``expected``
    is the answer that was wanted.
    """

    step: int
    key: str
    messages: list[Message]
    prompt: int
    reward: float | None
    parts: dict[str, float | None]
    advantage: float | None = None
    summed: bool = False
    expected: str = ""


class Item(NamedTuple):
    """One row of a file: ``line`` counts from 1, ``offset`` is how many bytes were read so far."""

    line: int
    offset: int
    value: Figures | Sampled | None = None
    reason: str = ""
    remark: str = ""


class Reader(NamedTuple):
    """One kind of file. ``recognise`` gives the reason why the file is of that kind, or ``""``."""

    name: str
    title: str
    tool: str
    about: str
    recognise: Callable[[Path], str]
    read: Callable[[Path, Notes], Iterator[Item]]
    look: Callable[[Path, Notes], None] | None = None
    """A first look, at all files of the kind before any of them is read."""


class Shared:
    """The findings of a first look at all files of an import."""

    def __init__(self) -> None:
        self.steps = Steps()
        """The steps of all tables."""
        self.groups: Counter[tuple[int, str]] = Counter()
        """Rollouts by step and prompt, where nothing else says which belong together."""
        self.sizes: Any = None
        """How large those groups are, once all were seen."""
        self.runs: list[str] = []
        """The folders of MLflow runs."""


class Notes:
    """The notes of a reader on a whole file."""

    def __init__(self, name: str, run: str = "", shared: Shared | None = None) -> None:
        self.name = name
        """The file as the person knows it."""
        self.run = run
        """The run that is meant, where a file holds several."""
        self.shared = Shared() if shared is None else shared
        self.columns: Any = None
        """The findings of its reader's first look at it."""
        self.tool = ""
        """The trainer that wrote the file, where only its content says."""
        self.sentences: list[str] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self.weights: list[float] = []
        """The run's ``reward_weights``, where they are known."""
        self.left_out: dict[str, str] = {}
        """Columns that have no place in a run, and why."""

    def say(self, sentence: str) -> None:
        """Add a sentence once."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)

    def count(self, texts: tuple[str, str]) -> None:
        """Say of how many rows something holds: one more than so far."""
        self._counts[texts] += 1
        before = Sentence(texts[0], {"n": self._counts[texts] - 1}, texts[1])
        self.sentences = [sentence for sentence in self.sentences if sentence != before]
        self.sentences.append(counted(texts, self._counts[texts]))


def step_of(value: Any) -> int:
    """A step, which may be text or a float there. Raises ``BadRow``."""
    number = number_of(value)
    if number is None:
        raise BadRow(_("it has no step number"))
    if not math.isfinite(number) or number != int(number) or not 0 <= number <= MAX_STEP:
        raise BadRow(sentence(_("its step is {step}, not a whole number from 0"), step=shown(value)))
    return int(number)


def number_of(value: Any) -> float | None:
    """A number, also as text; ``None`` for nothing at all. Raises ``BadRow`` for anything else."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            raise BadRow(sentence(_("{value} is too large a number"), value=shown(value))) from None
    if isinstance(value, str) and len(value) <= 64 and "_" not in value:
        try:
            return float(value)
        except ValueError:
            pass
    raise BadRow(sentence(_("{value} is not a number"), value=shown(value)))


def known(value: float | None) -> float | None:
    """A finite number, or ``None``: NaN is how tables write that something is missing."""
    return value if value is not None and math.isfinite(value) else None


def shown(value: Any) -> str:
    """A short, printable echo of a value."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits
        text = type(value).__name__
    return text if len(text) <= 40 else text[:39] + "…"


# Which of several runs in one file is meant: its name is asked for, never guessed.

_RUNS_SHOWN = 10


def one_run(runs: Sequence[str], chosen: str) -> str:
    """The run that is meant: the ``chosen`` one, or the only one. Raises ``DataError`` that lists them otherwise."""
    if chosen in runs or (len(runs) == 1 and not chosen):
        return chosen or runs[0]
    listed = ", ".join(runs[:_RUNS_SHOWN]) + (", …" if len(runs) > _RUNS_SHOWN else "")
    if chosen:
        text = _("It has no run {run}; its runs are {runs}.")
        raise DataError(sentence(text, run=chosen, runs=listed or "–"), hint=_("Name one of its runs."))
    raise DataError(
        sentence(_("It holds the figures of {count} runs: {runs}."), count=len(runs), runs=listed),
        hint=_("Name the one to import: Run in the file, or `--run NAME`."),
    )


# Figures that are NaN or infinite: they stay what they are, a gap in their curve, and are counted for the report.

_GAPS_SHOWN = 8
_NOT_FINITE = ngettext(
    "{n} figure is not finite (NaN or infinite), at step {step}: {metrics}. It is a gap in its curve.",
    "{n} figures are not finite (NaN or infinite), the first at step {step}: {metrics}. They are gaps in their curves.",
)


class Gaps:
    """How many figures of each metric are not finite, and the step of the first of them."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int]] = {}

    def add(self, row: Figures) -> None:
        """Take in the figures of a step."""
        for name, value in row.values.items():
            if not math.isfinite(value):
                count, first = self._found.get(name, (0, row.step))
                self._found[name] = count + 1, min(first, row.step)

    def said(self) -> Sentence | None:
        """What is to be said of them; ``None`` where there are none."""
        if not self._found:
            return None
        ordered = sorted(self._found.items(), key=lambda item: (-item[1][0], item[0]))
        listed = ", ".join(f"{name} ({count})" for name, (count, _first) in ordered[:_GAPS_SHOWN])
        count, first = sum(each for each, _first in self._found.values()), min(at for _n, at in self._found.values())
        return counted(_NOT_FINITE, count, step=first, metrics=listed + (", …" if len(ordered) > _GAPS_SHOWN else ""))
