"""The tokens of a rollout with what its trainer knew of each (``training/token_file.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from django.utils.translation import gettext as _
from numpy.typing import NDArray

from training.token_file import LEARNED, SAMPLED, SEEN, TokenValues, read_rollout, spelled
from webapp.common.storage import attempt_dir
from webapp.reading.parts import config_for
from webapp.runs.rollouts.models import Rollout, RolloutStatus

DECIMALS = 3


def tokens_view(rollout: Rollout) -> dict[str, Any]:
    """The tokens as columns, or ``why`` there are none.

    ``prompt`` and ``ids`` are ids, ``spelling`` what each of them spells: a text, and whether it is one, for else it is
    bytes in hexadecimal digits. ``sampled`` and ``learned`` are 1 or 0. ``entropy`` and ``ratio`` are ``None`` where
    the trainer did not see the token. ``advantage`` is one figure, a column, or ``None``.
    """
    folder = attempt_dir(rollout.run_id, rollout.attempt)
    found = read_rollout(folder, rollout.step, rollout.group, rollout.index) if not rollout.held_out else None
    if found is None:
        return {"why": _missing_reason(rollout)}
    wanted = {*found.prompt.tolist(), *found.ids.tolist()}
    return {
        "why": "",
        **_column_lists(found),
        "spelling": {str(key): list(told) for key, told in spelled(folder, wanted).items()},
    }


def _column_lists(found: TokenValues) -> dict[str, Any]:
    seen = (found.flags & SEEN).astype(bool)
    advantage = found.advantage
    return {
        "prompt": found.prompt.tolist(),
        "ids": found.ids.tolist(),
        "sampled": (found.flags & SAMPLED).astype(bool).astype(int).tolist(),
        "learned": (found.flags & LEARNED).astype(bool).astype(int).tolist(),
        "logprob": _values_where(found.logprob, (found.flags & SAMPLED).astype(bool)),
        "entropy": _values_where(found.entropy, seen),
        "ratio": _values_where(found.ratio, seen),
        "advantage": _round_values(advantage) if isinstance(advantage, np.ndarray) else advantage,
    }


def _round_values(values: NDArray[np.float32]) -> list[float]:
    numbers: list[float] = np.round(values.astype(float), DECIMALS).tolist()
    return numbers


def _values_where(values: NDArray[np.float32], there: NDArray[np.bool_]) -> list[float | None]:
    return [value if known else None for value, known in zip(_round_values(values), there.tolist(), strict=True)]


def _missing_reason(rollout: Rollout) -> str:
    """A sentence on why a rollout has no values of tokens."""
    config = config_for(rollout)
    if rollout.run.imported_from:
        return _("The run was imported: its trainer's tokens were not recorded here.")
    if config is None or not config.method.trains or rollout.held_out:
        return _("Only rollouts that a run learns from have values of tokens.")
    if not config.run.keep_tokens_mib:
        return _("The run keeps no values of tokens: run.keep_tokens_mib is 0.")
    if rollout.status == RolloutStatus.RUNNING or rollout.step > rollout.run.step:
        return _("The values are written once the step is trained on.")
    return _(
        "The values of this step are not kept: a run keeps those of its newest steps, up to %(size)d MiB "
        "(run.keep_tokens_mib), and of steps that were trained to their end."
    ) % {"size": config.run.keep_tokens_mib}
