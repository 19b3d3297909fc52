"""The requests of the lab's page: checked here, answered by ``view`` and ``transcript``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from training.config import RewardComponent
from training.rewards.combining import Aggregation, Scale

MAX_COMPONENTS = 60
MAX_GROUPS = 50
Components = Annotated[list[RewardComponent], Field(min_length=1, max_length=MAX_COMPONENTS)]
Sort = Literal["step", "spread", "changed", "phantom", "reward"]
Only = Literal["all", "zero_variance", "phantom", "excluded", "changed"]


class ScoreRequest(BaseModel):
    """Score a set by one spec, or by two side by side; a page of its groups comes with it."""

    model_config = ConfigDict(extra="forbid")

    components: Components
    against: Components | None = None
    aggregation: Aggregation = "sum_then_normalize"
    scale: Scale = "group"
    step: int | None = Field(default=None, ge=0, le=1_000_000)
    sort: Sort = "step"
    only: Only = "all"
    offset: int = Field(default=0, ge=0, le=10_000_000)
    limit: int = Field(default=20, ge=0, le=MAX_GROUPS)


class RolloutRequest(BaseModel):
    """Show one rollout with the spans of text that earned its parts."""

    model_config = ConfigDict(extra="forbid")

    components: Components
    aggregation: Aggregation = "sum_then_normalize"
    scale: Scale = "group"
    step: int | None = Field(default=None, ge=0, le=1_000_000)
