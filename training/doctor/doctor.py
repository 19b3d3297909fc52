"""The doctor of one run: it sees one step after another, and says what it finds.

An advisory is *open* from the step at which its rule speaks first until the rule has been silent for
``DoctorOptions.calm`` steps; then it is *over*, and a later relapse is another one. Its evidence is that of the last
step at which the rule spoke. ``as_json`` is all that the doctor knows, some 64 steps of figures, so that another
process may continue.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from training.doctor import learning_detectors, rollout_detectors
from training.doctor.digest import Digest, StepFacts, digest_of
from training.doctor.history import Detector, Finding, History
from training.doctor.options import DoctorOptions
from training.doctor.rules import RULES
from training.words import Sentence, Value

MAX_ADVISORIES = 200
DETECTORS: dict[str, Detector] = {
    "no_spread": rollout_detectors.no_spread,
    "zero_advantages": rollout_detectors.zero_advantages,
    "no_calls": rollout_detectors.no_calls,
    "dominant_part": learning_detectors.dominant_part,
    "phantom_share": rollout_detectors.phantom_share,
    "shaping_above_outcome": rollout_detectors.shaping_above_outcome,
    "over_optimisation": learning_detectors.over_optimisation,
    "collapse": learning_detectors.collapse,
    "entropy_fall": learning_detectors.entropy_fall,
    "no_effect": learning_detectors.no_effect,
    "plateau": learning_detectors.plateau,
    "wasted_hours": learning_detectors.wasted_hours,
    "kl_spike": learning_detectors.kl_spike,
    "kl_drift": learning_detectors.kl_drift,
    "gradient_spike": learning_detectors.gradient_spike,
    "no_gradient": learning_detectors.no_gradient,
    "clip_share": learning_detectors.clip_share,
    "logprob_gap": learning_detectors.logprob_gap,
    "critic_blind": learning_detectors.critic_blind,
    "length_explosion": rollout_detectors.length_explosion,
    "truncation": rollout_detectors.truncation,
    "repetition": rollout_detectors.repetition,
    "repeated_text": rollout_detectors.repeated_text,
    "looping": rollout_detectors.looping,
    "format_decay": rollout_detectors.format_decay,
    "tool_failures": rollout_detectors.tool_failures,
    "judge_failures": rollout_detectors.judge_failures,
    "excluded_share": rollout_detectors.excluded_share,
    "excluded_bias": rollout_detectors.excluded_bias,
    "stall": rollout_detectors.stall,
    "slowing": learning_detectors.slowing,
    "device_idle": rollout_detectors.device_idle,
}


OVERRULES = {
    "no_gradient": ("no_spread", "zero_advantages", "no_calls", "truncation", "entropy_fall", "repetition", "looping")
}
"""What follows from an advisory is not shown with it: its remedies would not help."""


class Curve(BaseModel):
    """A curve of evidence; ``name`` is a metric's or one of ``rules.CURVES``."""

    name: str
    steps: list[int]
    values: list[float]


class Evidence(BaseModel):
    """The evidence: curves over the last 64 steps at most, and up to three rollouts by the journal's name."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    curves: list[Curve] = Field(default_factory=list)
    rollouts: list[str] = Field(default_factory=list)
    figures: dict[str, Value] = Field(default_factory=dict)


class Advisory(BaseModel):
    """One advisory. ``first`` and ``last`` are the steps at which its rule spoke first and last."""

    code: str
    first: int
    last: int
    open: bool = True
    evidence: Evidence

    @property
    def sentence(self) -> Sentence:
        """A finding with its figures."""
        return Sentence(RULES[self.code].sentence, self.evidence.figures)


class Doctor:
    """Sees the steps of one run in order; memory is bounded, whatever the run's length."""

    def __init__(self, options: DoctorOptions | None = None) -> None:
        self.options = options or DoctorOptions()
        self.history = History(self.options.window)
        self.advisories: list[Advisory] = []

    def see(self, facts: StepFacts) -> list[Advisory]:
        """Look at one finished step. Returns the advisories that opened, spoke again, or are over by it."""
        return self.take(digest_of(facts, self.options), facts.stage)

    def take(self, digest: Digest, stage: int = 1) -> list[Advisory]:
        """``see``, of a step that is a digest already."""
        self.history.add(digest, stage)
        found = {code: detector(self.history, self.options) for code, detector in DETECTORS.items()}
        overruled = {other for code, others in OVERRULES.items() if found[code] is not None for other in others}
        changed = [
            self._speak(code, finding)
            for code, finding in found.items()
            if finding is not None and code not in overruled
        ]
        return changed + self._calm(digest.step)

    def wait(self, waited_s: float) -> Advisory | None:
        """Look at a run whose newest step ended ``waited_s`` ago; the stall, if it is one."""
        if not self.history.digests:
            return None
        found = rollout_detectors.overdue(self.history, self.options, waited_s)
        return None if found is None else self._speak("stall", found)

    def _speak(self, code: str, found: Finding) -> Advisory:
        curves = [
            Curve(name=name, steps=[step for step, _ in points], values=[value for _, value in points])
            for name, points in found.curves.items()
        ]
        evidence = Evidence(curves=curves, rollouts=found.rollouts, figures=found.figures)
        step = self.history.step
        for advisory in self.advisories:
            if advisory.open and advisory.code == code:
                advisory.last, advisory.evidence = max(step, advisory.first), evidence
                return advisory
        self.advisories.append(Advisory(code=code, first=step, last=step, evidence=evidence))
        self._forget()
        return self.advisories[-1]

    def _calm(self, step: int) -> list[Advisory]:
        over = [each for each in self.advisories if each.open and step - each.last >= self.options.calm]
        for advisory in over:
            advisory.open = False
        return over

    def _forget(self) -> None:
        """Beyond the limit those that have been over for longest go; there are fewer codes than the limit."""
        while len(self.advisories) > MAX_ADVISORIES:
            self.advisories.remove(next(each for each in self.advisories if not each.open))

    def as_json(self) -> dict[str, Any]:
        """All that the doctor knows."""
        return {
            "history": self.history.as_json(),
            "advisories": [advisory.model_dump(mode="json") for advisory in self.advisories],
        }

    @classmethod
    def from_json(cls, found: dict[str, Any], options: DoctorOptions | None = None) -> Doctor:
        """The doctor that ``as_json`` was said by."""
        doctor = cls(options)
        doctor.history = History.from_json(found["history"], doctor.options.window)
        doctor.advisories = [Advisory.model_validate(each) for each in found["advisories"]]
        return doctor
