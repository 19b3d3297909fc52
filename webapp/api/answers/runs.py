"""Answers about runs. Fields of the live view are described in docs/live.md."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import AliasPath, BeforeValidator, Field

from webapp.common.answers import Answer, Id, Object


class Starred(Answer):
    """Whether your star is on it now."""

    starred: bool


class CurveMeans(Answer):
    """Means of the stretches of a thinned curve, lists of the same length."""

    steps: list[int] = Field(description="middle of each stretch")
    values: list[float] = Field(description="mean of all its finite figures, those left out included")
    counts: list[int] = Field(description="how many they are")


class Curve(Answer):
    """Points of one metric, lists of the same length. A thinned curve keeps its first and last point, and the lowest
    and the highest of each stretch."""

    steps: list[int]
    values: list[float | None] = Field(description="null: not a finite number")
    attempts: list[int]
    means: CurveMeans | None = Field(None, description="only where points were left out")


class Curves(Answer):
    """Curves by the name of their metric (docs/metrics.md)."""

    curves: dict[str, Curve]


class Axis(Answer):
    """The amounts at the end of some steps, lists of the same length; between two of them they grow linearly."""

    steps: list[int]
    at: list[float]


class RunAxes(Answer):
    """Axes of a run's curves: `time` (hours of training), `rollouts` and `tokens` (sampled ones), each where it is
    known."""

    id: UUID
    name: str
    state: str
    axes: dict[str, Axis]
    same_rewards: bool | None = Field(description="with `beside`: whether both were rewarded in the same way")


class Pin(Answer):
    """A chart of a run on its project's page, in the language that was asked for."""

    id: UUID
    run: UUID
    name: str = Field(description="of the run")
    url: str
    csv: str = Field(description="all its points")
    key: str = Field(description="of the chart: a metric, success or components")
    title: str
    names: list[str] = Field(description="the metrics that it draws")
    view: Object = Field(description="smooth, log, x and stack")
    components: dict[str, str] = Field(description="titles of the run's reward components, in the spec's order")
    weights: dict[str, float] | None = Field(description="to stack them; null: no one weight says it")
    ended: bool = Field(description="whether the run has ended")
    pinned_by: str


class EvidenceCurve(Answer):
    """A curve that shows an advisory's evidence, over the last 64 steps at most."""

    name: str
    title: str
    steps: list[int]
    values: list[float]


class CheckpointPlace(Answer):
    """A checkpoint that a child may start from."""

    id: UUID
    step: int


class DoctorThreshold(Answer):
    """A threshold of the run doctor, in the language that was asked for."""

    value: float
    default: float
    title: str
    unit: str


class DoctorRules(Answer):
    """When an advisory opens in a project, and what follows (docs/doctor.md)."""

    thresholds: dict[str, DoctorThreshold]
    reactions: dict[str, str] = Field(description="notify, keep or pause, by the advisory's code")
    resumes: bool = Field(description="whether runs go on by themselves once what paused them is over")


def _ids(places: list[Object]) -> list[str]:
    return [place["id"] for place in places]


class Advisory(Answer):
    """A finding of the run doctor (docs/doctor.md), in the language that was asked for."""

    id: UUID
    code: str
    severity: str = Field(description="stop, warn or note")
    first: int = Field(description="step at which its rule spoke first")
    last: int = Field(description="step at which its rule spoke last")
    open: bool = Field(description="false once its cause has been absent for 10 steps")
    title: str
    sentence: str
    meaning: str
    remedy: str
    acts: list[str] = Field(description="what a page offers next to it")
    curves: list[EvidenceCurve]
    rollouts: Annotated[list[UUID], BeforeValidator(_ids)] = Field(description="up to three that show it")
    paused: bool = Field(description="whether a rule of the project paused the run when it opened")
    kept: int | None = Field(description="step of the checkpoint that a rule keeps")
    before: CheckpointPlace | None = Field(description="the newest checkpoint from before it; a child may start there")


class DeviceSpan(Answer):
    """A phase of a step without a break, in seconds since the step began."""

    phase: str = Field(description="generation, environment, scoring, waiting, handover, training, saving, evaluating")
    begin: float
    end: float


class DeviceStep(Answer):
    """A training device over one step, with the evaluation and the checkpoint that follow it."""

    step: int
    seconds: float
    phases: dict[str, float] = Field(description="seconds of each phase that took a millisecond")
    spans: list[DeviceSpan] = Field(description="in order, 64 at most")
    left_out: int = Field(description="shorter spans that are missing in `spans`")
    busy: float | None = Field(description="mean share of the time in which it computed (NVML); null: not measured")
    memory: int | None = Field(description="most bytes in use; null: not measured")
    power_w: float | None = Field(description="mean draw in watts; null: not measured")


class DeviceWork(Answer):
    """How much of the time devices worked, shares from 0 to 1."""

    share: float
    measured: bool = Field(description="as NVML measured it; else generation and training by the trainer's phases")
    steps: int = Field(description="of devices, that it is the share of")
    left_out: int = Field(description="such steps that NVML did not measure")
    waits: dict[str, float] = Field(description="by phase, the longest first")


class Device(Answer):
    """A training device and its steps, oldest first."""

    host: str
    device: str = Field(description="number or id, or cpu")
    worked: DeviceWork | None = Field(description="null: it only evaluated")
    steps: list[DeviceStep]


class Devices(Answer):
    """What the training devices of a run did over its last steps. 50 steps of a run are kept."""

    answer: str = Field(description="in the language that was asked for; empty where nothing was recorded")
    worked: DeviceWork | None = Field(description="all of them together")
    devices: list[Device]


class RunFile(Answer):
    """A file of a run's metrics."""

    id: UUID
    state: str
    format: str
    file_name: str
    figures: int = Field(description="written so far")
    bytes: int
    error: Object | None
    url: str | None = Field(description="null until it is written")


class RunImport(Answer):
    """Files of a run that another trainer made, and their state."""

    id: UUID
    name: str = Field(description="that the run shall have; empty: that of the first file")
    state: str = Field(description="reading, done or rejected")
    files: list[Object] = Field(description="name and bytes of each, as it was sent")
    percent: int = Field(description="how far the reading is")
    run: UUID | None = Field(description="the run that was made of them", validation_alias="run_id")
    is_new: bool = Field(description="false: the same files had been imported before, and there is still one run")
    message: str = Field(description="why they were rejected, else empty")
    report: Object = Field(description="what was read, with what was left out and why; empty while they are read")
    url: str


class Finding(Answer):
    """One finding of a check."""

    title: str
    level: str = Field(description="ok, remark, grave (a remark that is shown in red) or problem")
    hard: bool = Field(description="a problem that needs a change of the config")
    message: str
    detail: str = Field(description="in the words of whatever reported it")
    hint: str
    path: str = Field(description="option that it belongs to")


class Preflight(Answer):
    """The problems that a launch would have."""

    ok: bool
    blocked: bool = Field(description="there is a hard problem")
    checks: list[Finding]


class LaunchCheck(Answer):
    """The check before a launch."""

    state: str = Field(description="open, passed, stopped, or empty where there was none")
    blocked: bool
    checks: list[Finding] = Field(validation_alias="findings")


class BatchItem(Answer):
    """The result of one run."""

    id: UUID
    ok: bool
    code: str | None = Field(description="why not; see docs/errors.md")
    message: str | None


class Batch(Answer):
    """The result of each run, in the order of the request."""

    items: list[BatchItem]
    done: int = Field(description="how many of them are `ok`")


# --- Summaries ------------------------------------------------------------------------------------------------------
# The summary of a run: the answer of ``/runs/{run_id}/summary``.


class Gain(Answer):
    """A figure from the first tenth of the steps to the last tenth."""

    name: str = Field(description="metric (docs/metrics.md), the most important first")
    title: str
    before: float | None = Field(description="mean of the first `steps` steps; null where only one step has it")
    after: float = Field(description="mean of the last `steps` steps")
    steps: int
    of: int = Field(description="steps that have the figure")


class BestStep(Answer):
    """The step at which the run was best."""

    step: int
    value: float
    metric: str = Field(description="what decided: heldout/success, else rollouts/task_success, else reward")
    window: int = Field(description="steps that `value` is the mean of, the last of them `step`")
    of: int = Field(description="such means, of which it is the highest")
    tries: int = Field(description="rollouts, or held-out tasks, that a success is the share of; 0: unknown")
    low: float | None = Field(description="where its 95% interval begins")
    high: float | None = Field(description="where it ends")
    checkpoint: CheckpointPlace | None = Field(description="the whole one nearest to it")


class HeldOut(Answer):
    """Success on tasks that were not learned from, with its 95% interval."""

    success: float
    low: float | None
    high: float | None
    tasks: int = Field(description="0: not counted")
    step: int | None = Field(description="of the run's own evaluation")
    run: Id = Field(description="the run that evaluated its model")
    trained_on: bool = Field(description="some of these tasks were learned from after all")
    learned: int | None = Field(
        description="how many of them; null: all, but their rows are gone",
        validation_alias=AliasPath("overlap", "seen"),
    )
    learned_words: str = Field(
        description="which data has them, or what could not be compared", validation_alias=AliasPath("overlap", "words")
    )


class Cost(Answer):
    """The cost of the run; null is not counted, never 0."""

    device: str = Field(description="cpu, cuda …")
    device_seconds: float | None = Field(description="of all attempts")
    attempts: int
    tokens: float | None = Field(description="about so many that the model sampled")
    judge_requests: float | None
    judge_cost: float | None = Field(description="at the prices that are set")


class ModelLeft(Answer):
    """The finished model of a run that succeeded."""

    id: UUID | None = Field(description="null: not registered yet")
    name: str
    checkpoint: CheckpointPlace


class WorstAdvisory(Answer):
    """The gravest open advisory."""

    code: str
    severity: str
    title: str


class OpenAdvisories(Answer):
    """How many advisories are open."""

    open: int
    worst: WorstAdvisory | None


class Advice(Answer):
    """Something to try next, by a rule of docs/runs.md."""

    code: str
    sentence: str
    label: str = Field(description="of the page's button")
    url: str = Field(description="of the page that begins it")


class Diagnosis(Answer):
    """The run doctor's answer to "does it learn what it should?", in the language that was asked for."""

    kind: str = Field(description="early, learning, solved, unclear, falling, stuck or gamed")
    code: str = Field(description="the advisory that decides it, or empty")
    title: str
    sentence: str


class RunSummary(Answer):
    """The summary of a run, in the language that was asked for."""

    id: UUID
    state: str
    ended: bool = Field(description="or paused; else these are the figures so far")
    diagnosis: Diagnosis | None = Field(description="null before the doctor's first look, and where no rollouts train")
    gains: list[Gain]
    best: BestStep | None
    held_out: HeldOut | None = Field(description="null: nothing was held out, and its model was never evaluated")
    cost: Cost
    model: ModelLeft | None
    advisories: OpenAdvisories
    next: list[Advice] = Field(
        description="four at most; of those that need an editor only for editors", validation_alias="advice"
    )
