"""Suites: who can play one, writing them, and having a contestant play one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Max, Model
from django.urls import reverse
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from training.config import EndpointConfig, JobConfig, ModelConfig
from training.config.job import Reference, ReferenceKind, name_in
from training.config.rollout import POLICY_CHOICES
from training.errors import ConfigError
from webapp.common.pages import clean_name
from webapp.common.text import in_words, translated
from webapp.endpoints.models import Endpoint
from webapp.engine.resolve import resolve
from webapp.engine.services import run_create
from webapp.environments.models import Environment
from webapp.evaluation.suites.models import Suite, SuiteEvaluation, SuiteRun, SuiteVersion
from webapp.launch.forms import model_choices, suggested_name
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel

# --- Contestants -----------------------------------------------------------------------------------------------------
# Who can play a suite, by one reference each: a model, the model of a run, an endpoint, a scripted policy.

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


# --- Writing --------------------------------------------------------------------------------------------------------

MOST_PARTS = 12
Part = dict[str, Any]


def suite_create(
    *, project: Project, user: User | None, name: str, parts: Sequence[Part], note: str = ""
) -> SuiteVersion:
    """A suite with its first version. Raises ``ValidationError`` by field."""
    suite = Suite(project=project, name=clean_name(name), note=note.strip()[:500], created_by=user)
    try:
        with transaction.atomic():
            suite.save(force_insert=True)
            version = _create_version(suite, 1, parts, user)
            audit(AuditAction.SUITE_SAVED, suite, by=user)
    except IntegrityError as exc:
        raise ValidationError({"name": _("A suite with this name exists already.")}) from exc
    return version


def suite_change(
    *, suite: Suite, user: User | None, parts: Sequence[Part], note: str | None = None
) -> tuple[SuiteVersion, bool]:
    """The suite's newest version and whether it is new: parts that are the same make none."""
    with transaction.atomic():
        Suite.objects.select_for_update().get(pk=suite.pk)  # two changes at once must not take the same number
        if note is not None:
            suite.note = note.strip()[:500]
            suite.save(update_fields=["note"])
        newest = suite.versions.order_by("-number").first()
        checked = [_storable_part(part) for part in _checked_parts(parts)]
        if newest is not None and [_played_identity(part) for part in newest.parts] == [
            _played_identity(part) for part in checked
        ]:
            return newest, False
        number = (suite.versions.aggregate(Max("number"))["number__max"] or 0) + 1
        version = _create_version(suite, number, parts, user)
        audit(AuditAction.SUITE_SAVED, suite, by=user)
    return version, True


def suite_delete(*, suite: Suite) -> None:
    """Delete a suite and the list of runs that played it; the runs stay."""
    with transaction.atomic():
        audit(AuditAction.SUITE_DELETED, suite)
        suite.delete()


def suite_evaluate(*, version: SuiteVersion, contestant: str, user: User | None) -> SuiteEvaluation:
    """Have a contestant play every part: one run each, queued together or not at all. Raises ``ConfigError``."""
    suite = version.suite
    environments = environments_of_parts(suite.project, version.parts)
    with transaction.atomic():
        evaluation = SuiteEvaluation.objects.create(
            version=version, contestant=contestant[:200], environments=environments, created_by=user
        )
        for place, part in enumerate(version.parts):
            config = with_contestant(JobConfig.model_validate(part["config"]), contestant)
            name = suggested_name(suite.project, config, stem=_run_name(version, contestant, part))
            run = run_create(project=suite.project, user=user, name=name, config=config)
            SuiteRun.objects.create(evaluation=evaluation, part=place, run=run)
    return evaluation


def _run_name(version: SuiteVersion, contestant: str, part: Part) -> str:
    words = [version.suite.name, contestant.rpartition(":")[2], part["title"]]
    text = "-".join("".join(c if c.isalnum() or c in "_.()+-" else "-" for c in word) for word in words if word)
    return text[:70].strip("-._ ") or "evaluation"


def _create_version(suite: Suite, number: int, parts: Sequence[Part], user: User | None) -> SuiteVersion:
    checked = [_storable_part(part) for part in _checked_parts(parts)]
    for place, part in enumerate(checked):
        _require_there(suite.project, place, part)
    servers = environments_of_parts(suite.project, checked)
    kept = [part | {"environment": server} for part, server in zip(checked, servers, strict=True)]
    return SuiteVersion.objects.create(suite=suite, number=number, parts=kept, created_by=user)


def _checked_parts(parts: Sequence[Part]) -> Sequence[Part]:
    if not 1 <= len(parts) <= MOST_PARTS:
        raise ValidationError(_("A suite has 1 to %(n)d parts.") % {"n": MOST_PARTS})
    if sum(float(part["weight"]) for part in parts) <= 0:
        raise ValidationError(_("Give at least one part a weight above 0."))
    titles = [part["title"] for part in parts]
    if len(set(titles)) < len(titles):
        raise ValidationError(_("Two parts have the same title."))
    return parts


def _storable_part(part: Part) -> Part:
    """A part as it is stored: its config complete, of kind `evaluate`, without its player."""
    try:
        config = JobConfig.model_validate(part["config"] | {"kind": "evaluate"})
    except ShapeError as exc:
        first = exc.errors(include_url=False)[0]
        raise ValidationError(f"{part['title']}: {first['msg']}") from exc
    plain = with_contestant(config, "starter").model_dump(mode="json")
    return {"title": part["title"], "weight": float(part["weight"]), "config": plain}


def _require_there(project: Project, place: int, part: Part) -> None:
    """Raises ``ValidationError`` where the part names data, an environment or a spec that the project does not have:
    no contestant could play it."""
    try:
        resolve(project, JobConfig.model_validate(part["config"]))
    except ConfigError as exc:
        told = f"{part['title']}: {in_words(exc.sentence)}"
        raise ValidationError({f"parts.{place}.config.{exc.option}": told}) from exc


def _played_identity(part: Part) -> tuple[Any, ...]:
    return part["title"], part["weight"], part["config"]


def environments_of_parts(project: Project, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """What the server of each part's environment reports of itself now: its name, version and tasks; empty where
    that is not known."""
    names = [name_in("environment", str(part["config"].get("environment", {}).get("name", ""))) for part in parts]
    found = {item.name: item for item in Environment.objects.filter(project=project, name__in=names)}
    told = []
    for name in names:
        health = found[name].health if name in found else {}
        told.append({key: health[key] for key in ("name", "version", "tasks") if health.get(key) is not None})
    return told
