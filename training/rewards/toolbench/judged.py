"""ToolBench's pass reward: whether a judge says that the query was solved."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from training.errors import RewardFault
from training.rewards.base import Component, Episode, Example
from training.rewards.judge.asking import judged
from training.rewards.judge.params import JudgeParams
from training.rewards.samples import played, says
from training.rewards.toolbench.reading import ending, read
from training.words import _

RUBRIC = (
    "Decide whether the assistant solved the user's query. Solved: the final answer gives all that was asked for, and "
    "it follows from the results of the calls. Partially Solved: it gives a part, or it cannot be told. Unsolved: "
    "it gives nothing of it, or what the results do not support."
)
FORM = '{"reason": "<one sentence>", "label": "Solved" | "Partially Solved" | "Unsolved"}'


class PassParams(JudgeParams):
    """Parameters of ``toolbench_pass``."""

    partial_score: float = Field(
        0.5, title=_("Partially solved"), description=_("Value of a query solved in part, or unsure."), ge=0, le=1
    )


def pass_reward(episode: Episode, params: PassParams) -> float:
    """The judge's verdict. An episode that did not end with an answer is unsolved, and nobody is asked."""
    if ending(read(episode)) in (None, "give_up"):
        return 0.0

    def value(verdict: dict[str, Any]) -> float:
        values = {
            "solved": 1.0,
            "partially solved": params.partial_score,
            "unsure": params.partial_score,
            "unsolved": 0.0,
        }
        label = str(verdict.get("label")).strip().casefold()
        if label not in values:
            raise RewardFault("The judge gave none of the three labels.")
        return values[label]

    return judged(episode, params, RUBRIC, FORM, value, scale=(params.partial_score,))


TOOLBENCH_PASS = Component(
    "toolbench_pass",
    _("ToolBench pass"),
    _("Whether a judge says that the query was solved."),
    pass_reward,
    PassParams,
    default_weight=0.4,
    source="ToolBench RL, latest version (reward server); differs: a judge that fails is missing, there it is 0",
    formula="1 solved; 0.5 partially solved or unsure; 0 unsolved, or not ended with an answer",
    examples=(Example("no Finish", played("q", says("hello")), 0.0),),
    outside=True,
)
