"""All families of reward components, and how an episode is scored by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

from pydantic import ValidationError

from training.config import JobConfig, RewardComponent
from training.errors import ConfigError, RewardFault, RewardTimeout, boundary
from training.rewards.base import Component, Episode, Params, Score
from training.rewards.bfcl import BFCL
from training.rewards.combining import counts_for, terms_of, total_of
from training.rewards.custom import CUSTOM_FAMILY
from training.rewards.general import GENERAL, OUTCOME
from training.rewards.helloagents import HELLOAGENTS
from training.rewards.judge import JUDGE
from training.rewards.model_based import MODEL_BASED
from training.rewards.text import MAX_REWARD, within_bounds
from training.rewards.tool_calling import TOOL_CALLING
from training.rewards.toolbench import TOOLBENCH
from training.rewards.webshop import WEBSHOP
from training.rows import categories_of
from training.words import _, complaint_of, option_of, sentence

# All families of reward components. A new one is a module next to these and one line here.

FAMILIES: dict[str, tuple[Component, ...]] = {
    "tool_calling": TOOL_CALLING,
    "outcome": OUTCOME,
    "toolbench": TOOLBENCH,
    "bfcl": BFCL,
    "webshop": WEBSHOP,
    "helloagents": HELLOAGENTS,
    "general": GENERAL,
    "judge": JUDGE,
    "model_based": MODEL_BASED,
    "custom": CUSTOM_FAMILY,
}
COMPONENTS: dict[str, Component] = {component.name: component for family in FAMILIES.values() for component in family}


def starting_components(judge: RewardComponent | None = None) -> list[RewardComponent]:
    """What a new spec begins with, and what a run without one is scored by: what judges the task weighs most (the
    environment's verdict, unless another is given), and tool calling shapes the rest; they sum to 1."""
    shaping = [part.model_copy(update={"weight": round(0.4 * part.weight, 6)}) for part in form_components()]
    return [judge or RewardComponent(name="task_success", weight=0.6), *shaping]


def form_components() -> list[RewardComponent]:
    """The five components of tool calling with the weights of SEED 2, which sum to 1: they pay for form alone.

    They score where it is not known whether a task was done, and scored every run without a spec before 0.2.
    """
    return [RewardComponent(name=item.name, weight=item.default_weight) for item in TOOL_CALLING]


def components_of(jobs: Sequence[JobConfig]) -> list[RewardComponent]:
    """What rollouts are scored by that are of any of these jobs, which are the parts of a mix: their components or the
    default ones, each name once."""
    scored = [job.rewards.components or form_components() for job in jobs]
    return list({item.name: item for components in scored for item in components}.values())


def differently_scored(config: JobConfig) -> tuple[str, str] | None:
    """A component that two parts of a mix have under one name with other weights or parameters, and the later of these
    parts; ``None`` where there is none. A trainer has one weight for each name."""
    known: dict[str, RewardComponent] = {}
    for name, part in config.named_courses.items():
        for item in part.rewards.components or form_components():
            if known.setdefault(item.name, item) != item:
                return item.name, name
    return None


def require_one_meaning(config: JobConfig) -> None:
    """Raise ``ConfigError`` where two parts of a mix have a component of one name that is not the same: a trainer has
    one weight for each name."""
    if (found := differently_scored(config)) is not None:
        name, part = found
        text = _("The component `{name}` of part {part} differs from the one with this name in an earlier part.")
        hint = _("Give it a name of its own, and its function as `function`.")
        raise ConfigError(sentence(text, name=name, part=part), option="mix.parts", hint=hint)


# Score one episode with a list of components; check such a list before a run.
#
# Scoring is pure: the same episode and components always give the same score (a judge's verdicts are kept). The total
# is never clamped, so that weights can be replayed later on the stored raw parts; how parts become terms and terms a
# total is in ``training/rewards/combining.py``. The seed clamps its total to [0, 1]; with its weights, which sum to 1,
# and its parts, which lie in [0, 1], that never changes anything.


def score_episode(
    episode: Episode, components: list[RewardComponent], *, step: int = 0, ask_outside: bool = True
) -> Score:
    """Raw values of the components that count for the row, and the reward at a step.

    Raises ``RewardFault`` naming the component that raised, had nothing to say (``None``) or gave no finite number, or
    when no component counts: the rollout is then excluded. Raises ``ConfigError`` for an empty list, an unknown name
    or bad parameters, which concern the run and not the rollout. Without ``ask_outside`` judges, models and
    sandboxes are not asked, and so missing.
    """
    if not components:
        raise ConfigError("No reward components are set.", hint="Add a component, or use the default ones.")
    categories = categories_of(episode.row)
    parts: dict[str, float] = {}
    for chosen in components:
        component, params = resolve(chosen)
        if not counts_for(chosen, categories):
            continue
        if component.outside and not ask_outside:
            raise not_here(chosen)
        parts[chosen.name] = raw_value(chosen.name, component, params, episode)
    return summed(parts, components, step)


def not_here(chosen: RewardComponent) -> RewardFault:
    """Why a component that asks others has no value where none of them are asked."""
    text = _("`{name}` needs a judge, a model or a sandbox, which is not available here.")
    return RewardFault(sentence(text, name=chosen.name))


def summed(parts: dict[str, float], components: list[RewardComponent], step: int = 0) -> Score:
    """The reward of raw values. Raises ``RewardFault`` where there are none, or their sum is out of bounds."""
    if not parts:
        raise RewardFault(_("No reward component counts for a row of this category."), hint=_("Fix the categories."))
    total = total_of(terms_of(parts, components, step), components)
    if not within_bounds(total):
        text = _("The weighted sum is {number}; a reward may be {limit} at most.")
        raise RewardFault(sentence(text, number=f"{total:g}", limit=f"±{MAX_REWARD:g}"), hint=_("Lower the weights."))
    return Score(parts=parts, total=total)


def validate_components(components: list[RewardComponent]) -> list[str]:
    """One sentence for each thing wrong with the list; empty when a run can score with it."""
    problems: list[str] = []
    seen: set[str] = set()
    for chosen in components:
        if chosen.name in seen:
            problems.append(sentence(_("The reward component `{name}` is listed twice."), name=chosen.name))
        seen.add(chosen.name)
        known = COMPONENTS.get(chosen.registered)
        if known is None:
            problems.append(_unknown(chosen.registered))
            continue
        try:
            params = known.params.model_validate(chosen.params)
        except ValidationError as exc:
            problems += _sentences(chosen.name, exc)
        else:
            problems += [sentence(_("`{name}`: {text}"), name=chosen.name, text=text) for text in params.problems()]
    return problems + [text for chosen in components if (text := _gate_problem(chosen, components))]


def _gate_problem(chosen: RewardComponent, components: list[RewardComponent]) -> str | None:
    """A gate depends on another component that counts wherever the gated one does."""
    if chosen.gate is None:
        return None
    gate = next((item for item in components if item.name == chosen.gate.component), None)
    if gate is None or gate is chosen:
        text = _("The gate of `{name}` needs `{gate}` as another component, for example with weight 0.")
        return sentence(text, name=chosen.name, gate=chosen.gate.component)
    if gate.categories and not (chosen.categories and set(chosen.categories) <= set(gate.categories)):
        text = _("The gate of `{name}` needs `{gate}` to count for the same categories.")
        return sentence(text, name=chosen.name, gate=gate.name)
    return None


def raw_value(name: str, component: Component, params: Params, episode: Episode) -> float:
    """What a component says of an episode. Raises ``RewardFault`` where that is no finite number."""
    with boundary(RewardFault, f"scoring `{name}`"):
        return _number(name, _asked(name, component, params, episode))


def _asked(name: str, component: Component, params: Params, episode: Episode) -> float | None:
    """The component's value; a failure names the component where the function cannot know its name."""
    try:
        return component.score(episode, params)
    except (RewardFault, RewardTimeout) as exc:
        if name == component.name:
            raise
        raise type(exc)(sentence(_("`{name}`: {reason}"), name=name, reason=exc.message), hint=exc.hint) from exc


def resolve(chosen: RewardComponent) -> tuple[Component, Params]:
    """The registered component and its checked parameters. Raises ``ConfigError``."""
    component = COMPONENTS.get(chosen.registered)
    if component is None:
        raise ConfigError(_unknown(chosen.registered))
    try:
        return component, component.params.model_validate(chosen.params)
    except ValidationError as exc:
        raise ConfigError(" ".join(_sentences(chosen.name, exc))) from exc


def _number(name: str, value: object) -> float:
    """The value as a finite float. Raises ``RewardFault``."""
    if value is None:
        raise RewardFault(sentence(_("`{name}` has no value for this episode."), name=name))
    if not isinstance(value, Real) or isinstance(value, bool):
        raise RewardFault(sentence(_("`{name}` gave a {type}, not a number."), name=name, type=type(value).__name__))
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise RewardFault(sentence(_("`{name}` gave {number}, not a finite number."), name=name, number=str(number)))
    if not within_bounds(number):
        text = _("`{name}` gave {number}; a reward may be {limit} at most.")
        raise RewardFault(sentence(text, name=name, number=f"{number:g}", limit=f"±{MAX_REWARD:g}"))
    return number


def _unknown(name: str) -> str:
    text = _("There is no reward component `{name}`; known ones are {known}.")
    return sentence(text, name=name, known=", ".join(sorted(COMPONENTS)))


def _sentences(name: str, exc: ValidationError) -> list[str]:
    """What pydantic says, one sentence an error, without the values that were typed."""
    sentences: list[str] = []
    for error in exc.errors(include_url=False, include_input=False):
        where, what = option_of(error), complaint_of(error)
        of_one = sentence(_("`{name}`, parameter `{where}`: {what}."), name=name, where=where, what=what)
        sentences.append(of_one if where else sentence(_("`{name}`: {what}."), name=name, what=what))
    return sentences
