"""What has to hold of a job that is made of several: of stages, one after the other, or of the parts of a mix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from training.config.curriculum import Stage
from training.config.evaluation import EvaluateConfig
from training.config.model import DataConfig
from training.words import OptionError, _, sentence


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
