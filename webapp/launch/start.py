"""The start of a new form: a run that is cloned, a preset in one of its sizes, or the defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.config import METHODS, JobConfig
from training.presets import Preset, Size, presets
from webapp.common.workers.beating import gpu_known
from webapp.engine.services import branch_point, class_of_copy
from webapp.launch.background import preparation_shown
from webapp.launch.findings import in_language
from webapp.launch.forms import config_of, suggested_name
from webapp.launch.held_out import hold_out
from webapp.launch.models import Preparation, PreparationState
from webapp.launch.needs import Situation, filled, situation
from webapp.people.teams.access import object_for, role_of
from webapp.people.teams.models import Project
from webapp.runs.config import of_step
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import Priority, RunState

# --- Changes --------------------------------------------------------------------------------------------------------
# Changes that a page proposes for a clone or a child, by the name that its address gives them.

REFILL_ROUNDS = 2


def change(project: Project, config: JobConfig, name: str) -> None:
    """Make the named change in the config that a form begins with; an unknown name changes nothing."""
    if name == HOLD_OUT:
        hold_out(project, config)
    elif made := CHANGES.get(name):
        made(config)


def _halve_learning_rate(config: JobConfig) -> None:
    config.optim.learning_rate = config.learning_rate / 2


def _double_steps(config: JobConfig) -> None:
    config.run.max_steps *= 2


def _set_refill_rounds(config: JobConfig) -> None:
    config.rollout.refill_rounds = max(config.rollout.refill_rounds, REFILL_ROUNDS)


def _set_outcome_signal(config: JobConfig) -> None:
    config.rewards.signal = "outcome"


def _double_token_limits(config: JobConfig) -> None:
    config.rollout.max_turn_tokens *= 2
    config.rollout.max_completion_tokens *= 2


HOLD_OUT = "held-out"
"""Tasks that are held out and evaluated on."""
CHANGES: dict[str, Callable[[JobConfig], None]] = {
    "slower": _halve_learning_rate,
    "longer": _double_steps,
    "refill": _set_refill_rounds,
    "outcome": _set_outcome_signal,
    "room": _double_token_limits,
}
"""Half the learning rate; twice the steps; other tasks for groups of zero variance; learning only from groups with both
outcomes; twice the tokens."""


# Query parameters that put one reference into the form.
REFERENCES = {
    "dataset": ("data", "train"),
    "model": ("model", "source"),
    "environment": ("environment", "name"),
    "reward": ("rewards", "spec"),
}
MAX_REFERENCE = 200


class Chosen(NamedTuple):
    """A preset in one size, what it needs here, and the preparation that makes it, or failed to."""

    preset: Preset
    size: Size
    now: Situation
    preparation: Preparation | None = None
    asked: bool = True  # for this size; else it is the one to begin with here
    no_gpu: bool = False  # which is why it is not the full one

    @property
    def going_on(self) -> bool:
        """Whether there is something to wait for: what is missing, or the launch."""
        item = self.preparation
        return item is not None and item.state == PreparationState.OPEN and (item.launch or not self.now.settled)

    @property
    def title(self) -> str:
        """The preset's title, in the reader's language, as the next two."""
        return in_language(self.preset.title)

    @property
    def about(self) -> str:
        """The preset's description: what it trains."""
        return in_language(self.preset.about)

    @property
    def notes(self) -> list[str]:
        """Notes on decisions where its sources disagree, and on what is left out."""
        return [in_language(note) for note in self.preset.notes]

    @property
    def sizes(self) -> list[tuple[Size, str, str]]:
        """Its sizes, with their names and what they mean."""
        return [(size, *size_words(self.preset, size)) for size in self.preset.sizes]

    @property
    def size_help(self) -> str:
        """The meaning of the chosen size, where there is a choice."""
        words = size_words(self.preset, self.size)[1] if len(self.preset.sizes) > 1 else ""
        return f"{words} {_('Chosen because no worker here has a GPU.')}" if self.no_gpu else words


class Start(NamedTuple):
    """The config that a form shows, the name that it suggests, and where they come from: ``origin`` is a run that is
    cloned or continued, which the form compares with; ``draft`` is one that the form changes."""

    config: JobConfig
    name: str
    origin: Run | None = None
    chosen: Chosen | None = None
    checkpoint: Checkpoint | None = None
    draft: Run | None = None
    hold_out: bool = False  # unless the person says otherwise
    priority: Priority = Priority.NORMAL


class Offer(NamedTuple):
    """A preset as the gallery offers it: its sizes with their names and what they mean."""

    id: str
    title: str
    about: str
    sizes: list[tuple[Size, str, str]]


class System(NamedTuple):
    """The presets of one system. ``minutes`` is what its longest demo takes on a CPU (0 without one), ``device`` what
    the full size of its first preset fits (empty for one that needs none)."""

    name: str
    title: str
    about: str
    offers: list[Offer]
    minutes: int
    device: str

    @property
    def promise(self) -> str:
        """The use of the demo, for a reader who does not know the presets yet."""
        return _demo_words(self.minutes) if self.minutes else ""


def _demo_words(minutes: int) -> str:
    words = ngettext("Learns in about %(n)s minute on a CPU", "Learns in about %(n)s minutes on a CPU", minutes)
    return words % {"n": minutes}


def size_words(preset: Preset, size: Size) -> tuple[str, str]:
    """The name of a size in the reader's language, and what it means."""
    if size == "demo":
        promise = _demo_words(preset.demo.minutes if preset.demo else 0)
        return _("Demo"), _("%(promise)s: the starter model, with few and short tasks.") % {"promise": promise}
    if size == "test":
        return _("Test"), _("The starter model on a CPU, within a few minutes; too short to learn much.")
    return _("Full"), _("Settings from the paper; needs a GPU.")


def start_of(request: HttpRequest, project: Project) -> Start:
    """The start that the request asks for. Raises ``Http404`` for a run that is not there."""
    if request.GET.get("resume"):
        return _child_start(request, project)
    if request.GET.get("edit"):
        return _draft_start(request, project)
    source = request.GET.get("from") or request.GET.get("clone")
    if source:
        within = Run.objects.filter(project=project).select_related("project")
        run = object_for(request.user, Run, source, within=within, project=project)
        config = config_of(run)
        asked = METHODS.get(request.GET.get("kind", ""))
        if asked is not None and not asked.trains:  # a run with stages is played as it ended
            config = of_step(run, config, run.step)
        if asked is not None and asked.learns_from != "rollouts" and config.mix.parts:  # which have but one environment
            config = config.named_courses.get(request.GET.get("part", ""), config.courses[0])
        _apply_references(config, request)
        change(project, config, request.GET.get("change", ""))
        base = f"{run.name}-{config.kind}" if config.kind != run.kind else run.name
        return Start(config, suggested_name(project, config, base), run, priority=class_of_copy(run, role_of(project)))
    chosen = chosen_of(request.GET, project)
    config = filled(chosen.preset, chosen.size, chosen.now) if chosen else JobConfig()
    _apply_references(config, request)
    stem = chosen.preset.run_name(chosen.size) if chosen else ""
    return Start(config, suggested_name(project, config, stem=stem), None, chosen, hold_out=chosen is None)


def _apply_references(config: JobConfig, request: HttpRequest) -> None:
    """Put the references of the query into the config, and the kind of job. A reward spec
    replaces components written in it."""
    if request.GET.get("kind") in METHODS:
        config.kind = request.GET["kind"]  # type: ignore[assignment]
    for key, (group, option) in REFERENCES.items():
        value = request.GET.get(key, "")
        if not 0 < len(value) <= MAX_REFERENCE:
            continue
        setattr(getattr(config, group), option, value)
    if config.method.evaluates and config.evaluate.data:  # what the run that trained held out
        config.data.train, config.evaluate.data = config.evaluate.data, ""
    if config.rewards.spec == request.GET.get("reward"):
        _train_with_spec(config)


def _train_with_spec(config: JobConfig) -> None:
    """The spec takes the place of components in the config. Where a sample tried it, the new run is one that trains."""
    config.rewards.components = []
    if config.method.trains:
        return
    fresh = JobConfig()
    config.kind, config.run.max_steps = fresh.kind, fresh.run.max_steps
    if config.sample.policies:  # which have other limits than a model
        turns = config.rollout.max_turns
        config.rollout = fresh.rollout.model_copy(update={"max_turns": turns})
    config.sample = fresh.sample


def _child_start(request: HttpRequest, project: Project) -> Start:
    """A child of the run: its config, and its newest whole checkpoint, or the one that is asked for."""
    within = Run.objects.filter(project=project).select_related("project")
    run = object_for(request.user, Run, request.GET["resume"], within=within, project=project)
    chosen = request.GET.get("checkpoint", "")
    checkpoint = branch_point(run, chosen)
    if checkpoint is None:
        raise Http404("The run has no checkpoint to resume from.")
    config = config_of(run)
    done = config.run.max_steps if run.state == RunState.SUCCEEDED and not chosen else checkpoint.step
    if done >= config.run.max_steps:  # the same number of steps would leave nothing to do
        config.run.max_steps = max(config.run.max_steps, checkpoint.step) * 2
    change(project, config, request.GET.get("change", ""))
    name, priority = suggested_name(project, config, run.name), class_of_copy(run, role_of(project))
    return Start(config, name, run, checkpoint=checkpoint, priority=priority)


def _draft_start(request: HttpRequest, project: Project) -> Start:
    """A draft to be changed, under its own name."""
    within = Run.objects.filter(project=project, state=RunState.DRAFT).select_related("project", "resume_checkpoint")
    run = object_for(request.user, Run, request.GET["edit"], within=within, project=project)
    config, priority = config_of(run), Priority(run.priority)
    return Start(config, run.name, run.parent, checkpoint=run.resume_checkpoint, draft=run, priority=priority)


def chosen_of(asked: Any, project: Project) -> Chosen | None:
    """The preset and size that a query names; ``None`` where there is no such preset."""
    preset = presets().get(str(asked.get("preset", "")))
    if preset is None:
        return None
    wanted = preset.size_named(str(asked.get("size", "")))
    gpu = gpu_known() if wanted is None else None
    size = wanted or _first_size(preset, gpu)
    now, begun = situation(project, preset, size), preparation_shown(project, preset, size)
    return Chosen(preset, size, now, begun, wanted is not None, gpu is False and size != "full")


def _first_size(preset: Preset, gpu: bool | None) -> Size:
    """The size to begin with: the full one where there is a GPU, else one that a CPU can train, the demo before the
    test. Where no worker is known yet, the test is nothing to begin with."""
    small = next((size for size in preset.sizes if size != "full"), None)
    return "full" if gpu or small is None or (gpu is None and small == "test") else small


SYSTEM_OF = {"demo": "tools"}  # one task, in a smaller world


def gallery(chosen: Chosen | None) -> list[System]:
    """All systems with their presets but the warm-ups, which are made where they are needed; the chosen one is shown in
    any case."""
    current = chosen.preset.id if chosen else ""
    found: dict[str, list[Preset]] = {}
    for item in presets().values():
        if item.role == "main" or item.id == current:
            found.setdefault(SYSTEM_OF.get(item.system, item.system), []).append(item)
    return [_system(name, items) for name, items in found.items()]


def _system(name: str, items: list[Preset]) -> System:
    first = items[0]
    offers = [
        Offer(
            item.id,
            in_language(item.title),
            in_language(item.about),
            [(size, *size_words(item, size)) for size in item.sizes],
        )
        for item in items
    ]
    minutes = max((item.demo.minutes for item in items if item.demo), default=0)
    title, about = _system_words(name) or (in_language(first.title), in_language(first.about))
    return System(name, title, about, offers, minutes, first.device_title)


def _system_words(name: str) -> tuple[str, str] | None:
    """Title and description of a system whose presets are parts of one way; ``None`` where the first one says it."""
    if name == "bfcl":
        about = _("Call functions over the turns of a conversation, on splits that grow harder stage by stage.")
        return _("BFCL multi-turn"), about
    if name == "reasoning":
        about = _("Imitate worked solutions, then learn from the number at the end, the length and the steps.")
        return _("Word problems"), about
    return None
