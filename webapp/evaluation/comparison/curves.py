"""The curves of runs that train, over one axis for all: steps, time, rollouts or tokens. Runs that differ in their seed
alone are one setting: the page draws their mean and range."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.templatetags.static import static
from django.utils.translation import gettext as _

from training.metrics import METRICS
from webapp.common.static_files import PLOTLY
from webapp.common.text import translated
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import same_rewards
from webapp.runs.config import flat
from webapp.runs.metrics.selectors import curves_of
from webapp.runs.records.selectors import STEP_TIME, axes, played

POINTS = 400
SHOWN = (
    "heldout/success", "rollouts/task_success", "reward", "loss", "kl", "entropy", "completions/mean_length",
    "rollouts/excluded_share", "groups/zero_variance_share", "mean_token_accuracy",
)  # fmt: skip
SEED = "run.seed"


def overlay(contestants: Sequence[Contestant]) -> dict[str, Any] | None:
    """What the page's script draws; ``None`` where fewer than two of them train.

    ``axes`` hold for each run what had gone by at the end of each step that it knows: hours, rollouts, tokens.
    """
    training = [item for item in contestants if item.run.method.trains]
    if len(training) < 2:
        return None
    comparable = all(same_rewards(training[0].components, item.components) for item in training)
    names = [name for name in SHOWN if name != "reward" or comparable]
    settings: list[str] = []
    runs: list[dict[str, Any]] = []
    drawn = curves_of([item.run for item in training], (names, POINTS), ([STEP_TIME], 10**6))
    known = played(item.run.pk for item in training)
    for item, found in zip(training, drawn, strict=True):
        key = _config_without_seed(item)
        if key not in settings:
            settings.append(key)
        runs.append(
            {
                "name": item.run.name,
                "number": item.number,
                "setting": settings.index(key),
                "axes": axes(found.get(STEP_TIME, {}), known.get(item.run.pk, [])),
                "curves": {
                    name: {"steps": found[name]["steps"], "values": found[name]["values"]}
                    for name in names
                    if name in found
                },
            }
        )
    shown = [name for name in names if any(name in run["curves"] for run in runs)]
    return {
        "runs": runs,
        "charts": [{"name": name, "title": translated(METRICS[name].title)} for name in shown],
        "plotly": static(PLOTLY),
        "rewards_differ": not comparable,
        "words": {"of": _("{name}: mean and range of {n} seeds")},
    }


def _config_without_seed(item: Contestant) -> str:
    config = flat(item.run.config)
    config.pop(SEED, None)
    return json.dumps(config, sort_keys=True, default=str)
