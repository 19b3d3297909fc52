"""Parts of one run that are played side by side: tasks of several environments in each sampling."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from training.config.laid import Laid, names_differ
from training.config.option import Group, option
from training.words import OptionError, _, sentence

PartGroup = Literal["data", "environment", "rewards"]
PART_GROUPS: tuple[PartGroup, ...] = ("data", "environment", "rewards")
"""Groups of which a part may have its own options."""
MAX_PARTS = 20


class Part(Laid):
    """Tasks of one kind: their data, the environment that plays them and the components that score them, laid over the
    run's, and the share of the run's groups that are theirs: ``weight`` over the sum of all weights.

    Nothing is learned from a part of weight 0; its held-out tasks are played all the same.
    """

    GROUPS: ClassVar[tuple[str, ...]] = PART_GROUPS
    KEPT: ClassVar[dict[str, frozenset[str]]] = {
        "data": frozenset({"draw", "draw_even_share", "draw_prior", "draw_half_life"}),
        "rewards": frozenset({"aggregation", "signal"}),
    }
    NOT_ITS_OWN: ClassVar[str] = _("this option is the whole run's, not a part's")

    name: str = Field(min_length=1, max_length=40, pattern=r"^[^\s/]([^/]*[^\s/])?$")
    weight: float = Field(default=1.0, ge=0, le=1e6, allow_inf_nan=False)
    data: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)
    rewards: dict[str, Any] = Field(default_factory=dict)


class MixConfig(Group):
    """Several environments in one run: the groups of each sampling are divided among its parts."""

    parts: list[Part] = option(
        list,
        title=_("Parts"),
        help=_(
            "In a run that learns from rollouts: kinds of tasks that are played in the same run. Each has a `name`, "
            "a `weight` and its own options of `data`, `environment` and `rewards`. The groups of each sampling are "
            "divided among the parts by their weights."
        ),
        max_length=MAX_PARTS,
    )

    @model_validator(mode="after")
    def _check_parts(self) -> MixConfig:
        if not self.parts:
            return self
        names_differ([part.name for part in self.parts], "parts", _("each part needs a name of its own"))
        if len(self.parts) == 1:
            text = _("a mix has at least 2 parts: with one, set the options of the run itself")
            raise OptionError("parts", sentence(text))
        if math.isclose(sum(part.weight for part in self.parts), 0):
            raise OptionError("parts", sentence(_("all weights are 0, so there would be nothing to play")))
        return self
