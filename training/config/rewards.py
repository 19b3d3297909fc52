"""The options of rewards."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.config.option import Group, option
from training.words import OptionError, _, sentence

Signal = Literal["all", "reward", "outcome"]
"""The groups that are learned from."""


class RewardGate(BaseModel):
    """Counts a component only where another one's raw value is above a bound."""

    model_config = ConfigDict(extra="forbid")

    component: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    above: float = Field(default=0.0, ge=-1e6, le=1e6, allow_inf_nan=False)


class RewardSchedule(BaseModel):
    """A factor of a weight that changes over the run's steps: ``first`` up to ``begin``, ``last`` from ``end`` on.

    Between them ``linear`` goes in a straight line, and ``step`` stays at ``first``.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["linear", "step"] = "linear"
    begin: int = Field(default=0, ge=0, le=1_000_000)
    end: int = Field(ge=0, le=1_000_000)
    first: float = Field(default=1.0, ge=-100, le=100, allow_inf_nan=False)
    last: float = Field(ge=-100, le=100, allow_inf_nan=False)

    @model_validator(mode="after")
    def _check_order(self) -> RewardSchedule:
        if self.end < self.begin:
            raise OptionError("end", sentence(_("the schedule ends before it begins")))
        return self


Bounds = Annotated[
    list[Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]], Field(min_length=2, max_length=2)
]


class RewardComponent(BaseModel):
    """One named part of the reward: a registered function, its weight and its own parameters.

    ``function`` says which function, where the name does not: two components may use one function with different
    parameters.

    The raw value is clipped to ``clip``, mapped so that ``scale`` becomes 0 to 1, left out where its ``gate`` is
    closed, and multiplied by the weight and the ``schedule``'s factor, in this order. It is computed only for rows of
    its ``categories``; none means all rows. The form, the lab and YAML offer all of it.
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    function: str = Field(default="", pattern=r"^([a-z][a-z0-9_]{0,63})?$")
    weight: float = Field(ge=-100, le=100, allow_inf_nan=False)
    params: dict[str, Any] = Field(default_factory=dict)
    clip: Bounds | None = None
    scale: Bounds | None = None
    gate: RewardGate | None = None
    schedule: RewardSchedule | None = None
    categories: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(default_factory=list, max_length=100)

    @property
    def registered(self) -> str:
        """The name under which its function is registered."""
        return self.function or self.name

    @model_validator(mode="after")
    def _check_bounds(self) -> RewardComponent:
        if self.clip and self.clip[0] > self.clip[1]:
            raise OptionError("clip", sentence(_("the lower bound is above the upper one")))
        if self.scale and self.scale[0] >= self.scale[1]:
            raise OptionError("scale", sentence(_("the lower bound must be below the upper one")))
        return self


class RewardsConfig(Group):
    """What is rewarded. Raw component values are stored for each rollout, weights applied on top."""

    spec: str = option(
        "",
        title=_("Reward spec"),
        help=_(
            "A registered reward spec; its components are filled in below when the run is launched. Without one, "
            "solving the task counts 0.6 and form 0.4, where the environment or the rows report whether it was "
            "solved."
        ),
        basic=True,
        widget="reward",
        max_length=200,
    )
    components: list[RewardComponent] = option(
        list, title=_("Components"), help=_("Named components with weights, instead of a registered spec.")
    )
    signal: Signal = option(
        "all",
        title=_("Groups to learn from"),
        help=_(
            "The groups that a run learns from where it learns from rollouts. Equal rewards give no advantage, but "
            "KL and entropy terms still move the weights; and where all fail, shaping terms alone teach to fail more "
            "nicely."
        ),
        choices={
            "all": _("all of them"),
            "reward": _("those whose rewards differ"),
            "outcome": _("those of which some solved the task and some did not"),
        },
    )
    score_timeout_s: float = option(
        30.0, title=_("Scoring limit"), help=_("Longest scoring of one rollout."), unit=_("seconds"), gt=0, le=600
    )
    aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = option(
        "sum_then_normalize",
        title=_("Aggregation"),
        help=_("How components become the advantage of a rollout within its group."),
        choices={
            "sum_then_normalize": _("weighted and summed, then compared within the group"),
            "normalize_then_sum": _("each compared within the group, then weighted and summed"),
        },
    )
