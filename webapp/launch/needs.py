"""The needs of a preset in a project: which are there already, which are being made, and which are missing.

Nothing here writes; ``needs_make.py`` does. Both look in the same way (``needs_find.py``), so that what was
made is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.config import JobConfig
from training.presets import WORD_PROBLEMS, EnvironmentNeed, Needs, Preset, RewardNeed, Size, presets
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.selectors import percent_of
from webapp.environments.models import Environment, OrderState
from webapp.environments.orders import OPEN, order_room
from webapp.environments.selectors import health_view
from webapp.launch.needs_find import environment_find, order_find, problems_find, run_find, runs_of, spec_find
from webapp.launch.preset_text import in_language
from webapp.people.teams.models import Project
from webapp.runs.models import Run
from webapp.runs.states import RunState

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
    """What a preset needs here, in the order in which it is made."""
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
        what=in_language(preset.title), state=FOUND, reference=f"run:{run.name}", name=run.name, url=url, note=note
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
