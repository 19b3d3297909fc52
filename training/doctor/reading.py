"""From a run's journals to the doctor's facts, one step after another, and its advisories on the console."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from envs.wire import Message
from training.doctor.diagnosis import TITLES, diagnosis_of
from training.doctor.digest import RolloutFact, StepFacts, repetition
from training.doctor.doctor import Advisory, Doctor
from training.doctor.options import DoctorOptions
from training.doctor.rules import RULES
from training.errors import ConfigError, DataError
from training.journal import (
    JOURNAL_NAME,
    DeviceStep,
    Event,
    Held,
    Metrics,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    StageStarted,
    TurnAdded,
    read_events,
)
from training.lanes import DeviceUse
from training.rewards.base import Episode
from training.rewards.lab.figures import OUTCOMES
from training.rewards.lab.rules import LOOP_REPEATS, LOOP_SHARE
from training.rewards.lab.writing import behaviour_of
from training.rewards.text import numbers
from training.rollout.figures import SUCCESS_PART
from training.words import complaint_of, option_of

WHOLE_FILE = 1 << 50


def success_in(parts: Mapping[str, float | None], env_parts: Mapping[str, float]) -> float | None:
    """The score of the task itself: the environment's word, else the first outcome component that has a value."""
    if (verdict := env_parts.get(SUCCESS_PART)) is not None:
        return verdict
    return next((value for name in OUTCOMES if (value := parts.get(name)) is not None), None)


def manner_of(messages: Sequence[Message]) -> tuple[float | None, bool]:
    """How much the policy's turns repeat themselves, and whether most of their calls are one and the same."""
    seen = behaviour_of(Episode(messages=list(messages), prompt_length=0))
    loops = seen.repeats >= LOOP_REPEATS and seen.repeats >= LOOP_SHARE * seen.actions
    return repetition("\n".join(message.content for message in messages)), loops


@dataclass
class _Playing:
    """A rollout that has not ended."""

    started: RolloutStarted
    turns: list[Message] = field(default_factory=list)


class Steps:
    """Gathers events into steps. A step is whole once a later one has figures, or the journal ends."""

    def __init__(self) -> None:
        self._playing: dict[str, _Playing] = {}
        self._ended: dict[int, list[RolloutFact]] = {}
        self._step = 0
        self._stage = 1
        self._metrics: dict[str, float] = {}
        self._devices: dict[int, list[DeviceUse]] = {}
        self._unusual: set[int] = set()

    def add(self, event: Event) -> StepFacts | None:
        """Take in one event; a step that is whole by it."""
        if isinstance(event, RolloutStarted):
            if not event.held_out:
                self._playing[event.rollout] = _Playing(event)
        elif isinstance(event, TurnAdded) and event.turn and event.rollout in self._playing:
            turns = self._playing[event.rollout].turns
            turns += [message for message in event.messages if message.role == "assistant"]
        elif isinstance(event, RolloutFinished) and event.rollout in self._playing:
            playing = self._playing.pop(event.rollout)
            self._ended.setdefault(playing.started.step, []).append(_fact(playing, event))
        elif isinstance(event, Metrics):
            return self._figures(event)
        elif isinstance(event, DeviceStep):
            self._devices.setdefault(event.step, []).append(event.use)
        elif isinstance(event, RunStarted):
            self._unusual.add(event.from_step + 1)
        elif isinstance(event, Held):
            self._unusual.add(event.step)
        elif isinstance(event, StageStarted):
            whole = self.end()
            self._stage = event.stage
            return whole
        return None

    def end(self) -> StepFacts | None:
        """The step that nothing follows."""
        if not self._metrics:
            return None
        rollouts = [fact for step in sorted(self._ended) if step <= self._step for fact in self._ended[step]]
        self._ended = {step: facts for step, facts in self._ended.items() if step > self._step}
        devices, unusual = self._devices.pop(self._step, []), self._step in self._unusual
        found = StepFacts(self._step, self._metrics, rollouts, self._stage, devices, unusual)
        self._metrics = {}
        return found

    def _figures(self, event: Metrics) -> StepFacts | None:
        whole = self.end() if event.step != self._step else None
        self._step = event.step
        self._metrics |= event.values
        return whole


def steps_of(events: Iterable[Event]) -> Iterator[StepFacts]:
    """The steps of a run's events, in order."""
    steps = Steps()
    for event in events:
        if (whole := steps.add(event)) is not None:
            yield whole
    if (whole := steps.end()) is not None:
        yield whole


def examine(folders: Sequence[Path], options: DoctorOptions | None = None) -> Doctor:
    """A doctor that has seen a run, from the folders of its attempts, oldest first. Raises ``OSError``."""
    doctor = Doctor(options)
    for folder in folders:
        events = (event for _offset, event in read_events(folder / JOURNAL_NAME, max_bytes=WHOLE_FILE))
        for facts in steps_of(events):
            doctor.see(facts)
    return doctor


def _fact(playing: _Playing, event: RolloutFinished) -> RolloutFact:
    repeats, loops = manner_of(playing.turns) if event.status != "excluded" else (None, None)
    return RolloutFact(
        name=event.rollout,
        group=playing.started.group,
        reward=event.reward,
        success=success_in(event.parts, event.env_parts),
        tokens=event.tokens,
        turns=event.turns,
        seconds=event.seconds,
        truncated=event.status == "truncated",
        excluded=event.status == "excluded",
        parse_errors=event.parse_errors,
        calls=event.calls,
        failed_calls=event.failed_calls,
        repetition=repeats,
        loops=loops,
    )


# ``python -m training doctor``: the advisories of a run's journals, on the console.


def doctor_of(run: Path, settings: Sequence[str]) -> Doctor:
    """The doctor that has seen all attempts of a run. Raises ``ConfigError``, ``DataError``, ``OSError``."""
    options = _options(settings)
    numbered = sorted((found for found in run.glob("*/" + JOURNAL_NAME) if found.parent.name.isdigit()), key=_number)
    folders = [run] if (run / JOURNAL_NAME).exists() else [found.parent for found in numbered]
    if not folders:
        raise DataError(f"{run} has no {JOURNAL_NAME}.", hint="Name the folder of a run.")
    return examine(folders, options)


def as_json(doctor: Doctor) -> str:
    """The advisories as JSON, the newest last."""
    return json.dumps([each.model_dump(mode="json") for each in doctor.advisories], ensure_ascii=False, indent=2)


def as_text(doctor: Doctor) -> str:
    """The diagnosis and the advisories as people read them."""
    found = diagnosis_of(doctor)
    advisories = [_advisory_text(each) for each in doctor.advisories] or ["No advisory."]
    return "\n\n".join([f"{TITLES[found.kind]}. {found.sentence}", *advisories])


def _advisory_text(advisory: Advisory) -> str:
    rule = RULES[advisory.code]
    when = f"since step {advisory.first}" if advisory.open else f"steps {advisory.first} to {advisory.last}, over"
    shown = f"\n  Rollouts: {', '.join(advisory.evidence.rollouts)}" if advisory.evidence.rollouts else ""
    return f"{rule.title} ({advisory.code}, {when})\n  {advisory.sentence}{shown}\n  {rule.remedy}"


def _options(settings: Sequence[str]) -> DoctorOptions:
    found = dict(text.partition("=")[::2] for text in settings)
    try:
        return DoctorOptions.model_validate(found)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{option_of(error)}: {complaint_of(error)}") from exc


def _number(path: Path) -> int:
    return int(path.parent.name)


# What is wrong with the answer of a rollout that did not solve its task, as far as its words and the expected answer
# tell.

TOLERANCE = 1e-9  # relative: numbers that were written differently


class AnswerKind(StrEnum):
    """The kinds of answers of rollouts that did not solve their task."""

    SILENT = "silent"  # no words at all
    NO_NUMBER = "no_number"  # a number was expected, and its words hold none
    OTHER_NUMBER = "other_number"  # a number was expected, and its words hold others
    OTHER_WORDS = "other_words"  # a text was expected, and its words do not hold it
    HELD = "held"  # its words hold what was expected: something else was wrong, or the reward is
    UNKNOWN = "unknown"  # no expected answer is known, or it is not one text


def answer_kind(words: str, expected: str) -> AnswerKind:
    """The kind of an answer: ``words`` are the end of the model's last text, ``expected`` the answer that was wanted,
    either empty where there is none."""
    expected = expected.strip()
    if not words.strip():
        return AnswerKind.SILENT
    if not expected or expected[0] in "[{":  # a structure, which words need not spell
        return AnswerKind.UNKNOWN
    wanted = _number_of(expected)
    if wanted is None:
        return AnswerKind.HELD if _holds(words, expected) else AnswerKind.OTHER_WORDS
    found = numbers(words)
    if any(math.isclose(each, wanted, rel_tol=TOLERANCE) for each in found):
        return AnswerKind.HELD
    return AnswerKind.OTHER_NUMBER if found else AnswerKind.NO_NUMBER


def _holds(words: str, expected: str) -> bool:
    """Whether the words hold this text, in any case, and not as a part of a Latin word or of a number."""
    whole = rf"(?<![a-z0-9]){re.escape(expected.casefold())}(?![a-z0-9])"
    return re.search(whole, words.casefold()) is not None


def _number_of(text: str) -> float | None:
    """The number that a text is; ``None`` for one that is more than a number."""
    found = numbers(text)
    return found[0] if len(found) == 1 and not any(each.isalpha() for each in text) else None
