"""The needs of a preset in a project: which are there already, which are being made, and which are missing.

Nothing here writes; ``needs_make.py`` does. Both look in the same way (``needs_find.py``), so that what was
made is found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.core.files.base import ContentFile
from django.db import transaction
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.config import JobConfig
from training.data import word_problems
from training.errors import ConfigError
from training.presets import (
    WORD_PROBLEMS,
    DatasetNeed,
    EnvironmentNeed,
    Needs,
    Preset,
    RewardNeed,
    Size,
    StartNeed,
    presets,
)
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.selectors import percent_of
from webapp.datasets.services import dataset_create
from webapp.engine.services import run_create
from webapp.environments.builtin import builtins
from webapp.environments.models import DatasetOrder, Environment, Kind, OrderState
from webapp.environments.orders import OPEN, order_create, order_room
from webapp.environments.selectors import environments_of, health_view
from webapp.environments.services import environment_launch, environment_scale
from webapp.launch.findings import in_language
from webapp.launch.forms import suggested_name
from webapp.people.teams.models import Project, User
from webapp.rewards.models import RewardSpec
from webapp.rewards.services import reward_spec_save, stored_components
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import RunState

# --- Needs find -----------------------------------------------------------------------------------------------------
# Find what presets need: the same way for the page that shows it and for the service that makes it.

MAKES_PROBLEMS = "problems"  # the operation in a dataset's lineage
ENDED_BADLY = frozenset({RunState.FAILED, RunState.CANCELLED, RunState.DRAFT})


def environment_find(project: Project, need: EnvironmentNeed | None) -> Environment | None:
    """A server of the program that is started here with the wanted options; one that answers comes first."""
    if need is None:
        return None
    found = [item for item in environments_of(project) if _serves_need(item, need)]
    return min(found, key=lambda item: (item.healthy is not True, not item.wanted, item.created_at), default=None)


def _serves_need(environment: Environment, need: EnvironmentNeed) -> bool:
    program = environment.built_in
    if program is None or program.name != need.program:
        return False
    defaults = {option.name: option.default for option in program.options}
    return all(environment.arguments.get(name, defaults.get(name)) == value for name, value in need.arguments.items())


def order_find(environment: Environment, need: DatasetNeed) -> DatasetOrder | None:
    """The newest order of the same rows from a server of the same tasks; not of a dataset that was deleted since."""
    wanted = arguments_kept(environment, need)
    orders = DatasetOrder.objects.filter(
        environment__project=environment.project_id, command=need.command, arguments=wanted
    ).exclude(state=OrderState.DONE, dataset=None)
    shared = _shared_arguments(environment, need)
    same = (
        order
        for order in orders.select_related("environment", "dataset").order_by("-created_at")[:50]
        if order.environment.built_in == environment.built_in and _shared_arguments(order.environment, need) == shared
    )
    return min(same, key=_readiness_rank, default=None)


def _readiness_rank(order: DatasetOrder) -> int:
    """Rows that are there, then rows that come, then failures."""
    if order.dataset is not None and order.dataset.state == DatasetState.READY:
        return 0
    return 2 if order.state == OrderState.FAILED else 1


def arguments_kept(environment: Environment, need: DatasetNeed) -> dict[str, Any]:
    """The command's options as an order keeps them: without what equals a default."""
    program = environment.built_in
    options = program.datasets[need.command].options if program else []
    defaults = {option.name: option.default for option in options}
    return {name: value for name, value in need.arguments.items() if value != defaults.get(name)}


def _shared_arguments(environment: Environment, need: DatasetNeed) -> dict[str, Any]:
    program = environment.built_in
    names = {option.name for option in program.datasets[need.command].shared} if program else set()
    return {name: value for name, value in environment.arguments.items() if name in names}


def problems_find(project: Project, need: DatasetNeed) -> Dataset | None:
    """Our own word problems of the same kind."""
    made = Dataset.objects.filter(project=project, lineage__operation=MAKES_PROBLEMS)
    return made.filter(lineage__options=problem_options(need)).exclude(state=DatasetState.REJECTED).first()


def problem_options(need: DatasetNeed) -> dict[str, Any]:
    """The options of the generator."""
    return {**need.arguments, "shape": need.command}


def spec_find(project: Project, need: RewardNeed) -> RewardSpec | None:
    """The newest spec with the same components, under any name; the preset's own name first."""
    wanted = stored_components(list(need.components))
    found = [
        item
        for item in RewardSpec.objects.filter(project=project).order_by("-created_at")[:500]
        if item.components == wanted
    ]
    return min(found, key=lambda item: item.name != need.name, default=None)


def run_find(project: Project, preset: Preset, size: Size) -> Run | None:
    """The newest run of a preset that has succeeded, or may still: a run that starts from it then waits for it."""
    for run in runs_of(project, preset, size).order_by("-created_at")[:50]:
        if run.state not in ENDED_BADLY and (run.state != RunState.SUCCEEDED or _has_model(run)):
            return run
    return None


def runs_of(project: Project, preset: Preset, size: Size) -> QuerySet[Run]:
    """Runs that were named after a preset."""
    return Run.objects.filter(project=project, name__regex=rf"^{re.escape(preset.run_name(size))}-\d{{1,6}}$")


def _has_model(run: Run) -> bool:
    final = Checkpoint.objects.filter(run=run, final=True).order_by("-attempt", "-step").first()
    return final is not None and final.folder.is_dir()


FOUND, MAKING, MISSING, FAILED = "found", "making", "missing", "failed"
START_LIMIT = timedelta(minutes=3)


class Need(NamedTuple):
    """One thing that a preset needs. ``path`` is the option that gets ``reference``; ``note`` says how far it is."""

    path: str
    label: str
    what: str
    state: str
    reference: str = ""
    name: str = ""
    url: str = ""
    note: str = ""
    percent: int | None = None

    @property
    def state_label(self) -> str:
        """The state in words."""
        words = {FOUND: _("available"), MAKING: _("in progress"), MISSING: _("missing"), FAILED: _("failed")}
        return words[self.state]

    @property
    def badge(self) -> str:
        """The state as badges colour it."""
        return {FOUND: "ready", MAKING: "checking", MISSING: "unknown", FAILED: "failed"}[self.state]

    @property
    def usable(self) -> bool:
        """Whether a run may name it already."""
        return bool(self.reference)


class Situation(NamedTuple):
    """All needs of one size of a preset."""

    needs: list[Need]

    @property
    def ready(self) -> bool:
        """Whether a run can be launched."""
        return all(need.usable for need in self.needs)

    @property
    def busy(self) -> bool:
        """Whether something is being made."""
        return any(need.state == MAKING for need in self.needs)

    @property
    def settled(self) -> bool:
        """Whether all is there and nothing is on its way."""
        return all(need.state == FOUND for need in self.needs)

    @property
    def failed(self) -> bool:
        """Whether something could not be made."""
        return any(need.state == FAILED for need in self.needs)


def situation(project: Project, preset: Preset, size: Size) -> Situation:
    """The needs of a preset here, in the order in which they are made."""
    wanted = preset.needs_for(size)
    environment = environment_find(project, wanted.environment)
    found = [
        _environment_need(project, wanted.environment, environment),
        _dataset_need(project, wanted, environment),
        _reward_need(project, wanted.reward),
        _start_need(project, wanted, size),
    ]
    return Situation([need for need in found if need is not None])


def filled(preset: Preset, size: Size, now: Situation) -> JobConfig:
    """The config of a preset with what was found."""
    config = preset.config_for(size)
    for need in now.needs:
        group, _dot, option = need.path.partition(".")
        if need.reference and group in config.method.groups:
            setattr(getattr(config, group), option, need.reference)
    return config


def _environment_need(project: Project, need: EnvironmentNeed | None, found: Environment | None) -> Need | None:
    if need is None:
        return None
    label, what = _("Environment"), _name_with_options(need.program, need.arguments)
    if found is None:
        return Need("environment.name", label, what, MISSING)
    url = reverse("environment-detail", args=[project.slug, found.pk])
    view = health_view(found)
    made = Need("environment.name", label, what, FOUND, found.reference, found.name, url)
    if view.state in ("bad", "stopped", "stopping"):
        return made._replace(state=FAILED, note=view.error or _("It is not running; start it on its page."))
    if view.state not in ("starting", "unknown"):
        return made
    began = max((item.started_at for item in found.replicas.all() if item.started_at), default=found.created_at)
    if timezone.now() - began > START_LIMIT:
        return made._replace(state=FAILED, note=_("It has not answered for minutes; see its page."))
    return made._replace(state=MAKING, note=_("starting"))


def _dataset_need(project: Project, wanted: Needs, environment: Environment | None) -> Need | None:
    need = wanted.dataset
    if need is None:
        return None
    blank = Need("data.train", _("Dataset"), _name_with_options(need.command, need.arguments), MISSING)
    if need.program == WORD_PROBLEMS:
        found = problems_find(project, need)
        blank = blank._replace(what=_name_with_options(_("word problems"), need.arguments))
        return blank if found is None else _need_of_dataset(project, blank, found)
    order = order_find(environment, need) if environment is not None else None
    if order is None:
        waits = environment is not None and not order_room(project)
        return blank._replace(note=_("waits until another dataset of this project is generated")) if waits else blank
    if order.state == OrderState.FAILED:
        error = order.error or {}
        why = " ".join(str(error[key]) for key in ("message", "hint") if error.get(key))
        return blank._replace(state=FAILED, name=order.name, note=why)
    if order.dataset is None or order.state in OPEN:
        return blank._replace(state=MAKING, name=order.name, note=_("being written"))
    return _need_of_dataset(project, blank, order.dataset)


def _need_of_dataset(project: Project, blank: Need, found: Dataset) -> Need:
    url = reverse("dataset-detail", args=[project.slug, found.pk])
    made = blank._replace(name=str(found), url=url)
    if found.state == DatasetState.CHECKING:
        return made._replace(state=MAKING, note=_("being checked"), percent=percent_of(found))
    if found.state != DatasetState.READY:
        return made._replace(state=FAILED, note=str(DatasetState(found.state).label))
    rows = ngettext("%(n)s row", "%(n)s rows", found.rows) % {"n": found.rows}
    return made._replace(state=FOUND, reference=found.reference, note=rows)


def _reward_need(project: Project, need: RewardNeed | None) -> Need | None:
    if need is None:
        return None
    blank = Need("rewards.spec", _("Reward spec"), ", ".join(item.name for item in need.components), MISSING)
    found = spec_find(project, need)
    if found is None:
        return blank
    url = reverse("reward-detail", args=[project.slug, found.pk])
    return blank._replace(state=FOUND, reference=found.reference, name=str(found), url=url)


def _start_need(project: Project, wanted: Needs, size: Size) -> Need | None:
    need = wanted.start
    if need is None:
        return None
    known = presets()
    blank = Need("model.source", _("Starting model"), "", MISSING)
    if need.after and (run := run_find(project, known[need.after], size)):
        return _need_of_run(project, blank, run, known[need.after])
    if not need.preset:
        return None
    first = known[need.preset]
    blank = blank._replace(what=in_language(first.title))
    run = run_find(project, first, size)
    if run is not None:
        return _need_of_run(project, blank, run, first)
    return _before_start(project, blank, first, size)


def _need_of_run(project: Project, blank: Need, run: Run, preset: Preset) -> Need:
    url = reverse("run-detail", args=[project.slug, run.pk])
    note = "" if run.state == RunState.SUCCEEDED else _("still training; a run that starts from it waits for it")
    return blank._replace(
        what=in_language(preset.title), state=FOUND, reference=run.reference, name=run.name, url=url, note=note
    )


def _before_start(project: Project, blank: Need, first: Preset, size: Size) -> Need:
    """A warm-up that has no run yet: what its own needs say, and how the last try ended."""
    for need in situation(project, first, size).needs:
        if need.state in (MAKING, FAILED) and need.path == "data.train":
            return blank._replace(state=need.state, name=need.name, url=need.url, note=need.note, percent=need.percent)
    ended = runs_of(project, first, size).filter(state=RunState.FAILED).order_by("-created_at").first()
    if ended is None:
        return blank
    url = reverse("run-detail", args=[project.slug, ended.pk])
    return blank._replace(name=ended.name, url=url, note=_("The last one failed; you can create a new one."))


def _name_with_options(first: str, arguments: Mapping[str, Any]) -> str:
    """“tasks · count 48 · speech native”."""
    return " · ".join([first, *(f"{name} {value}" for name, value in arguments.items())])


# --- Needs make -----------------------------------------------------------------------------------------------------
# Making what a preset needs, step by step: each call does what can be done now, and may be repeated.
#
# The environment is registered and started, the dataset ordered from it, the reward spec saved, and the run to start
# from launched once its own dataset is there. What exists is used; what failed is tried again only when a person asks.

FEWEST_SESSIONS, MOST_SESSIONS = 128, 1024  # of one server; further sessions wait for their turn


@transaction.atomic
def needs_make(*, project: Project, user: User, preset: Preset, size: Size, again: bool = False) -> None:
    """Make what is missing and can be made now. ``again`` repeats what failed. Raises ``ValidationError``."""
    # Two clicks at once take turns, so that the second finds what the first has made.
    Project.objects.select_for_update().get(pk=project.pk)
    wanted = preset.needs_for(size)
    sessions = preset.config_for(size).rollouts_per_step
    environment = _make_environment(project, user, wanted.environment, sessions, again=again)
    if wanted.dataset is not None:
        _make_dataset(project, user, wanted.dataset, environment, preset.run_name(size), again=again)
    if wanted.reward is not None and spec_find(project, wanted.reward) is None:
        reward_spec_save(project=project, user=user, name=wanted.reward.name, components=list(wanted.reward.components))
    if wanted.start is not None and wanted.start.preset:
        _make_starting_run(project, user, wanted.start, size, again=again)


def _make_environment(
    project: Project, user: User, need: EnvironmentNeed | None, sessions: int, *, again: bool
) -> Environment | None:
    """``sessions`` are those of one step: its rollouts are played at once, as far as one server can."""
    if need is None:
        return None
    found = environment_find(project, need)
    if found is not None:
        if again and not found.wanted:
            environment_scale(environment=found, wanted=1)
        return found
    program = builtins()[need.program]
    return environment_launch(
        project=project,
        user=user,
        name=_free_name(project, need.program),
        kind=Kind.PROCESS,
        program=need.program,
        arguments=dict(need.arguments),
        slots=max(FEWEST_SESSIONS, min(sessions, MOST_SESSIONS)),
        cpus=program.cpus,
        memory_mb=program.memory_mb,
    )


def _free_name(project: Project, stem: str) -> str:
    taken = set(Environment.objects.filter(project=project, name__startswith=stem).values_list("name", flat=True))
    numbered = (f"{stem}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (stem, *numbered) if name not in taken)


def _make_dataset(
    project: Project, user: User, need: DatasetNeed, environment: Environment | None, name: str, *, again: bool
) -> None:
    if need.program == WORD_PROBLEMS:
        if problems_find(project, need) is None:
            _create_word_problems(project, user, need, name)
        return
    if environment is None:
        raise ValidationError(_("There is no environment to ask for the rows."))
    order = order_find(environment, need)
    if order is None and not order_room(project):
        return  # other presets are ahead; a later call asks for it
    if order is None or (again and order.state == OrderState.FAILED):
        order_create(environment=environment, user=user, name=name, command=need.command, arguments=need.arguments)


def _create_word_problems(project: Project, user: User, need: DatasetNeed, name: str) -> Dataset:
    """Written here: 10,000 take a third of a second."""
    options: dict[str, Any] = problem_options(need)
    lines = [json.dumps(row, ensure_ascii=False) for row in word_problems(**options)]
    file = ContentFile("".join(f"{line}\n" for line in lines).encode())
    made = dataset_create(project=project, user=user, name=name, file=file, file_name="problems.jsonl")
    made.lineage = {"operation": MAKES_PROBLEMS, "options": options, "parents": [], "rows": len(lines)}
    made.save(update_fields=["lineage"])
    return made


def _make_starting_run(project: Project, user: User, need: StartNeed, size: Size, *, again: bool) -> None:
    known = presets()
    if need.after and run_find(project, known[need.after], size) is not None:
        return
    first = known[need.preset]
    if run_find(project, first, size) is not None:
        return
    needs_make(project=project, user=user, preset=first, size=size, again=again)
    now = situation(project, first, size)
    if not all(item.usable for item in now.needs):
        return  # the next call continues
    config = filled(first, size, now)
    name = suggested_name(project, config, stem=first.run_name(size))
    try:
        run_create(project=project, user=user, name=name, config=config)
    except ConfigError as exc:
        raise ValidationError(exc.sentence) from exc
