"""The catalogue of metrics: every figure that a trainer journals, with its title, unit and meaning.

Tiles, charts, the API and docs/metrics.md take titles from here. Names are TRL's own; ours are under ``rollouts/``,
``heldout/``, ``parts/``, ``groups/``, ``tasks/``, ``value/``, ``env/``, ``timing/``, ``judge/``, ``sampling/`` and
``updates/``. A figure that cannot be computed is left out, never 0.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from training.words import _

Form = Literal["figure", "percent", "duration"]


class Metric(NamedTuple):
    """A figure's title, its meaning, its unit ("" for none), and how it is written."""

    title: str
    what: str
    unit: str = ""
    form: Form = "figure"


METRICS: dict[str, Metric] = {
    "reward": Metric(_("Reward"), _("Mean reward of the step's rollouts, excluded ones left out.")),
    "reward_std": Metric(
        _("Reward spread"), _("Standard deviation of all rewards of a step; of imported runs within groups, averaged.")
    ),
    "success": Metric(
        _("Success"), _("Share of tasks that are solved: of the step's rollouts, and ★ on held-out tasks.")
    ),
    "components": Metric(_("Reward components"), _("Mean value of each reward component, before its weight.")),
    "parts/success": Metric(
        _("Success by part"), _("Share of the rollouts of each part of a mix that solved their task."), form="percent"
    ),
    "parts/heldout_success": Metric(
        _("Held-out success by part"),
        _("Share of the held-out tasks of each part of a mix that are solved."),
        form="percent",
    ),
    "parts/reward": Metric(_("Reward by part"), _("Mean reward of the rollouts of each part of a mix.")),
    "loss": Metric(_("Loss"), _("The loss that the update minimised.")),
    "losses": Metric(_("Loss"), _("The loss of the updates, and ★ on held-out conversations.")),
    "kl": Metric(_("KL divergence"), _("Distance from the reference model; only with a KL weight."), _("nats")),
    "entropy": Metric(
        _("Entropy"), _("Uncertainty of the policy about the next token, averaged over tokens."), _("nats")
    ),
    "grad_norm": Metric(_("Gradient norm"), _("Norm of the gradient before clipping.")),
    "learning_rate": Metric(_("Learning rate"), _("Step size of the update.")),
    "clip_ratio/region_mean": Metric(
        _("Clip ratio"), _("Share of tokens whose policy ratio was clipped."), form="percent"
    ),
    "value/loss": Metric(
        _("Value loss"), _("Half the squared distance of values from returns, averaged over tokens; after clipping.")
    ),
    "value/explained_variance": Metric(
        _("Values explain"),
        _("Share of the returns' variance that values explain: 1 is all, 0 what a constant does, below 0 is worse."),
    ),
    "value/mean": Metric(
        _("Mean value"), _("The return that the value head expects, averaged over the step's tokens.")
    ),
    "value/clip_share": Metric(
        _("Values clipped"), _("Share of tokens whose value moved beyond the limit and gained nothing."), form="percent"
    ),
    "mean_token_accuracy": Metric(
        _("Token accuracy"), _("Share of target tokens that are the model's top choice."), form="percent"
    ),
    "rewards/accuracies": Metric(
        _("Pairs ranked correctly"),
        _("Share of the step's pairs whose better answer has gained more on the base model than the worse one."),
        form="percent",
    ),
    "rewards/margins": Metric(
        _("Margin"),
        _("Gain of the better answers over the base model minus that of the worse ones, times β, averaged over pairs."),
    ),
    "rewards/chosen": Metric(
        _("Gain of better answers"), _("Gain of the better answers over the base model, times β.")
    ),
    "rewards/rejected": Metric(
        _("Gain of worse answers"), _("Gain of the worse answers over the base model, times β.")
    ),
    "logps/chosen": Metric(_("Better answers"), _("Log-probability of the better answers, averaged."), _("nats")),
    "logps/rejected": Metric(_("Worse answers"), _("Log-probability of the worse answers, averaged."), _("nats")),
    "completions/mean_length": Metric(
        _("Completion length"), _("Tokens that the model sampled, averaged over rollouts."), _("tokens")
    ),
    "completions/min_length": Metric(_("Shortest completion"), _("Tokens of the shortest rollout."), _("tokens")),
    "completions/max_length": Metric(_("Longest completion"), _("Tokens of the longest rollout."), _("tokens")),
    "completions/repeated_share": Metric(
        _("Repeated text"),
        _("Share of a completion's word sequences that it had before, averaged; where a trainer writes it."),
        form="percent",
    ),
    "rollouts/task_success": Metric(
        _("Success"), _("Share of rollouts that the environment says solved their task."), form="percent"
    ),
    "heldout/success": Metric(
        _("Held-out success"),
        _("Share of held-out tasks that the weights after this step solve; nothing is learned from them."),
        form="percent",
    ),
    "heldout/success_low": Metric(
        _("Held-out success, lower end"), _("Lower end of its 95% interval."), form="percent"
    ),
    "heldout/success_high": Metric(
        _("Held-out success, upper end"), _("Upper end of its 95% interval."), form="percent"
    ),
    "heldout/loss": Metric(
        _("Held-out loss"), _("Loss on conversations that are held out, averaged over the assistants' tokens.")
    ),
    "heldout/token_accuracy": Metric(
        _("Held-out token accuracy"),
        _("Share of the held-out conversations' target tokens that are the model's top choice."),
        form="percent",
    ),
    "heldout/reward": Metric(_("Held-out reward"), _("Mean reward on the held-out tasks.")),
    "heldout/turns": Metric(_("Held-out turns"), _("Model turns on the held-out tasks, averaged."), _("turns")),
    "heldout/tokens": Metric(
        _("Held-out length"), _("Tokens that the model sampled on the held-out tasks, averaged."), _("tokens")
    ),
    "heldout/missing": Metric(
        _("Held-out rollouts missing"), _("Rollouts that failed outside the policy; they are in no figure.")
    ),
    "rollouts/excluded": Metric(
        _("Excluded rollouts (count)"), _("Rollouts that failed outside the policy; they are not trained on.")
    ),
    "rollouts/excluded_share": Metric(
        _("Excluded rollouts"), _("Share of rollouts that failed outside the policy."), form="percent"
    ),
    "rollouts/truncated_share": Metric(
        _("Truncated rollouts"), _("Share of rollouts that were cut off by a limit on turns or tokens."), form="percent"
    ),
    "rollouts/turns_mean": Metric(_("Turns"), _("Model turns, averaged over rollouts."), _("turns")),
    "rollouts/calls_mean": Metric(
        _("Tool calls"), _("Tool calls that could be read, averaged over rollouts; only where tools were offered.")
    ),
    "groups/zero_variance_share": Metric(
        _("No learning signal"), _("Share of groups with equal rewards: no learning signal."), form="percent"
    ),
    "groups/left_out_share": Metric(
        _("Groups left out"), _("Share of groups that are not learned from (`rewards.signal`)."), form="percent"
    ),
    "advantages/zero_share": Metric(
        _("Advantages of 0"),
        _("Share of advantages that are 0 and so teach nothing; where a trainer writes it."),
        form="percent",
    ),
    "credit/turn_share": Metric(
        _("Credit from turns"),
        _("Share of the variance of turns' advantages that lies within rollouts; only with credit to turns."),
        form="percent",
    ),
    "credit/silent_share": Metric(
        _("Paid only at the end"),
        _("Share of rollouts of several turns whose environment gave no reward before the end; with credit to turns."),
        form="percent",
    ),
    "groups/refilled": Metric(
        _("Groups refilled"), _("Zero-variance groups that were replaced by another task's group.")
    ),
    "rollouts/extra": Metric(
        _("Extra rollouts"), _("Rollouts that were played to refill groups, beyond the step's own.")
    ),
    "tasks/drawn_distinct": Metric(
        _("Tasks played"), _("Different tasks that were played until now, where they are drawn by their pass rate.")
    ),
    "tasks/new_share": Metric(
        _("New tasks"), _("Share of the step's tasks that were never played before (`data.draw`)."), form="percent"
    ),
    "tasks/solved_share": Metric(
        _("Believed solved"),
        _("Share of all tasks whose expected outcome is at least 0.9; they are drawn less (`data.draw`)."),
        form="percent",
    ),
    "tasks/hopeless_share": Metric(
        _("Believed hopeless"),
        _("Share of all tasks whose expected outcome is at most 0.1; they are drawn less (`data.draw`)."),
        form="percent",
    ),
    "rollouts/staleness_mean": Metric(
        _("Staleness"),
        _("Samplings between the weights that sampled a rollout and those that learn from it, averaged."),
    ),
    "rollouts/staleness_max": Metric(_("Largest staleness"), _("The same, of the oldest rollout.")),
    "groups/pass_share": Metric(
        _("Groups with a success"), _("Share of groups with at least one solved task."), form="percent"
    ),
    "groups/best_reward_mean": Metric(_("Best of group"), _("Highest reward of each group, averaged.")),
    "env/errors": Metric(_("Environment errors"), _("Errors of environments, including retried ones.")),
    "env/latency_p50": Metric(_("Answer time, median"), _("Median time of an environment's answer."), _("s")),
    "env/latency_p95": Metric(_("Answer time, 95%"), _("95% of the environment's answers came faster."), _("s")),
    "judge/requests": Metric(_("Judge requests"), _("Requests that were sent to reward judges.")),
    "judge/failures": Metric(_("Failed judge requests"), _("Requests that no judge answered.")),
    "judge/cost": Metric(_("Judge cost"), _("Cost of the step's requests at the prices that are set.")),
    "endpoint/cost": Metric(
        _("Spent"), _("Money that the run has spent at its endpoint so far, attempts before this one included.")
    ),
    "endpoint/tokens": Metric(
        _("Tokens used"), _("Tokens that the endpoint has counted so far, prompts included."), _("tokens")
    ),
    "sampling/logprob_gap_max": Metric(
        _("Sampler gap"),
        _("Largest difference between the sampler's log-probabilities and a training forward over the same ids."),
        _("nats"),
    ),
    "sampling/logprob_gap_mean": Metric(
        _("Mean sampler gap"),
        _("The same, averaged over the tokens that were compared; the sampler check uses it."),
        _("nats"),
    ),
    "sampling/sampling_logp_difference/mean": Metric(
        _("Sampler difference"),
        _("Difference between the sampler's log-probabilities and the trainer's, averaged over the step's tokens."),
        _("nats"),
    ),
    "sampling/sampling_logp_difference/max": Metric(
        _("Largest sampler difference"), _("The same, of the token where it is largest."), _("nats")
    ),
    "sampling/importance_sampling_ratio/mean": Metric(
        _("Sampler ratio"),
        _("The trainer's probability of the sampled tokens divided by the sampler's, averaged; 1 where both agree."),
    ),
    "sampling/importance_sampling_ratio/min": Metric(_("Smallest sampler ratio"), _("The smallest of the step.")),
    "sampling/importance_sampling_ratio/max": Metric(_("Largest sampler ratio"), _("The largest of the step.")),
    "sampling/truncated_share": Metric(
        _("Ratios at the limit"),
        _("Share of sampler ratios that were above the limit, and so truncated or left out."),
        form="percent",
    ),
    "sampling/sync_seconds": Metric(
        _("Handover of weights"),
        _("Time until vLLM had the step's weights; where rollouts are played ahead, the trainer continues meanwhile."),
        _("s"),
        "duration",
    ),
    "updates/skipped": Metric(
        _("Skipped updates"), _("Updates that did not move the weights, because loss or gradient was not finite.")
    ),
    "timing/hours": Metric(
        _("Time used"),
        _("Hours of all attempts until now, where the run has a time budget; neither queue nor pauses count."),
        _("h"),
    ),
    "timing/step": Metric(_("Step time"), _("Duration of the whole step."), _("s"), "duration"),
    "timing/generation": Metric(_("Generation time"), _("Time that the sampler spent computing."), _("s"), "duration"),
    "timing/environment": Metric(
        _("Environment time"), _("Time spent waiting only for environments."), _("s"), "duration"
    ),
    "timing/scoring": Metric(_("Scoring time"), _("Time from the last answer to the last reward."), _("s"), "duration"),
    "timing/waiting": Metric(
        _("Waiting time"),
        _("Time that the trainer waited for rollouts which are played while it trains."),
        _("s"),
        "duration",
    ),
    "timing/handover": Metric(
        _("Handover time"),
        _(
            "Time that the trainer itself spent on handing over the weights and proving them: writing, waiting for the "
            "sampler, computing the answers' log-probabilities."
        ),
        _("s"),
        "duration",
    ),
    "timing/training": Metric(_("Training time"), _("The rest of the step."), _("s"), "duration"),
    "timing/saving": Metric(
        _("Saving time"), _("Time that the checkpoint after the step took, beyond the step's own."), _("s"), "duration"
    ),
    "timing/evaluating": Metric(
        _("Evaluation time"),
        _("Time that the held-out tasks after the step took, beyond the step's own."),
        _("s"),
        "duration",
    ),
}
_OF_PART = "parts/[^/]+/"
PATTERNS: tuple[tuple[re.Pattern[str], Metric], ...] = (
    (
        re.compile(r"rewards/[^/]+/mean"),
        Metric(_("Reward component"), _("Mean value of one reward component, before its weight, by its name.")),
    ),
    (
        re.compile(r"rewards/[^/]+/std"),
        Metric(_("Spread of a reward component"), _("Standard deviation of one reward component.")),
    ),
    (
        re.compile(_OF_PART + "reward"),
        Metric(_("Reward of a part"), _("Mean reward of the rollouts of one part of a mix, by its name.")),
    ),
    (
        re.compile(_OF_PART + "success"),
        Metric(
            _("Success of a part"),
            _("Share of the rollouts of one part of a mix that the environment says solved their task."),
            form="percent",
        ),
    ),
    (
        re.compile(_OF_PART + "share"),
        Metric(
            _("Share of a part"),
            _("Share of this part of a mix in the rollouts that are learned from; on average its weight."),
            form="percent",
        ),
    ),
    (
        re.compile(_OF_PART + "heldout_success"),
        Metric(
            _("Held-out success of a part"),
            _("Share of the held-out tasks of one part of a mix that the weights after this step solve."),
            form="percent",
        ),
    ),
    (
        re.compile(_OF_PART + "heldout_reward"),
        Metric(_("Held-out reward of a part"), _("Mean reward on the held-out tasks of one part of a mix.")),
    ),
    (re.compile(r"judge/[^/]+"), Metric(_("Judge"), _("Other counts of reward judges, such as tokens."))),
    (re.compile(r"clip_ratio/[^/]+"), Metric(_("Clip ratio"), _("Other clipping metrics of TRL."))),
    (re.compile(r"completions/[^/]+"), Metric(_("Completions"), _("Other completion metrics of TRL."))),
    (re.compile(r"sampling/[^/]+"), Metric(_("Sampler"), _("Agreement between sampler and trainer."))),
)
CHARTS = ("components", "losses", "parts/success", "parts/heldout_success", "parts/reward")
"""Charts of several metrics, which no trainer writes under these names."""


_HEAD = """\
# Metrics

Made from `training/metrics.py` by `python -m training docs metrics`. Every figure that a trainer writes into its
journal, under TRL's names or ours. A figure that cannot be computed in a step is left out; missing is never 0. Shares
go from 0 to 1.

| metric | title | unit | meaning |
|---|---|---|---|
"""


def reference() -> str:
    """The page as Markdown."""
    names = {name: entry for name, entry in METRICS.items() if name not in CHARTS}
    shown = {**names, **{pattern.pattern.replace("[^/]+", "<name>"): entry for pattern, entry in PATTERNS}}
    lines = [f"| `{name}` | {entry.title} | {entry.unit or '–'} | {entry.what} |\n" for name, entry in shown.items()]
    return _HEAD + "".join(lines)
