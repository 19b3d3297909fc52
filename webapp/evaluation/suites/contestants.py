"""Who can play a suite, by one reference each: a model, the model of a run, an endpoint, a scripted policy."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Model
from django.urls import reverse
from django.utils.translation import gettext as _

from training.config import EndpointConfig, JobConfig, ModelConfig
from training.config.rollout import POLICY_CHOICES
from webapp.common.text import translated
from webapp.endpoints.models import Endpoint
from webapp.launch.forms import model_choices
from webapp.people.teams.models import Project
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel

POLICY, MODEL, RUN, ENDPOINT = "policy:", "model:", "run:", "endpoint:"
FLOOR = ("claim_success", "empty", "copy_prompt", "one_tool")


def with_contestant(config: JobConfig, reference: str) -> JobConfig:
    """The same evaluation played by another contestant. Of the model's options only how it is held in memory stays."""
    kept = {"dtype": config.model.dtype}
    policy = reference.removeprefix(POLICY) if reference.startswith(POLICY) else "none"
    source = "starter" if reference.startswith(POLICY) else reference
    groups = {
        "model": ModelConfig.model_validate(kept | {"source": source}),
        "endpoint": EndpointConfig(),
        "evaluate": config.evaluate.model_copy(update={"policy": policy}),
    }
    return JobConfig.model_validate(config.model_copy(update=groups).model_dump())


def contestants_offered(project: Project) -> list[tuple[str, str]]:
    """What a form offers: the project's models and endpoints, then a few policies as a floor."""
    return model_choices(project) + [(POLICY + name, title_of_contestant(POLICY + name)) for name in FLOOR]


def may_play(reference: str) -> bool:
    """Whether a reference has the form of a contestant's; launching looks up whether there is such a one."""
    if reference.startswith(POLICY):
        return reference.removeprefix(POLICY) in POLICY_CHOICES
    return reference == "starter" or any(
        reference.startswith(kind) and reference != kind for kind in (MODEL, RUN, ENDPOINT)
    )


def title_of_contestant(reference: str) -> str:
    """A contestant as a table names it."""
    if reference.startswith(POLICY):
        return _("policy: %(name)s") % {"name": translated(_policy_title(reference))}
    if reference.startswith(ENDPOINT):
        return _("%(name)s (endpoint)") % {"name": reference.removeprefix(ENDPOINT)}
    return reference.removeprefix(MODEL).removeprefix(RUN)


def pages_of(project: Project, references: Iterable[str]) -> dict[str, str]:
    """The addresses of those contestants that have a page of their own here."""
    names: dict[str, set[str]] = {MODEL: set(), RUN: set(), ENDPOINT: set()}
    for reference in references:
        kind, colon, name = reference.partition(":")
        names.get(kind + colon, set()).add(name)
    pages: tuple[tuple[str, type[Model], str], ...] = (
        (MODEL, RegisteredModel, "model-detail"),
        (RUN, Run, "run-detail"),
        (ENDPOINT, Endpoint, "endpoint-detail"),
    )
    found: dict[str, str] = {}
    for kind, model, page in pages:
        if not names[kind]:
            continue
        rows = model._default_manager.filter(project=project, name__in=names[kind]).values_list("name", "pk")
        found |= {kind + name: reverse(page, args=[project.slug, pk]) for name, pk in rows}
    return found


def _policy_title(reference: str) -> str:
    name = reference.removeprefix(POLICY)
    return POLICY_CHOICES.get(name, name)
