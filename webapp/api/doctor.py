"""The rules of a project's run doctor over the API."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from training.doctor import RULES, DoctorOptions
from webapp.api.answers import runs as runs_answers
from webapp.api.base import IfMatch, Tagged, caller, held, require_match
from webapp.api.schemas import Body
from webapp.common.answers import Extended
from webapp.common.text import translated
from webapp.engine.doctor import Rules, rules_change, rules_of
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Role

router = Router(tags=["projects"])


class DoctorRulesPatch(Body):
    """What shall change; what is left out stays. A threshold of `null` gets its default, and `notify`
    is the default of a reaction."""

    thresholds: dict[str, float | None] = Field(default_factory=dict, max_length=100)
    reactions: dict[str, str] = Field(default_factory=dict, max_length=100, description="notify, keep or pause by code")
    resumes: bool | None = Field(None, description="whether runs go on by themselves once what paused them is over")


@router.get("/projects/{slug:slug}/doctor", response=runs_answers.DoctorRules)
def doctor_rules(request: HttpRequest, slug: str) -> Tagged:
    """When advisories open in a project, and what follows from each. `ETag` covers all of it."""
    rules = rules_of(project_for(caller(request), slug))
    return Tagged(_all_rules(rules), _tagged_values(rules))


@router.patch("/projects/{slug:slug}/doctor", response=runs_answers.DoctorRules)
def doctor_rules_change(request: HttpRequest, slug: str, body: DoctorRulesPatch, if_match: IfMatch = None) -> Tagged:
    """Change thresholds, and what follows from advisories (owners)."""
    project = project_for(caller(request), slug, need=Role.OWNER)
    with transaction.atomic():
        held(project)  # the rules have no row while they are the defaults
        require_match(if_match, _tagged_values(rules_of(project)))
        rules = rules_change(project=project, user=caller(request), **body.model_dump())
    return Tagged(_all_rules(rules), _tagged_values(rules))


def _tagged_values(rules: Rules) -> list[Any]:
    return [rules.options.model_dump(mode="json"), rules.reactions, rules.resumes]


def _all_rules(rules: Rules) -> Extended:
    """The rules with every threshold in words, and the reactions that are the default."""
    thresholds = {name: _threshold(name, getattr(rules.options, name)) for name in DoctorOptions.model_fields}
    return Extended(rules, thresholds=thresholds, reactions={code: str(rules.reaction(code)) for code in RULES})


def _threshold(name: str, value: float) -> dict[str, Any]:
    field = DoctorOptions.model_fields[name]
    unit = field.json_schema_extra.get("unit", "") if isinstance(field.json_schema_extra, dict) else ""
    return {"value": value, "default": field.default, "title": translated(field.title), "unit": translated(str(unit))}
