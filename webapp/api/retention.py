"""The rules of retention of a project over the API."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from webapp.api.answers import people as people_answers
from webapp.api.base import IfMatch, Tagged, caller, held, require_match
from webapp.api.schemas import Body
from webapp.common.answers import Extended
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Project, Role
from webapp.people.teams.sudo import Act, ask
from webapp.retention.rules import MOST, Rule, rules_change, rules_if, rules_of
from webapp.retention.services import Row, lately_freed, overview
from webapp.retention.words import evidence, freed_sentence, headline
from webapp.runs.removal.models import Kept
from webapp.runs.removal.selectors import rule_words

router = Router(tags=["projects"])


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
