"""What a project keeps and shows, over the API: pinned charts, the rules of its run doctor and of retention."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from ninja import Router, Status
from ninja.errors import HttpError
from pydantic import Field

from training.doctor import RULES, DoctorOptions
from webapp.api.answers import people as people_answers
from webapp.api.answers import runs as runs_answers
from webapp.api.base import IfMatch, Tagged, caller, held, open_to, require_match
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Extended, Items
from webapp.common.strings import metric_titles
from webapp.common.text import translated
from webapp.engine import doctor
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Project, Role, TokenScope
from webapp.people.teams.sudo import Act, ask
from webapp.retention.rules import MOST, Rule, rules_change, rules_if, rules_of
from webapp.retention.services import Row, lately_freed, overview
from webapp.retention.words import evidence, freed_sentence, headline
from webapp.runs.models import Run
from webapp.runs.pins.models import PinnedChart
from webapp.runs.pins.services import chart_pin, chart_unpin, pin_view, pins_shown
from webapp.runs.removal.models import Kept
from webapp.runs.removal.selectors import rule_words

router = Router(tags=["projects"])


# The rules of a project's run doctor over the API.


class DoctorRulesPatch(Body):
    """What shall change; what is left out stays. A threshold of `null` gets its default, and `notify`
    is the default of a reaction."""

    thresholds: dict[str, float | None] = Field(default_factory=dict, max_length=100)
    reactions: dict[str, str] = Field(default_factory=dict, max_length=100, description="notify, keep or pause by code")
    resumes: bool | None = Field(None, description="whether runs go on by themselves once what paused them is over")


@router.get("/projects/{slug:slug}/doctor", response=runs_answers.DoctorRules)
def doctor_rules(request: HttpRequest, slug: str) -> Tagged:
    """When advisories open in a project, and what follows from each. `ETag` covers all of it."""
    rules = doctor.rules_of(project_for(caller(request), slug))
    return Tagged(_all_rules(rules), _tagged_rules(rules))


@router.patch("/projects/{slug:slug}/doctor", response=runs_answers.DoctorRules)
def doctor_rules_change(request: HttpRequest, slug: str, body: DoctorRulesPatch, if_match: IfMatch = None) -> Tagged:
    """Change thresholds, and what follows from advisories (owners)."""
    project = project_for(caller(request), slug, need=Role.OWNER)
    with transaction.atomic():
        held(project)  # the rules have no row while they are the defaults
        require_match(if_match, _tagged_rules(doctor.rules_of(project)))
        rules = doctor.rules_change(project=project, user=caller(request), **body.model_dump())
    return Tagged(_all_rules(rules), _tagged_rules(rules))


def _tagged_rules(rules: doctor.Rules) -> list[Any]:
    return [rules.options.model_dump(mode="json"), rules.reactions, rules.resumes]


def _all_rules(rules: doctor.Rules) -> Extended:
    """The rules with every threshold in words, and the reactions that are the default."""
    thresholds = {name: _threshold(name, getattr(rules.options, name)) for name in DoctorOptions.model_fields}
    return Extended(rules, thresholds=thresholds, reactions={code: str(rules.reaction(code)) for code in RULES})


def _threshold(name: str, value: float) -> dict[str, Any]:
    field = DoctorOptions.model_fields[name]
    unit = field.json_schema_extra.get("unit", "") if isinstance(field.json_schema_extra, dict) else ""
    return {"value": value, "default": field.default, "title": translated(field.title), "unit": translated(str(unit))}


# Charts that are pinned to a project's page, over the API.

Metric = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")]


class PinIn(Body):
    """A chart of a run."""

    key: Metric = Field(description="of the chart: a metric, `success` or `components`")
    names: list[Metric] = Field(min_length=1, max_length=32, description="the metrics that it draws")
    smooth: float = Field(0, ge=0, lt=1)
    log: bool = False
    x: Literal["step", "time", "rollouts", "tokens"] = "step"
    stack: bool = True


@router.get("/projects/{slug:slug}/pins", response=Items[runs_answers.Pin], auth=open_to(TokenScope.METRICS))
def pins(request: HttpRequest, slug: str) -> dict[str, Any]:
    """The charts that are pinned to a project's page, oldest first."""
    return {"items": pins_shown(project_for(caller(request), slug))}


@router.post("/runs/{uuid:run_id}/pins", response={201: runs_answers.Pin})
def pin(request: HttpRequest, run_id: UUID, body: PinIn) -> Status:
    """Pin a chart of a run to its project's page; pinned again it takes the new view. 409 where it has twelve."""
    within = Run.objects.select_related("project")
    run = object_for(caller(request), Run, run_id, need=Role.EDITOR, within=within)
    view = body.model_dump(include={"smooth", "log", "x", "stack"})
    try:
        made = chart_pin(run=run, key=body.key, names=body.names, view=view, user=caller(request))
    except ValidationError as exc:
        raise HttpError(409, exc.messages[0]) from exc
    return Status(201, pin_view(made, metric_titles()))


@router.delete("/pins/{uuid:pin_id}", response=Deleted)
def unpin(request: HttpRequest, pin_id: UUID) -> dict[str, str]:
    """Take a chart off its project's page."""
    within = PinnedChart.objects.select_related("project")
    found = object_for(caller(request), PinnedChart, pin_id, need=Role.EDITOR, within=within)
    chart_unpin(pin=found)
    return {"deleted": found.key}


# The rules of retention of a project over the API.


class RuleIn(Body):
    """The limits of one kind; `null` is none."""

    days: int | None = Field(None, ge=1, le=MOST, description="kept for so long after the end of its run")
    gib: int | None = Field(None, ge=1, le=MOST, description="GiB of the project at most; what ended first goes first")


class RetentionPatch(Body):
    """The rules to change, by kind; `null` gives the site's rule back, and a kind that is left out stays."""

    rules: dict[str, RuleIn | None] = Field(
        default_factory=dict, max_length=10, description="words, tokens, logs or checkpoints"
    )
    preview: bool = Field(False, description="only answer what these rules would free")


@router.get("/projects/{slug:slug}/retention", response=people_answers.Retention)
def retention_about(request: HttpRequest, slug: str) -> Tagged:
    """What the project's rules of retention free now and within 30 days. `ETag` covers the rules."""
    project = project_for(caller(request), slug)
    rules = rules_of(project)
    return _answer(project, rules)


@router.patch("/projects/{slug:slug}/retention", response=people_answers.Retention)
def retention_change(request: HttpRequest, slug: str, body: RetentionPatch, if_match: IfMatch = None) -> Tagged:
    """Change rules of retention (owners), or with `preview` only answer what they would free."""
    project = project_for(caller(request), slug, need=Role.OWNER)
    wanted = {kind: None if rule is None else rule.model_dump() for kind, rule in body.rules.items()}
    if body.preview:
        return _answer(project, rules_if(project, wanted))
    ask(request, Act.RETENTION)
    with transaction.atomic():
        held(project)  # the rules have no row while they are the site's
        require_match(if_match, _tagged_values(rules_of(project)))
        rules = rules_change(project=project, user=caller(request), rules=wanted)
    return _answer(project, rules)


def _tagged_values(rules: dict[Kept, Rule]) -> list[Any]:
    return [[kind.value, *rule] for kind, rule in rules.items()]


def _answer(project: Project, rules: dict[Kept, Rule]) -> Tagged:
    found = overview(project, rules)
    answer = {
        "headline": headline(found),
        "evidence": evidence(found),
        "freed": freed_sentence(found),
        "kinds": [_kind(row) for row in found.rows],
        "lately": [Extended(each, why=rule_words(each)) for each in lately_freed(project)],
    }
    return Tagged(answer, _tagged_values(rules))


def _kind(row: Row) -> dict[str, Any]:
    return {
        "kind": row.kind.value,
        "title": str(row.kind.label),
        **row.rule._asdict(),
        "bytes": row.bytes,
        "runs": len(row.items),
        "kept": len(row.kept),
        "now_bytes": row.forecast.now_bytes,
        "now_runs": len(row.forecast.now),
        "later_bytes": row.forecast.later_bytes,
    }
