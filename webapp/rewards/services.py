"""Writing reward specs, and trying one on a pasted conversation."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from pydantic import ValidationError as ShapeError

from envs.wire import Message
from training.config import RewardComponent
from training.errors import TiltyardError
from training.rewards.base import Episode
from training.rewards.combining import terms_of
from training.rewards.registry import COMPONENTS
from training.rewards.scoring import score_episode, validate_components
from webapp.pages import clean_name
from webapp.rewards.models import RewardSpec
from webapp.rewards.selectors import newest_named, runs_using, title_of
from webapp.teams.models import Project, User

MAX_CONVERSATION_BYTES = 64 * 1024
MAX_MESSAGES = 200
TRY_LIMIT_S = 5.0
# Components are our own functions over a bounded text, so a thread that outlives its limit still ends by itself.
scorers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="try-reward")


def reward_spec_save(
    *, project: Project, user: User | None, name: str, components: list[RewardComponent]
) -> RewardSpec:
    """Save the next version under a name; unchanged content gives the newest one back. Raises ``ValidationError``."""
    spec = RewardSpec(project=project, name=clean_name(name), created_by=user)
    spec.components = stored_components(_checked(components))
    for last_try in (False, False, False, True):
        newest = newest_named(project, spec.name)
        if newest is not None and newest.components == spec.components:
            return newest
        spec.version = newest.version + 1 if newest else 1
        try:
            with transaction.atomic():
                spec.save(force_insert=True)
            return spec
        except IntegrityError:
            if last_try:
                raise
    raise AssertionError("unreachable")


def _checked(components: list[RewardComponent]) -> list[RewardComponent]:
    """The components if a run can score with them. Raises ``ValidationError``."""
    if not components:
        raise ValidationError(_("Switch on at least one component."))
    problems = validate_components(components)
    if problems:
        raise ValidationError([ValidationError(text) for text in problems])
    if math.isclose(sum(abs(part.weight) for part in components), 0):
        raise ValidationError(_("All weights are 0, so every reward would be 0."))
    return components


def stored_components(components: list[RewardComponent]) -> list[dict[str, Any]]:
    """Checked components as a spec holds them."""
    return [_stored(part) for part in components]


def _stored(part: RewardComponent) -> dict[str, Any]:
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
    spec.delete()


class Tried(NamedTuple):
    """The score of a pasted conversation: (title, raw value, weight, weighted) for each component, and the total."""

    parts: list[tuple[str, float, float, float]]
    total: float


def reward_try(*, components: list[RewardComponent], text: str) -> Tried:
    """Score a pasted conversation. Raises ``ValidationError`` with a sentence for whatever is wrong with it."""
    episode = _episode(text)
    try:
        score = scorers.submit(score_episode, episode, components, ask_outside=False).result(timeout=TRY_LIMIT_S)
    except FutureTimeout as exc:
        raise ValidationError(_("Scoring took longer than %(s)g seconds.") % {"s": TRY_LIMIT_S}) from exc
    except TiltyardError as exc:
        raise ValidationError(exc.message) from exc
    terms = terms_of(score.parts, components)
    parts = [
        (title_of(part), score.parts[part.name], part.weight, part.weight * terms[part.name])
        for part in components
        if part.name in score.parts
    ]
    return Tried(parts, score.total)


def _episode(text: str) -> Episode:
    """A pasted list of messages as a finished episode: the prompt is what stands before the first model turn."""
    if len(text.encode("utf-8", "replace")) > MAX_CONVERSATION_BYTES:
        raise ValidationError(_("A conversation to try may have at most 64 KB."))
    try:
        raw = json.loads(text)
    except RecursionError as exc:
        raise ValidationError(_("The conversation is nested too deeply.")) from exc
    except ValueError as exc:
        where = f" ({exc.msg}, {_('line')} {exc.lineno})" if isinstance(exc, json.JSONDecodeError) else ""
        raise ValidationError(_("This is not valid JSON") + where + ".") from exc
    return conversation_of(raw)


def conversation_of(raw: Any) -> Episode:
    """A conversation, or an object with one and the environment's reward, as a finished episode."""
    env_reward = None
    if isinstance(raw, dict):
        env_reward = raw.get("env_reward")
        raw = raw.get("messages")
    if not isinstance(raw, list) or not raw:
        raise ValidationError(_("Paste a list of messages, each with role and content."))
    if len(raw) > MAX_MESSAGES:
        raise ValidationError(
            ngettext("At most %(n)s message.", "At most %(n)s messages.", MAX_MESSAGES) % {"n": MAX_MESSAGES}
        )
    if env_reward is not None and (isinstance(env_reward, bool) or not isinstance(env_reward, (int, float))):
        raise ValidationError(_("`env_reward` must be a number."))
    found = [_message(item, number) for number, item in enumerate(raw, start=1)]
    prompt = next((index for index, message in enumerate(found) if message.role == "assistant"), len(found))
    return Episode(messages=found, prompt_length=prompt, env_reward=env_reward)


def _message(item: Any, number: int) -> Message:
    """One message in our spelling or in OpenAI's (``function`` with JSON arguments inside a call)."""
    sentence = _("Message %(number)s has not the shape of a chat message.") % {"number": number}
    if not isinstance(item, dict):
        raise ValidationError(sentence)
    item = {**item, "content": item.get("content") or ""}
    try:
        if item.get("tool_calls"):
            item["tool_calls"] = [_call(call, index) for index, call in enumerate(item["tool_calls"])]
        return Message.model_validate(item)
    except (ShapeError, TypeError, ValueError, AttributeError, RecursionError) as exc:
        raise ValidationError(sentence) from exc


def _call(call: dict[str, Any], index: int) -> dict[str, Any]:
    inner = call.get("function") or call
    arguments = inner.get("arguments") or {}
    return {
        "id": str(call.get("id") or f"call_{index}"),
        "name": inner.get("name"),
        "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments,
    }
