"""The parts of a run, each with options of its own: stages one after the other, and kinds of tasks side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from training.config.evaluation import EvaluateConfig
from training.config.model import DataConfig
from training.config.option import Group, option
from training.words import OptionError, _, sentence


class Laid(BaseModel):
    """Groups of options that are laid over a run's.

    ``GROUPS`` are those that it may have, ``KEPT`` those of their options that stay the whole run's; ``NOT_ITS_OWN``
    says so.
    """

    model_config = ConfigDict(extra="forbid")

    GROUPS: ClassVar[tuple[str, ...]] = ()
    KEPT: ClassVar[dict[str, frozenset[str]]] = {}
    NOT_ITS_OWN: ClassVar[str] = ""

    @model_validator(mode="after")
    def _check_kept(self) -> Laid:
        for group, names in self.KEPT.items():
            for name in sorted(names & getattr(self, group).keys()):
                raise OptionError(f"{group}.{name}", sentence(self.NOT_ITS_OWN))
        return self

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """The options of its own, by group."""
        found: dict[str, dict[str, Any]] = {group: getattr(self, group) for group in self.GROUPS}
        return {group: values for group, values in found.items() if values}

    def laid_over(self, config: dict[str, Any]) -> dict[str, Any]:
        """A config, as plain values, with the options of this part.

        A reward spec and a list of components replace each other, so one that is given replaces the other.
        """
        merged = dict(config)
        for group, values in self.options.items():
            merged[group] = {**config.get(group, {}), **values}
        given = self.options.get("rewards", {}).keys() & {"spec", "components"}
        if given == {"spec"}:
            merged["rewards"]["components"] = []
        elif given == {"components"}:
            merged["rewards"]["spec"] = ""
        return merged


def names_differ(names: list[str], path: str, text: str) -> None:
    """Raise ``OptionError`` where two of the names are equal."""
    if len(set(names)) != len(names):
        raise OptionError(path, sentence(text))


# Stages: what is learned first, and when the next comes.

StageGroup = Literal["data", "environment", "rewards", "rollout", "grpo", "rloo", "ppo", "optim"]
STAGE_GROUPS: tuple[StageGroup, ...] = ("data", "environment", "rewards", "rollout", "grpo", "rloo", "ppo", "optim")
"""Groups of which a stage may have its own options."""
KEPT: dict[str, frozenset[str]] = {
    "rollout": frozenset({"engine"}),
    "grpo": frozenset({"ref_sync_steps", "ref_sync_share"}),
    "optim": frozenset({"schedule", "warmup_steps", "warmup_share", "optimizer", "beta1", "beta2", "epsilon"}),
}
"""Options of these groups that are the whole run's: the sampler, what a checkpoint holds, schedule and optimiser."""
MAX_STAGES = 20


class StageGoal(BaseModel):
    """A figure on held-out tasks that ends a stage once so many evaluations in a row have reached it."""

    model_config = ConfigDict(extra="forbid")

    figure: Literal["success", "reward"] = "success"
    at_least: float = Field(ge=-1e6, le=1e6, allow_inf_nan=False)
    times: int = Field(default=1, ge=1, le=100)


class Stage(Laid):
    """A part of a run with options of its own, laid over those of the run.

    It ends with the first step from ``until_step`` on, counted from the run's beginning, or once ``until`` is reached,
    whichever comes first. The last stage has neither: it ends with the run.
    """

    GROUPS: ClassVar[tuple[str, ...]] = STAGE_GROUPS
    KEPT: ClassVar[dict[str, frozenset[str]]] = KEPT
    NOT_ITS_OWN: ClassVar[str] = _("this option is the whole run's, not a stage's")

    name: str = Field(min_length=1, max_length=40, pattern=r"^\S(.*\S)?$")
    until_step: int | None = Field(default=None, ge=1, le=1_000_000)
    until: StageGoal | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, Any] = Field(default_factory=dict)
    rewards: dict[str, Any] = Field(default_factory=dict)
    rollout: dict[str, Any] = Field(default_factory=dict)
    grpo: dict[str, Any] = Field(default_factory=dict)
    rloo: dict[str, Any] = Field(default_factory=dict)
    ppo: dict[str, Any] = Field(default_factory=dict)
    optim: dict[str, Any] = Field(default_factory=dict)


class CurriculumConfig(Group):
    """Stages of one run, each with its own data, rewards and options."""

    stages: list[Stage] = option(
        list,
        title=_("Stages"),
        help=_(
            "In a run that learns from rollouts: parts of the run in their order. Each has a `name`, its own options "
            "of `data`, `environment`, `rewards`, `rollout`, `optim` and the method, and an end: `until_step`, or "
            "`until` with a held-out figure. The last one ends with the run."
        ),
        max_length=MAX_STAGES,
    )

    @model_validator(mode="after")
    def _check_order(self) -> CurriculumConfig:
        names_differ([stage.name for stage in self.stages], "stages", _("each stage needs a name of its own"))
        last = 0
        for number, stage in enumerate(self.stages):
            self._check_end(number, stage, last)
            last = stage.until_step or last
        return self

    def _check_end(self, number: int, stage: Stage, last: int) -> None:
        path, is_last = f"stages.{number}", number == len(self.stages) - 1
        if is_last and (stage.until_step or stage.until):
            text = _("the last stage ends with the run: leave out its end, or add a stage after it")
            raise OptionError(f"{path}.{'until_step' if stage.until_step else 'until'}", sentence(text))
        if not is_last and not (stage.until_step or stage.until):
            raise OptionError(path, sentence(_("say when the stage ends: until_step, or until with a held-out figure")))
        if stage.until_step is not None and stage.until_step <= last:
            text = _("the stage ends at step {step}, and one before it at step {last}")
            raise OptionError(f"{path}.until_step", sentence(text, step=stage.until_step, last=last))


# --- Courses --------------------------------------------------------------------------------------------------------
# What has to hold of a job that is made of several: of stages, one after the other, or of the parts of a mix.


def check_ends(stages: Sequence[Stage], last: int, evaluate: EvaluateConfig) -> None:
    """A stage ends before the run's ``last`` step, and by a held-out figure only where there is one."""
    for number, stage in enumerate(stages):
        if stage.until_step is not None and stage.until_step >= last:
            text = _("the stage would end at step {step}, and the run ends at step {last}")
            why = sentence(text, step=stage.until_step, last=last)
            raise OptionError(f"curriculum.stages.{number}.until_step", why)
        if stage.until is not None and not evaluate.every:
            text = _("no held-out tasks are played: say how often, and what is held out")
            raise OptionError("evaluate.every", sentence(text))


def refuse_mix(learns_from: str, stages: Sequence[Stage], data: DataConfig, evaluate: EvaluateConfig) -> None:
    """Raise where a job with a mix learns from something else than rollouts, has stages, draws its tasks or holds out
    other data."""
    if learns_from != "rollouts":
        raise OptionError("mix.parts", sentence(_("only methods that learn from rollouts mix environments")))
    if stages:
        raise OptionError("mix.parts", sentence(_("a run has either stages or a mix: leave out one of them")))
    if data.draw != "order":
        text = _("each part of a mix goes through its tasks in their order: choose that")
        raise OptionError("data.draw", sentence(text))
    if evaluate.every and evaluate.data:
        text = _("each part of a mix holds out tasks of its own data: set a share instead")
        raise OptionError("evaluate.data", sentence(text))


def check_each(place: tuple[str, str], count: int, make: Callable[[int], object]) -> None:
    """Each of ``count`` stages or parts has to be a job by itself, which ``make`` makes by its number from 1; what is
    wrong is named below its place."""
    found = [error for number in range(count) for error in _below((*place, number), make, number + 1)]
    if found:
        raise ValidationError.from_exception_data("JobConfig", found)


def _below(place: tuple[str | int, ...], make: Callable[[int], object], number: int) -> Iterator[InitErrorDetails]:
    """What is wrong with a job, as errors of the one that has it at ``place``."""
    try:
        make(number)
    except ValidationError as exc:
        for error in exc.errors(include_url=False):
            found = InitErrorDetails(type=error["type"], loc=(*place, *error["loc"]), input=error.get("input"))  # type: ignore[typeddict-item]
            yield {**found, "ctx": error["ctx"]} if "ctx" in error else found


# Parts of a mix: tasks of several environments in each sampling.

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
