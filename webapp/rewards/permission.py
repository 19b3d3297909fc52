"""Whether a list of components may be saved or launched with the custom code in it.

Two things are asked each time: custom rewards are on, and this very code was tested in this project without an error.
The test leaves a row in the audit with the hash of the code; that row is the proof.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from training.config import RewardComponent
from training.rewards.custom import CUSTOM
from training.rewards.custom.params import CustomParams, code_hash
from webapp.people.teams.audit import was_done
from webapp.people.teams.models import AuditAction, Project
from webapp.people.teams.switches import custom_rewards_on


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
