"""Who can play a suite, by one reference each: a model, the model of a run, an endpoint, a scripted policy."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Model
from django.urls import reverse
from django.utils.translation import gettext as _

from training.config import POLICY_CHOICES, EndpointConfig, JobConfig, ModelConfig, Reference, ReferenceKind
from webapp.common.text import translated
from webapp.endpoints.models import Endpoint
from webapp.launch.forms import model_choices
from webapp.people.teams.models import Project
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel

FLOOR = ("claim_success", "empty", "copy_prompt", "one_tool")


def with_contestant(config: JobConfig, reference: str) -> JobConfig:
    """The same evaluation played by another contestant. Of the model's options only how it is held in memory stays."""
    kept = {"dtype": config.model.dtype}
    found = Reference.parse(reference)
    policy, source = "none", reference
    if found is not None and found.kind == "policy":
        policy, source = found.name, "starter"
    groups = {
        "model": ModelConfig.model_validate(kept | {"source": source}),
        "endpoint": EndpointConfig(),
        "evaluate": config.evaluate.model_copy(update={"policy": policy}),
    }
    return JobConfig.model_validate(config.model_copy(update=groups).model_dump())


def contestants_offered(project: Project) -> list[tuple[str, str]]:
    """What a form offers: the project's models and endpoints, then a few policies as a floor."""
    floor = [str(Reference("policy", name)) for name in FLOOR]
    return model_choices(project) + [(reference, title_of_contestant(reference)) for reference in floor]


def may_play(reference: str) -> bool:
    """Whether a reference has the form of a contestant's; launching looks up whether there is such a one."""
    match Reference.parse(reference):
        case Reference("policy", name):
            return name in POLICY_CHOICES
        case Reference("model" | "run" | "endpoint", name):
            return name != ""
    return reference == "starter"


def title_of_contestant(reference: str) -> str:
    """A contestant as a table names it."""
    match Reference.parse(reference):
        case Reference("policy", name):
            return _("policy: %(name)s") % {"name": translated(POLICY_CHOICES.get(name, name))}
        case Reference("endpoint", name):
            return _("%(name)s (endpoint)") % {"name": name}
        case Reference("model" | "run", name):
            return name
    return reference


def pages_of(project: Project, references: Iterable[str]) -> dict[str, str]:
    """The addresses of those contestants that have a page of their own here."""
    asked = {Reference.parse(reference) for reference in references}
    pages: tuple[tuple[ReferenceKind, type[Model], str], ...] = (
        ("model", RegisteredModel, "model-detail"),
        ("run", Run, "run-detail"),
        ("endpoint", Endpoint, "endpoint-detail"),
    )
    found: dict[str, str] = {}
    for kind, model, page in pages:
        names = {each.name for each in asked if each is not None and each.kind == kind}
        if not names:
            continue
        rows = model._default_manager.filter(project=project, name__in=names).values_list("name", "pk")
        found |= {str(Reference(kind, name)): reverse(page, args=[project.slug, pk]) for name, pk in rows}
    return found
