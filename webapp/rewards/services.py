"""Writing reward specs, and trying one on a pasted conversation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from training.config import RewardComponent
from training.data import categories_of
from training.errors import RewardFault, ScorerDied
from training.rewards.combining import counts_for, terms_of
from training.rewards.custom import CUSTOM, CustomParams, code_hash
from training.rewards.scorer.wire import Asked
from training.rewards.scoring import COMPONENTS, summed, validate_components
from webapp.common.pages import clean_name
from webapp.common.text import in_words
from webapp.people.teams.audit import audit, was_done
from webapp.people.teams.models import AuditAction, Project, User
from webapp.people.teams.services import custom_rewards_on
from webapp.rewards.models import RewardSpec
from webapp.rewards.pasted import pasted_episode
from webapp.rewards.scorers import scorers
from webapp.rewards.selectors import newest_named, runs_using
from webapp.runs.config import title_of

# --- Permission -----------------------------------------------------------------------------------------------------
# Whether a list of components may be saved or launched with the custom code in it.
#
# Two things are asked each time: custom rewards are on, and this very code was tested in this project without an error.
# The test leaves a row in the audit with the hash of the code; that row is the proof.


def custom_refusal(project: Project, components: Sequence[RewardComponent]) -> str:
    """Why these components may not be used; empty where they may."""
    parts = [part for part in components if part.registered == CUSTOM]
    if parts and not custom_rewards_on():
        sentence = _("“%(name)s” is custom Python, and custom rewards are off here; an administrator switches them on.")
        return sentence % {"name": parts[0].name}
    for part in parts:
        if not was_done(AuditAction.CODE_TESTED, project, code_hash(str(part.params.get("code", "")))):
            sentence = _("The code of “%(name)s” has not been tested in this project: test it on rollouts first.")
            return sentence % {"name": part.name}
    return ""


def with_hashes(components: Sequence[RewardComponent]) -> list[RewardComponent]:
    """The same components, each custom one with the hash of its code."""
    return [_with_hash(part) if part.registered == CUSTOM else part for part in components]


def _with_hash(part: RewardComponent) -> RewardComponent:
    try:
        found = CustomParams.model_validate(part.params).sha256
    except ShapeError:
        return part  # the check of the whole list says what is wrong with it
    return part.model_copy(update={"params": {**part.params, "sha256": found}})


TRY_LIMIT_S = 5.0


def reward_spec_save(
    *, project: Project, user: User | None, name: str, components: list[RewardComponent]
) -> RewardSpec:
    """Save the next version under a name; unchanged content returns the newest one. Raises ``ValidationError``."""
    spec = RewardSpec(project=project, name=clean_name(name), created_by=user)
    spec.components = stored_components(_checked_components(project, components))
    for last_try in (False, False, False, True):
        newest = newest_named(project, spec.name)
        if newest is not None and newest.components == spec.components:
            return newest
        spec.version = newest.version + 1 if newest else 1
        try:
            with transaction.atomic():
                spec.save(force_insert=True)
                audit(AuditAction.REWARD_SAVED, spec, by=user)
            return spec
        except IntegrityError:
            if last_try:
                raise
    raise AssertionError("unreachable")


def _checked_components(project: Project, components: list[RewardComponent]) -> list[RewardComponent]:
    """The components if a run can score with them. Raises ``ValidationError``."""
    if not components:
        raise ValidationError(_("Switch on at least one component."))
    problems = validate_components(components)
    if problems:
        raise ValidationError([ValidationError(in_words(text)) for text in problems])
    if math.isclose(sum(abs(part.weight) for part in components), 0):
        raise ValidationError(_("All weights are 0, so every reward would be 0."))
    if refusal := custom_refusal(project, components):
        raise ValidationError(refusal)
    return components


def stored_components(components: list[RewardComponent]) -> list[dict[str, Any]]:
    """Checked components as a spec holds them."""
    return [_stored_component(part) for part in components]


def _stored_component(part: RewardComponent) -> dict[str, Any]:
    """A component as it is stored: only what differs from its defaults, so equal specs look equal."""
    model = COMPONENTS[part.registered].params
    params = model.model_validate(part.params).model_dump(mode="json", exclude_defaults=True)
    defaults = model().model_dump(mode="json")
    return {
        "name": part.name,
        "weight": part.weight,
        "params": {key: value for key, value in params.items() if value != defaults.get(key)},
        **part.model_dump(mode="json", exclude_defaults=True, exclude={"name", "weight", "params"}),
    }


def reward_spec_delete(*, spec: RewardSpec) -> None:
    """Delete one version. Refused while a run that has not ended uses it."""
    names = list(runs_using(spec, active=True).values_list("name", flat=True)[:3])
    if names:
        raise ValidationError(
            _("It is used by a run that has not ended: %(runs)s.") % {"runs": ", ".join(names)}, code="conflict"
        )
    with transaction.atomic():
        audit(AuditAction.REWARD_DELETED, spec)
        spec.delete()


class TriedPart(NamedTuple):
    """A component's score of a pasted conversation: its value as it was found, and that times the weight."""

    title: str
    value: float
    weight: float
    weighted: float


class Tried(NamedTuple):
    """The score of a pasted conversation: of each component, and the total."""

    parts: list[TriedPart]
    total: float


def reward_try(*, user: User, components: list[RewardComponent], text: str) -> Tried:
    """Score a pasted conversation. Raises ``ValidationError`` with a sentence for each fault of it,
    ``ScorerDied`` where the process that scored it did, and ``TooMany``."""
    episode = pasted_episode(text)
    counted = [part for part in components if counts_for(part, categories_of(episode.row))]
    (by_name,) = scorers.ask(user.pk, [Asked(episode=episode, components=counted)], TRY_LIMIT_S)
    values: dict[str, float] = {}
    for part in counted:
        answer = by_name[part.name]
        if answer.value is None:
            if answer.code == ScorerDied.code:
                raise ScorerDied(in_words(answer.why))
            raise ValidationError(in_words(answer.why))
        values[part.name] = answer.value
    try:
        score = summed(values, components)
    except RewardFault as exc:
        raise ValidationError(in_words(exc.message)) from exc
    terms = terms_of(score.parts, components)
    parts = [
        TriedPart(title_of(part), values[part.name], part.weight, part.weight * terms[part.name]) for part in counted
    ]
    return Tried(parts, score.total)
