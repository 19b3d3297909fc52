"""Makes docs/algorithms.md: `python -m training docs algorithms`; a test keeps it current and whole.

Each algorithm has its paper, its formula in plain text, its options and when to use it. Titles, defaults and limits of
options stand in docs/configuration.md; here they are only named.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.algorithms.reference_entries import LOSSES, METHODS, PAIR_LOSSES, SETTINGS, Entry

_HEAD = """# Algorithms

Made from `training/algorithms/reference_entries.py` by `python -m training docs algorithms`. What each method and
loss is, by whom, and when to use it; every option with its limits is in [configuration.md](configuration.md). Losses
are TRL 1.16's and are held against these formulas in `tests/training/algorithms/`, GRPO's to 1e-6 and DPO's to 1e-5.
Throughout, only tokens that the model sampled are learned from, and rollouts that failed outside the policy have no
part in any mean (`log π` is of such tokens, `ρ` = π / π_old, `A` the advantage, `σ` the logistic function, `sg` a
weight that no gradient flows through). """


def reference() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    parts += _section("Methods", "`kind`", METHODS)
    parts += _section("Losses of GRPO", "`grpo.loss_type`", LOSSES)
    parts.append(
        "\nApart from how they average, the last four differ from the first four only where the policy has left the "
        "one that sampled: several updates of a step (`optim.mini_batch_size`, `grpo.num_iterations`).\n"
    )
    parts += _section("Losses of DPO", "`dpo.loss_type`", PAIR_LOSSES)
    parts += _section("Settings", "options", SETTINGS)
    return "".join([*parts, _TURNS, _PAIRS])


def _section(title: str, names: str, entries: Sequence[Entry]) -> list[str]:
    lines = [f"\n## {title}\n\n| {names} | paper | formula | when to use it |\n|---|---|---|---|\n"]
    for entry in entries:
        named = ", ".join(f"`{name}`" for name in entry.names)
        options = f" Options: {', '.join(f'`{name}`' for name in entry.options)}." if entry.options else ""
        lines.append(f"| {named} | {entry.paper} | {entry.formula} | {entry.use}{options} |\n")
    return lines


_TURNS = """
## Credit to turns

With `credit: turns` each turn has an advantage of its own beside the rollout's. What that means at its edges:

- **An environment that pays at the end alone**: nothing is taken off, and every turn has exactly the rollout's
  advantage. What comes with the last answer is the outcome, for which all turns answer.
- **An answer without a reward** has not paid 0: what is known stays as it was, and the next answer with a reward is
  credited with the difference. A rollout of several turns whose environment said no reward before the end keeps the
  rollout's advantage and has no part in the others' means; `credit/silent_share` counts those. A reward that the
  reset does not mention begins at 0.
- **Unequal numbers of turns**: mean and spread of M_k are over the rollouts of the group that reached turn k. That is
  biased where reaching it is itself good or bad: if only those that have earned nothing go on, they are compared
  among themselves. Fewer than two that reached a turn are compared with nobody: the turn has the rollout's advantage.
  So has one before which all that reached it were paid the same.
- **Equal rewards, earned at different turns** teach which turn earned them. `rewards.signal` and
  `rollout.refill_rounds` look at whole rollouts all the same.
- **Excluded rollouts** have no part in anything, **truncated** ones are compared like others (or masked, with
  `mask_truncated`): a turn that was cut off has no answer, and what the environment says on being asked for its
  verdict is the outcome. One that a person marks as failed keeps the rollout's advantage.
- **`scale_rewards`**: with `group` a turn is divided by the spread of its own M_k, as rollouts are by that of r; with
  `batch` by the batch's spread of r, with `none` by nothing. RLOO takes the mean of the other rollouts that reached
  turn k, and lays its advantage over tokens, whose sum is the rollout's loss.
- **`task_success`** is what turns are paid in: its clip, scale, gate, schedule and weight apply to gains. All other
  components are known at the end alone and count for all turns. A spec without it is refused; so are
  `normalize_then_sum`, the losses `luspo` and `vespo`, `importance_sampling: sequence` and `off_policy_limit`, which
  have one ratio or one verdict for a whole rollout.
- **Stages** may differ in it; each is weighed at its own step. Rollouts of older weights (`max_staleness`), mini
  batches and micro batches change nothing: advantages are fixed once the group is scored, and travel with their row.
  The sampler's correction weighs tokens, with the sequence modes a rollout's tokens alike.

It costs one number a token of the sampling. `credit/turn_share` is the share of the variance of turns' advantages
that lies within rollouts: 0 says that turns had no credit of their own. The reward lab shows what it would do on
recorded rollouts before anything is trained with it ([reward-lab.md](reward-lab.md#credit-to-turns)).
"""
_PAIRS = """
## Pairs from groups

*Preference pairs* on a run that played (also `POST /api/v1/runs/<id>/pairs`) makes a dataset of its rollouts: for every
task of a step the one with the highest and the one with the lowest reward, where they differ by at least the minimum
gap. Excluded rollouts have no part in it, and those with calls that could not be read are passed over: runs from
before version 0.3.0 did not record their text as it was written.
"""
