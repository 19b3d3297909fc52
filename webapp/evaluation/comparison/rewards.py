"""The reward spec of a comparison: its evaluations weighed by it, what they did not record, and scoring that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from training.config import RewardComponent, kind_in, name_in
from training.errors import ConfigError
from webapp.common.pages import errors_by_field, newest_only
from webapp.common.text import in_words
from webapp.common.words import Failure, failure
from webapp.engine.resolve import components_meant
from webapp.evaluation.comparison.contestants import MOST, Contestant, contestants_of
from webapp.evaluation.comparison.figures import Numbers, Spec, numbers_of, same_rewards
from webapp.evaluation.rescoring.columns import Lack, Lacks
from webapp.evaluation.rescoring.models import Rescoring, RescoringState
from webapp.evaluation.rescoring.services import (
    asked_by,
    asks_text,
    newest_for,
    percent_of,
    refusal_of,
    rescoring_cancel,
    rescoring_create,
    rescorings_of,
)
from webapp.people.teams.access import own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.rewards.selectors import specs_of
from webapp.runs.config import component_titles

# --- Sentences on what is missing -----------------------------------------------------------------------------------
# Sentences on components that evaluations did not record: which were computed, which are missing, and why.

REASONS_SHOWN = 3
Lacking = Sequence[tuple[str, Lacks]]


def computed_sentences(components: Sequence[RewardComponent], lacking: Lacking) -> list[str]:
    """For each run by name: which components were computed from its transcripts."""
    titles = component_titles(components)
    sentences = []
    for run, lacks in lacking:
        computed = {titles[name]: lack.computed for name, lack in lacks.by_name.items() if lack.computed}
        if computed:
            values = {"run": run, "names": ", ".join(computed), "n": f"{max(computed.values()):,}"}
            sentences.append(
                ngettext(
                    "%(run)s: %(names)s computed from the transcript of %(n)s rollout.",
                    "%(run)s: %(names)s computed from the transcripts of %(n)s rollouts.",
                    max(computed.values()),
                )
                % values
            )
    return sentences


def missing_sentences(components: Sequence[RewardComponent], lacking: Lacking) -> list[str]:
    """For each run by name: which components have no value in how many rollouts, and why."""
    titles = component_titles(components)
    sentences = []
    for run, lacks in lacking:
        if unseen := [titles[name] for name, lack in lacks.by_name.items() if lack.unscored and not _has_begun(lack)]:
            sentences.append(
                _("%(run)s has not recorded %(names)s with these parameters, so it has no reward under this spec.")
                % {"run": run, "names": ", ".join(unseen)}
            )
        for name, lack in lacks.by_name.items():
            sentences += _component_sentences(run, titles[name], lack) if _has_begun(lack) else []
    return sentences


def _has_begun(lack: Lack) -> bool:
    return bool(lack.computed or lack.failed)


def _component_sentences(run: str, title: str, lack: Lack) -> list[str]:
    sentences = []
    if lack.unscored:
        sentences.append(
            _with_count(
                ngettext(
                    "%(run)s: %(n)s rollout has not been scored by %(name)s yet.",
                    "%(run)s: %(n)s rollouts have not been scored by %(name)s yet.",
                    lack.unscored,
                ),
                {"run": run, "name": title},
                lack.unscored,
            )
        )
    for reason, count in lack.failed.most_common(REASONS_SHOWN):
        text = ngettext(
            "%(run)s: %(n)s rollout has no value of %(name)s: %(reason)s",
            "%(run)s: %(n)s rollouts have no value of %(name)s: %(reason)s",
            count,
        )
        sentences.append(_with_count(text, {"run": run, "name": title, "reason": in_words(reason)}, count))
    rest = sum(count for _reason, count in lack.failed.most_common()[REASONS_SHOWN:])
    if rest:
        text = ngettext(
            "%(run)s: %(n)s more rollout has no value of %(name)s, for another reason.",
            "%(run)s: %(n)s more rollouts have no value of %(name)s, for other reasons.",
            rest,
        )
        sentences.append(_with_count(text, {"run": run, "name": title}, rest))
    return sentences


def _with_count(text: str, values: Mapping[str, str], count: int) -> str:
    return text % {**values, "n": f"{count:,}"}


# --- Specs and weighed evaluations ----------------------------------------------------------------------------------

SPECS_OFFERED = 50


class SpecChoice(NamedTuple):
    """A reward spec that all can be weighed by."""

    value: str
    label: str
    chosen: bool


class Rewards(NamedTuple):
    """How the rewards of the page were made. ``comparable``: one spec gave or re-weighed all of them.

    ``unknown`` are the components of the spec that lack a value in some counted rollout of a contestant; ``computed``
    and ``missing`` say in sentences what was computed from transcripts, and what is missing and why. ``asked`` is the
    spec's name in the address.
    """

    differ: bool
    asked: str
    chosen: Spec | None
    choices: list[SpecChoice]
    unknown: list[tuple[Contestant, list[str]]]
    computed: list[str]
    missing: list[str]

    @property
    def comparable(self) -> bool:
        """Whether rewards may be shown side by side."""
        return not self.differ or self.chosen is not None


class Evaluations(NamedTuple):
    """The contestants that are ``measured``, their figures, and the spec of their rewards."""

    playing: list[Contestant]
    numbers: Numbers
    rewards: Rewards


def evaluations(project: Project, contestants: Sequence[Contestant], spec: str) -> Evaluations | None:
    """What is ``measured`` among the contestants, with rewards weighed by ``spec`` if there is one; ``None`` where
    nothing is. Nothing is computed here: values that were neither recorded nor scored are missing."""
    playing = [item for item in contestants if item.measured]
    if not playing:
        return None
    chosen = spec_named(project, playing, spec[:200]) if spec else None
    numbers = numbers_of(playing, chosen)
    return Evaluations(playing, numbers, _rewards_of(project, playing, numbers, chosen, spec[:200]))


def _rewards_of(
    project: Project, playing: Sequence[Contestant], numbers: Numbers, chosen: Spec | None, asked: str
) -> Rewards:
    """Which spec the rewards follow: all the same one, or the one that was asked for."""
    differ = any(not same_rewards(item.components, playing[0].components) for item in playing)
    choices = [
        SpecChoice(str(item.run.pk), item.spec or _("the rewards of %(name)s") % {"name": item.run.name}, False)
        for item in playing
    ]
    saved = list(specs_of(project)[:SPECS_OFFERED])
    choices += [SpecChoice(item.reference, str(item), False) for item in saved]
    if more := newest_only(len(saved), SPECS_OFFERED):
        choices.append(SpecChoice("", more, False))
    marked = [choice._replace(chosen=bool(asked) and choice.value == asked) for choice in choices]
    unique = {choice.label: choice for choice in reversed(marked)}
    lacking = list(zip(playing, numbers.lacks, strict=True)) if chosen else []
    unknown = [
        (item, names)
        for item, lacks in lacking
        if (names := [name for name, lack in lacks.by_name.items() if lack.missing])
    ]
    named = [(item.run.name, lacks) for item, lacks in lacking]
    components = chosen.components if chosen else []
    return Rewards(
        differ,
        asked,
        chosen,
        list(reversed(unique.values())),
        unknown,
        computed_sentences(components, named),
        missing_sentences(components, named),
    )


def spec_named(project: Project, playing: Sequence[Contestant], asked: str) -> Spec | None:
    """The spec that an address names: a run's by its id, or one of the project by its reference."""
    for item in playing:
        if asked == str(item.run.pk):
            return Spec(item.spec or item.run.name, item.components)
    config = playing[0].config if playing else None
    if config is None or kind_in(asked) != "reward":
        return None
    wanted = config.model_copy(update={"rewards": config.rewards.model_copy(update={"spec": asked[:200]})})
    try:
        return Spec(name_in("reward", asked), components_meant(project, wanted))
    except ConfigError:
        return None


# --- Rescoring -------------------------------------------------------------------------------------------------------
# Scoring the recorded rollouts of a comparison by its spec: what that would do, and the request for it.


class Offer(NamedTuple):
    """What scoring would do: for how many rollouts, which judges and models it would ask, why it cannot be done; and
    the last request.

    ``spec`` is how addresses name the spec. ``again``: all of these were tried before, without a value.
    """

    spec: str
    rollouts: int
    asks: str
    refusal: str
    newest: Rescoring | None
    again: bool

    @property
    def open(self) -> bool:
        """Whether a worker does it, or it waits for one."""
        return self.newest is not None and self.newest.state in self.newest.OPEN

    @property
    def percent(self) -> int:
        """Its progress."""
        return percent_of(self.newest) if self.newest else 0

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled the last time."""
        return self.newest is not None and self.newest.state == RescoringState.CANCELLED

    @property
    def failure(self) -> Failure | None:
        """Why it failed the last time."""
        failed = self.newest is not None and self.newest.state == RescoringState.FAILED
        return failure(self.newest.error) if failed and self.newest else None


def offer_of(project: Project, read: Evaluations) -> Offer | None:
    """The scoring to offer; ``None`` where no value is missing and no scoring is open.

    Only evaluations are scored: of a run that trains, a comparison counts a small part of its rollouts.
    """
    rewards = read.rewards
    playing = [item for item in read.playing if item.evaluates]
    lacking_of = [lacks for item, lacks in zip(read.playing, read.numbers.lacks, strict=True) if item.evaluates]
    if rewards.chosen is None or not any(lacks.by_name for lacks in lacking_of):
        return None
    components = {item.name: item for item in rewards.chosen.components}
    lacking = [(components[name], lack) for lacks in lacking_of for name, lack in lacks.by_name.items() if lack.missing]
    newest = newest_for(project, [item.run.pk for item in playing], rewards.chosen.components)
    if not lacking and (newest is None or newest.state not in newest.OPEN):
        return None
    return Offer(
        spec=rewards.asked,
        rollouts=sum(lacks.rollouts for lacks in lacking_of),
        asks=asks_text(asked_by((item, lack.missing) for item, lack in lacking)),
        refusal=refusal_of(project, list({item.name: item for item, _lack in lacking}.values())),
        newest=newest,
        again=not any(lack.unscored for _item, lack in lacking),
    )


def rescore(*, project: Project, user: User | None, runs: Sequence[str], spec: str, confirmed: bool) -> Rescoring:
    """Have the evaluations among these runs scored by a spec, named as in addresses. Raises ``ValidationError``."""
    playing, chosen = _contestants_and_spec(project, runs, spec)
    return rescoring_create(
        project=project,
        user=user,
        name=chosen.name,
        components=chosen.components,
        runs=[item.run for item in playing],
        confirmed=confirmed,
    )


def _contestants_and_spec(project: Project, runs: Sequence[str], spec: str) -> tuple[list[Contestant], Spec]:
    wanted = list(dict.fromkeys(text.lower() for text in runs))
    if len(wanted) > MOST:
        sentence = _("%(most)d can be compared at once, and these are %(n)d; choose fewer.")
        raise ValidationError({"runs": sentence % {"most": MOST, "n": len(wanted)}})
    contestants, _notes = contestants_of(project, wanted)
    if missing := len(wanted) - len(contestants):
        sentence = _("Not in this project, or deleted: %(n)d of the %(all)d runs. Choose others.")
        raise ValidationError({"runs": sentence % {"n": missing, "all": len(wanted)}})
    playing = [item for item in contestants if item.evaluates]
    if not playing:
        raise ValidationError({"runs": _("None of these runs is an evaluation; only evaluations are scored again.")})
    chosen = spec_named(project, playing, spec) if len(spec) <= 200 else None
    if chosen is None:
        raise ValidationError({"spec": _("There is no such reward spec, and none of the runs has that id.")})
    return playing, chosen


# --- Requests -------------------------------------------------------------------------------------------------------
# Scoring the recorded rollouts of a comparison: the button, the progress, and cancelling it.


@login_required
@require_POST
def compare_rescore(request: HttpRequest, slug: str) -> HttpResponse:
    """Have the rollouts of the evaluations ``c`` scored by ``spec``: how far that is for htmx, else the comparison."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    runs, spec = request.POST.getlist("c"), request.POST.get("spec", "")
    problems: list[str] = []
    rescoring: Rescoring | None = None
    try:
        rescoring = rescore(
            project=project,
            user=cast(User, request.user),
            runs=runs[:100],
            spec=spec,
            confirmed=request.POST.get("confirmed") == "yes",
        )
    except ValidationError as exc:
        problems = [text for texts in errors_by_field(exc).values() for text in texts]
    if getattr(request, "htmx", False):
        if rescoring is not None:
            return render(request, "comparison/_rescoring.html", _state_context(project, rescoring))
        answer = render(request, "comparison/_rescoring_problem.html", {"problems": problems}, status=422)
        answer["HX-Retarget"] = "#rescoring-problem"  # the form stays
        return answer
    if problems:
        messages.error(request, " ".join(problems))
    return redirect(_compare_address(slug, runs, spec))


def _compare_address(slug: str, runs: list[str], spec: str) -> str:
    return f"{reverse('compare', args=[slug])}?{urlencode({'c': runs, 'spec': spec}, doseq=True)}"


def _state_context(project: Project, rescoring: Rescoring) -> dict[str, Any]:
    """The context of the page's changing part."""
    return {
        "project": project,
        "rescoring": rescoring,
        "percent": percent_of(rescoring),
        "open": rescoring.state in Rescoring.OPEN,
    }


@login_required
@require_GET
def rescoring_progress(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """How far it is, as a fragment; makes htmx load the page again once it has ended."""
    project, rescoring = own(request, slug, Rescoring, pk, within=rescorings_of)
    response = render(request, "comparison/_rescoring.html", _state_context(project, rescoring))
    if rescoring.state not in Rescoring.OPEN:
        response["HX-Refresh"] = "true"
    return response


@login_required
@require_POST
def rescoring_end(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Cancel it; what was scored until then is kept."""
    project, rescoring = own(request, slug, Rescoring, pk, need=Role.EDITOR, within=rescorings_of)
    rescoring_cancel(rescoring=rescoring, user=cast(User, request.user))
    if getattr(request, "htmx", False):
        response = render(request, "comparison/_rescoring.html", _state_context(project, rescoring))
        response["HX-Refresh"] = "true"
        return response
    return redirect(_compare_address(slug, rescoring.runs, ""))
