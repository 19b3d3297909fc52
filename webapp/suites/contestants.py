"""Who can play a suite, by one reference each: a model, the model of a run, an endpoint, a scripted policy."""

from __future__ import annotations

from django.utils.translation import gettext as _

from training.config import EndpointConfig, JobConfig, ModelConfig
from training.config.rollout import POLICY_CHOICES
from webapp.launch.forms import reference_choices
from webapp.teams.models import Project
from webapp.text import translated

POLICY = "policy:"
FLOOR = ("claim_success", "empty", "copy_prompt", "one_tool")


def with_contestant(config: JobConfig, reference: str) -> JobConfig:
    """The same evaluation played by somebody else. Of the model's options only how it is held in memory stays."""
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
    models = [(value, str(label)) for value, label in reference_choices(project)["model.source"]]
    return models + [(POLICY + name, title_of_contestant(POLICY + name)) for name in FLOOR]


def title_of_contestant(reference: str) -> str:
    """A contestant as a table names it."""
    if reference.startswith(POLICY):
        return _("policy: %(name)s") % {"name": translated(_policy(reference))}
    return reference.removeprefix("model:").removeprefix("run:").removeprefix("endpoint:")


def _policy(reference: str) -> str:
    name = reference.removeprefix(POLICY)
    return POLICY_CHOICES.get(name, name)
