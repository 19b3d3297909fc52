"""Makes docs/rewards.md from the components themselves: `python -m training.rewards`; a test keeps it current."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from training.rewards.base import OUTCOMES, Component
from training.rewards.lab.rules import ALARMS, DEGENERATE
from training.rewards.scoring import FAMILIES

_HEAD = """\
# Reward components

Made from `training/rewards/` by `python -m training.rewards`. A component is a function of a finished episode; a reward
is a weighted sum of components. A component that cannot be computed is *missing*, never 0, and its rollout is excluded.
Values under "examples" are checked by `Component.validate()`.

## From values to a reward

The raw value of each component is stored. Its term is made in four steps. `clip` limits the raw value; `scale` maps a
range of it to 0 to 1; a closed `gate` makes it 0; the factor of the `schedule` at the step multiplies it. The reward is
Σ weight · term.

```yaml
rewards:
  aggregation: sum_then_normalize     # or normalize_then_sum: each term is compared within its group, then summed
  components:
    - {name: task_success, weight: 1.0}
    - name: toolbench_function_call
      weight: 0.2
      clip: [-1, 1]                              # lowest and highest raw value that counts
      scale: [-1, 1]                             # this range becomes 0 to 1
      gate: {component: task_success, above: 0}  # counts only when that raw value is above
      schedule: {kind: linear, begin: 0, end: 100, first: 1, last: 0}   # factor of the weight over the steps
      categories: [G1_category]                  # rows that it is computed for; none means all
```

`categories` are compared with the row's `category`, `data_source`, `ability`, `split`, `extra_info.category` and
`extra_info.dataset_type`. Advantages are TRL's: `(r − mean) / (std + 1e-4)` within the group, without missing rollouts.

The variable in a judge's `key_variable` holds its key. Where addresses are checked (every supervised run), the
operator also sets the same name with `_HOST`: the key goes to that host only. `TILTYARD_REWARD_MODELS` is the folder
that reward models are taken from.
"""

_ALARMS = """\
## Alarms of the reward lab

[The lab](reward-lab.md) holds a spec against a set of rollouts. Each alarm names figures and rollouts as its evidence;
with fewer rollouts than a rule names there is no alarm. "Successful" is an outcome of 1, or the highest outcome of the
set where that is above 1.
"""


def reference() -> str:
    """The page as Markdown."""
    return "\n".join([_HEAD, *(part for name in FAMILIES for part in _family(name)), *_alarms()])


def _alarms() -> Iterator[str]:
    yield _ALARMS
    yield "| code | says | when |\n|---|---|---|"
    for code, words in ALARMS.items():
        yield f"| `{code}` | {_cell(words.title)} | {_cell(words.rule)} |"
    policies, outcomes = (", ".join(f"`{name}`" for name in names) for names in (DEGENERATE, OUTCOMES))
    yield f"\nThe degenerate policies of the test-bed are {policies}.\n"
    yield "The outcome is the first of these that the spec or the run has a value of, else the environment's own:"
    yield f"{outcomes}.\n"


def _family(name: str) -> Iterator[str]:
    yield f"## `{name}`\n"
    for component in FAMILIES[name]:
        yield from _component(component)


def _component(component: Component) -> Iterator[str]:
    yield f"### `{component.name}`: {component.title}\n"
    yield f"{component.help}\n"
    if component.warning:
        yield f"**Take care.** {component.warning}\n"
    yield f"- value: {_bound(component.low)} to {_bound(component.high)}; weight {component.default_weight:g}"
    yield f"- formula: {component.formula}"
    yield f"- source: {component.source}\n"
    if component.params.model_fields:
        yield "| parameter | default | limits | what it does |\n|---|---|---|---|"
        for name, field in component.params.model_fields.items():
            default = field.get_default(call_default_factory=True)  # type: ignore[call-arg]
            shown = f"`{_cell(str(default))}`" if default not in ("", []) else "–"
            yield f"| `{name}` | {shown} | {_limits(field)} | **{field.title}.** {_cell(field.description or '')} |"
        yield ""
    if component.examples:
        yield "| example | under | value |\n|---|---|---|"
        for example in component.examples:
            under = ", ".join(f"{key} = {value}" for key, value in example.params.items()) or "–"
            value = "missing" if example.expected is None else f"{example.expected:.6g}"
            yield f"| {_cell(example.what)} | {_cell(under)} | {value} |"
        yield ""


def _bound(value: float) -> str:
    return f"{value:g}" if math.isfinite(value) else "any"


def _limits(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        meanings = extra.get("choices")
        named = meanings if isinstance(meanings, dict) else {}
        return _cell(", ".join(f"`{value}`: {named.get(value, value)}" for value in get_args(field.annotation)))
    signs = ((annotated_types.Ge, "ge", "≥"), (annotated_types.Gt, "gt", ">"), (annotated_types.Le, "le", "≤"))
    rules = [
        f"{sign} {getattr(rule, key):g}"
        for rule in field.metadata
        for kind, key, sign in signs
        if isinstance(rule, kind)
    ]
    rules += [f"≤ {rule.max_length} long" for rule in field.metadata if isinstance(rule, annotated_types.MaxLen)]
    return ", ".join(rules) or "–"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
