"""Resolves a job's config at launch: references become plain values.

A person names registered objects (``dataset:<name>@<version>``, ``model:<name>``, ``run:<name>``,
``endpoint:<name>``, ``environment:<name>``, ``reward:<name>@<version>``); the trainer gets paths, addresses and
components. Anything else a person could type (a folder, a URL) is refused here. Every ``ConfigError`` names the option
it belongs to, so that a form can place it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from django.conf import settings
from django.utils.translation import gettext as _

from training.config import (
    CurriculumConfig,
    EnvironmentConfig,
    JobConfig,
    Laid,
    MixConfig,
    Reference,
    RewardComponent,
    kind_in,
    name_in,
)
from training.errors import ConfigError, TiltyardError
from training.plain import number_in
from training.rewards.defaults import with_rewards
from webapp.common import objects
from webapp.common.storage import rewind_file
from webapp.datasets.models import Dataset, DatasetState
from webapp.endpoints.models import Endpoint
from webapp.endpoints.services import asked_with
from webapp.environments.models import Environment
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec
from webapp.rewards.services import custom_refusal, with_hashes
from webapp.runs.models import Run
from webapp.runs.records.sessions import sessions_asked, sessions_text
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

# A run without an environment names ``none``, so that a forgotten choice is not taken for it.
NO_ENVIRONMENT = "none"
L = TypeVar("L", bound=Laid)
MAX_CHAIN = 8  # runs that each begin with the model of the one before
# https://huggingface.co/docs/hub: one optional namespace, no leading or doubled dots and dashes.
HUB_ID = re.compile(r"^(?:[A-Za-z0-9][\w-]{0,95}/)?[A-Za-z0-9](?:[\w]|[.-](?![.-])){0,95}$")


@dataclass(frozen=True)
class Resolved:
    """The config the trainer gets, the run whose final model it must wait for, what simple policies reach, and the
    version of the environment's server."""

    config: JobConfig
    after: Run | None = None
    baselines: list[dict[str, Any]] = field(default_factory=list)
    environment_version: str = ""


def resolve(project: Project, config: JobConfig, *, launched: bool = False) -> Resolved:
    """Replace every reference of ``config`` by what it means now in ``project``.

    ``launched``: the run that it belongs to was launched without components, by a version that paid such runs for form
    alone; it keeps what it began with.
    """
    plain = config.model_copy(deep=True)
    after = _resolve_model(project, plain) if plain.needs_model else None
    _resolve_endpoint(project, plain)
    if not (plain.draws_tasks or (not plain.data.train and _each_has(config, "data", "train"))):
        plain.data.train = _resolve_dataset(project, plain.data.train)
    if plain.evaluate.data and plain.method.learns_from == "rollouts":
        plain.evaluate.data = _resolve_dataset(project, plain.evaluate.data, "evaluate.data")
    _resolve_continue_from(project, plain)
    if not plain.method.plays:
        return Resolved(plain, after)
    unused = not plain.environment.name and _each_has(config, "environment", "name")
    environment = None if unused else _resolve_environment(project, plain)
    if plain.draws_tasks and plain.environment.protocol != "openenv":
        _refuse("data.train", _("choose a dataset: this environment does not draw tasks by itself."))
    _resolve_rewards(project, plain)
    if config.stages:
        plain.curriculum = CurriculumConfig(
            stages=_resolve_parts(project, config, plain, config.stages, "curriculum.stages")
        )
    if config.mix.parts:
        plain.mix = MixConfig(parts=_resolve_parts(project, config, plain, config.mix.parts, "mix.parts"))
    if not (config.rewards.spec or config.rewards.components or launched):
        plain.rewards.components = []
        plain = with_rewards(plain)
    if environment is None or config.mix.parts:  # what simple policies reach differs from part to part
        return Resolved(plain, after)
    return Resolved(plain, after, environment.baselines(), environment.version)


def sessions_of(project: Project, config: JobConfig, resolved: JobConfig) -> str:
    """The sessions that a job plays at once, by environment, as its run's row has them."""
    asked = {name_in("environment", name): count for name, count in sessions_asked(config, resolved).items()}
    rows = Environment.objects.filter(project=project, name__in=asked).values_list("pk", "name") if asked else ()
    return sessions_text({pk: asked[name] for pk, name in rows})


def launched_without_rewards(run: Run) -> bool:
    """Whether it was launched, and is scored, without components: by a version that paid such runs for form alone."""
    return bool(run.resolved) and not run.resolved.get("rewards", {}).get("components")


def _each_has(config: JobConfig, group: str, option: str) -> bool:
    """Whether every part of a mix has an option of its own, so that the run need not have it."""
    return bool(config.mix.parts) and all(getattr(part, group).get(option) for part in config.mix.parts)


def _resolve_continue_from(project: Project, config: JobConfig) -> None:
    """The file of the recorded turns that an evaluation continues from; no other kind of job reads the option."""
    option = "evaluate.continue_from"
    if not config.method.evaluates:
        config.evaluate.continue_from = ""
    if not config.evaluate.continue_from:
        return
    rollout_id, _at, turn = name_in("rollout", config.evaluate.continue_from).partition("@")
    try:
        found = Rollout.objects.filter(pk=UUID(rollout_id), run__project=project).only("run_id").first()
        file = rewind_file(found.run_id, found.pk, int(turn)) if found is not None else None
    except ValueError:
        file = None
    if file is None or not here(file).is_file():
        _refuse(option, _("this rollout is gone, or no branch continues from this turn: start one on its page."))
    config.evaluate.continue_from = str(file)


def base_meant(project: Project, config: JobConfig) -> str:
    """The folder or the Hugging Face id of a config's base model, or ``starter``. A run that still trains has the shape
    of what it began with. Raises ``ConfigError``."""
    plain = config.model_copy(deep=True)
    for _link in range(MAX_CHAIN):
        run = _resolve_model(project, plain)
        if run is None or kind_in(plain.model.source) != "run":
            break
        plain.model.source = str(run.config.get("model", {}).get("source") or "")
    return plain.model.source


def here(path: Path) -> Path:
    """The path, once it was fetched. On a host whose data folder is a cache it raises the errors of ``objects``; the
    site itself fetches what its clock has not copied yet, and may return a path where nothing is."""
    if objects.is_cache():
        return objects.fetch(path)
    if objects.enabled() and not path.exists():
        with suppress(TiltyardError):
            objects.fetch(path)
    return path


def _refuse(option: str, sentence: str) -> NoReturn:
    raise ConfigError(sentence, option=option)


def _name_and_version(option: str, text: str) -> tuple[str, int | None]:
    name, at, version = text.partition("@")
    number = number_in(version, 8)
    if at and number is None:
        _refuse(option, _("“%s” is not a version number.") % version[:40])
    return name, number


def _resolve_dataset(project: Project, reference: str, option: str = "data.train") -> str:
    if not reference:
        _refuse(option, _("choose a dataset."))
    asked = Reference.parse(reference)
    if asked is None or asked.kind != "dataset":
        _refuse(option, _("choose a registered dataset; paths are not taken here."))
    name, version = _name_and_version(option, asked.name)
    rows = Dataset.objects.filter(project=project, name=name)
    rows = rows.filter(version=version) if version is not None else rows.filter(state=DatasetState.READY)
    found = rows.order_by("-version").first()
    if found is None:
        _refuse(option, _("there is no dataset “%s” in this project.") % asked.name[:120])
    if found.state != DatasetState.READY:
        _refuse(
            option,
            _("dataset “%(name)s” is not ready: %(state)s.")
            % {"name": str(found), "state": DatasetState(found.state).label},
        )
    return str(here(found.rows_path))


def _resolve_model(project: Project, config: JobConfig) -> Run | None:
    option, source = "model.source", config.model.source
    if source == "starter":
        return None
    if config.names_endpoint:
        _refuse(option, _("an endpoint can be evaluated and sampled, not trained."))
    asked = Reference.parse(source)
    if asked is not None and asked.kind == "run":
        return _model_of_run(project, config, asked.name)
    if asked is not None and asked.kind == "model":
        name = asked.name
        found = RegisteredModel.objects.filter(project=project, name=name).select_related("checkpoint").first()
        if found is None:
            _refuse(option, _("there is no model “%s” in this project.") % name[:120])
        config.model.source, revision = _source_and_revision(option, found)
        config.model.revision = revision or config.model.revision
        return None
    # A name that is a folder in the trainer's working folder would be read as one, so it is not a Hugging Face id here.
    if not HUB_ID.match(source) or (Path(settings.BASE_DIR) / source).exists():
        _refuse(option, _("choose a registered model, `starter` or a Hugging Face id; paths are not taken here."))
    return None


def _resolve_endpoint(project: Project, config: JobConfig) -> None:
    """Put an endpoint of the project into the config instead of a model; of two limits the lower one counts."""
    place = config.endpoint
    if not (config.asks_endpoint and config.names_endpoint):
        config.endpoint = place.model_copy(update={"name": "", "currency": ""})
        return
    if place.url:
        _refuse("endpoint.url", _("an endpoint of the project is chosen as the model: leave the address empty."))
    name = name_in("endpoint", config.model.source)
    found = Endpoint.objects.filter(project=project, name=name).first()
    if found is None:
        _refuse("model.source", _("there is no endpoint “%s” in this project.") % name[:120])
    if place.max_cost and not found.priced:
        _refuse("endpoint.max_cost", _("a limit on cost needs prices, and endpoint “%s” has none.") % found.name)
    values = asked_with(found)
    for limit in ("max_tokens", "max_cost"):
        values[limit] = min((value for value in (values[limit], getattr(place, limit)) if value), default=0)
    config.endpoint = place.model_copy(update=values)


def _source_and_revision(option: str, model: RegisteredModel) -> tuple[str, str]:
    if model.kind == ModelKind.STARTER:
        return "starter", ""
    if model.kind == ModelKind.HUB:
        return model.source, model.revision
    folder = model.folder
    if folder is not None and model.kind == ModelKind.RUN:
        here(folder)
    if folder is None or not folder.is_dir():
        _refuse(option, _("the files of model “%s” are gone.") % model.name)
    return str(folder), ""


def _model_of_run(project: Project, config: JobConfig, name: str) -> Run | None:
    option = "model.source"
    run = Run.objects.filter(project=project, name=name).first()
    if run is None:
        _refuse(option, _("there is no run “%s” in this project.") % name[:120])
    if not run.method.trains:
        _refuse(option, _("run “%s” only sampled, so it has no model.") % run.name)
    if run.state in {RunState.FAILED, RunState.CANCELLED}:
        _refuse(option, _("run “%s” did not succeed, so it has no final model.") % run.name)
    if run.state != RunState.SUCCEEDED:
        return run
    final = Checkpoint.objects.filter(run=run, final=True).order_by("-attempt", "-step").first()
    if final is None or not here(final.folder).is_dir():
        _refuse(option, _("the final model of run “%s” is gone.") % run.name)
    config.model.source = str(final.folder)
    return run


def _resolve_environment(project: Project, config: JobConfig) -> Environment | None:
    option, reference = "environment.name", config.environment.name
    if reference == NO_ENVIRONMENT:
        config.environment = EnvironmentConfig()
        return None
    if not reference:
        _refuse(option, _("choose an environment, or `none`."))
    asked = Reference.parse(reference)
    if asked is None or asked.kind != "environment":
        _refuse(option, _("choose a registered environment; register its server first."))
    found = Environment.objects.filter(project=project, name=asked.name).first()
    if found is None:
        _refuse(option, _("there is no environment “%s” in this project.") % asked.name[:120])
    # Every registered value replaces that of the config: an address that was only typed was never checked.
    config.environment = config.environment.model_copy(update=found.job_values())
    return found


def components_meant(project: Project, config: JobConfig) -> list[RewardComponent]:
    """The reward components that a config means now: its spec's, its own, or form alone. Raises ``ConfigError``."""
    option, reference = "rewards.spec", config.rewards.spec
    if not reference:
        from training.rewards.scoring import form_components

        return config.rewards.components or form_components()
    asked = Reference.parse(reference)
    if asked is None or asked.kind != "reward":
        _refuse(option, _("choose a registered reward spec."))
    name, version = _name_and_version(option, asked.name)
    rows = RewardSpec.objects.filter(project=project, name=name)
    found = (rows.filter(version=version) if version is not None else rows).order_by("-version").first()
    if found is None:
        _refuse(option, _("there is no reward spec “%s” in this project.") % name[:120])
    return [RewardComponent.model_validate(item) for item in found.components]


def _resolve_rewards(project: Project, config: JobConfig) -> None:
    option = "rewards.spec" if config.rewards.spec else "rewards.components"
    components = components_meant(project, config)
    if refusal := custom_refusal(project, components):
        _refuse(option, refusal)
    config.rewards.spec, config.rewards.components = "", with_hashes(components)


def environments_of(config: JobConfig) -> list[str]:
    """The environments that the job, and each of its stages or parts, names."""
    return list(dict.fromkeys(each.environment.name for each in [config, *config.courses]))


def _resolve_parts(project: Project, config: JobConfig, plain: JobConfig, parts: Sequence[L], place: str) -> list[L]:
    """The stages or the parts of a mix at ``place`` of the config, with each name replaced by what it resolves to:
    the options that one of them sets itself are complete afterwards."""
    found = []
    for number, (part, course) in enumerate(zip(parts, config.courses, strict=True)):
        try:
            found.append(_resolve_part(project, part, course, plain))
        except ConfigError as exc:
            raise ConfigError(exc.sentence, option=f"{place}.{number}.{exc.option}", hint=exc.hint) from exc
    return found


def _resolve_part(project: Project, part: L, course: JobConfig, plain: JobConfig) -> L:
    found = part.model_copy(deep=True)
    own = found.options
    if "train" in own.get("data", {}):
        own["data"]["train"] = _resolve_dataset(project, course.data.train)
    if "environment" in own:
        _resolve_environment(project, course)
        run, values = (each.environment.model_dump(mode="json") for each in (plain, course))
        own["environment"] = {name: value for name, value in values.items() if value != run[name]}
    if own.get("rewards", {}).keys() & {"spec", "components"}:
        _resolve_rewards(project, course)
        parts = [part.model_dump(mode="json", exclude_defaults=True) for part in course.rewards.components]
        own["rewards"] |= {"spec": "", "components": parts}
    return found.model_copy(update=own)


def model_meant(project: Project, source: str) -> tuple[str, str]:
    """The folder or Hugging Face id that a source means now, and its revision. Raises ``ConfigError``."""
    config = JobConfig.model_validate({"model": {"source": source}})
    if (run := _resolve_model(project, config)) is not None and run.state != RunState.SUCCEEDED:
        _refuse("model.source", _("run “%s” has not ended, so it has no final model yet.") % run.name)
    return config.model.source, config.model.revision


def dataset_path(project: Project, reference: str) -> Path:
    """The rows that a reference means now. Raises ``ConfigError``."""
    return Path(_resolve_dataset(project, reference))
