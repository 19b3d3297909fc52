"""The figures of a test-bed: the reward that each scripted policy earned, and the best that the spec can give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from training.config import RewardComponent, SampleConfig
from training.rewards.combining import term_of
from training.rewards.lab import RIGHT, SILENT
from training.rewards.registry import COMPONENTS
from webapp.runs.config import config_of, title_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus

MAX_ROLLOUTS = 20_000
PAYS, TEMPTS = 0.5, 0.1  # shares of the best reward


class PolicyRow(NamedTuple):
    """One policy: means over its scored rollouts, ``None`` where there is none.

    ``share`` is its reward as a percentage of the scale, from 0 to 100; ``level`` is "bad" where nothing was done and
    much was paid, "warn" where something was, "refused" where a right answer earned little, else "ok" or "none".
    """

    name: str
    meaning: str
    reward: float | None
    parts: list[tuple[str, float | None]]
    turns: float | None
    tokens: float | None
    rollouts: int
    excluded: int
    share: int
    level: str


class PolicyTable(NamedTuple):
    """The table; ``best`` is ``None`` where it is not known, and ``why`` says why.

    ``paid`` did not do the task and earned much; ``refused`` gave the right answer and earned little.
    """

    rows: list[PolicyRow]
    components: list[tuple[str, str]]
    best: float | None
    why: str
    paid: list[str]
    refused: list[str]


def policy_table(run: Run) -> PolicyTable | None:
    """The table of a run that scripted policies play; ``None`` for any other run."""
    config = config_of(run) if run.method.scripted else None
    if config is None or not config.policies:
        return None
    components = config.rewards.components
    best, why = best_reward(components)
    found = _newest_policy_rows(run)
    means = {name: _known_mean(row["reward"] for row in found if row["policy"] == name) for name in config.policies}
    top = best if best else max((value for value in means.values() if value is not None), default=0.0)
    rows = [
        _policy_row(name, [row for row in found if row["policy"] == name], components, best, top)
        for name in config.policies
    ]
    rows.sort(key=lambda row: -math.inf if row.reward is None else row.reward, reverse=True)
    paid = [row.name for row in rows if row.level == "bad"]
    refused = [row.name for row in rows if row.level == "refused"]
    return PolicyTable(rows, [(item.name, title_of(item)) for item in components], best, why, paid, refused)


def _newest_policy_rows(run: Run) -> list[dict[str, Any]]:
    """The rollouts of policies, of each step those of its newest attempt."""
    rows = Rollout.objects.filter(run=run).exclude(policy="").order_by("-attempt", "-step")
    fields = ("policy", "attempt", "step", "status", "reward", "parts", "turns", "tokens")
    found = list(rows.values(*fields)[:MAX_ROLLOUTS])
    newest: dict[int, int] = {}
    for row in found:
        newest[row["step"]] = max(row["attempt"], newest.get(row["step"], 0))
    return [row for row in found if row["attempt"] == newest[row["step"]]]


def _policy_row(
    name: str, found: Sequence[dict[str, Any]], components: Sequence[RewardComponent], best: float | None, top: float
) -> PolicyRow:
    scored = [row for row in found if row["reward"] is not None]
    reward = _known_mean(row["reward"] for row in scored)
    tokens = _known_mean(row["tokens"] for row in scored)
    share = 0.0 if reward is None or top <= 0 else max(0.0, min(1.0, reward / top))
    return PolicyRow(
        name,
        _(_policy_titles().get(name, name)),
        reward,
        [(item.name, _known_mean(row["parts"].get(item.name) for row in scored)) for item in components],
        _known_mean(row["turns"] for row in scored),
        tokens,
        len(found),
        sum(row["status"] == RolloutStatus.EXCLUDED for row in found),
        round(100 * share),
        _right_level(reward, best, tokens) if name in RIGHT else _pay_level(reward, best),
    )


def _pay_level(reward: float | None, best: float | None) -> str:
    """A level for the reward of a policy that did nothing, relative to the best, or else to 1 (a solved task)."""
    if reward is None:
        return "none"
    share = reward / (best or 1.0)
    return "bad" if share >= PAYS else "warn" if share >= TEMPTS else "ok"


def _right_level(reward: float | None, best: float | None, tokens: float | None) -> str:
    """Of a policy that gives the right answer: it should be paid, where it had an answer to give."""
    if reward is None or tokens is None or tokens <= max(SILENT):
        return "none"
    return "ok" if reward >= PAYS * (best or 1.0) else "refused"


def _policy_titles() -> dict[str, str]:
    extra = SampleConfig.model_fields["policies"].json_schema_extra
    return dict(extra["choices"]) if isinstance(extra, dict) and isinstance(extra["choices"], dict) else {}  # type: ignore[arg-type]


def _known_mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None


def best_reward(components: Sequence[RewardComponent]) -> tuple[float | None, str]:
    """The highest reward that a spec can give, by the bounds of its components, and else why it is not known."""
    total = 0.0
    for item in components:
        known = COMPONENTS.get(item.registered)
        if item.weight == 0:
            continue
        plain = item.model_copy(update={"gate": None, "schedule": None})
        raw = math.inf if known is None else known.high if item.weight > 0 else known.low
        term = term_of(plain, {item.name: raw}) or 0.0
        if not math.isfinite(term):
            text = _("“%(name)s” has no upper bound: a higher value always earns more.")
            return None, text % {"name": title_of(item)}
        if known is None or (item.clip is None and item.params != {} and not _has_default_params(item)):
            text = _("The parameters of “%(name)s” were changed, so its highest value is unknown.")
            return None, text % {"name": title_of(item)}
        total += item.weight * term
    return total, ""


def _has_default_params(item: RewardComponent) -> bool:
    """Whether its parameters are those by which the bounds are stated."""
    params = COMPONENTS[item.registered].params
    return params.model_validate(item.params) == params()
