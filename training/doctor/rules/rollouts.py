"""Advisories about the rollouts themselves: their text, and what failed around them."""

from __future__ import annotations

from training.doctor.rules.words import OWN, Rule
from training.words import _

ROLLOUTS: dict[str, Rule] = {
    "length_explosion": Rule(
        _("Completions grow fast"),
        "warn",
        _("Completions grew from {before} to {now} tokens."),
        _("Length itself is paid for: each step costs more, and rollouts run into their limits."),
        _(
            "mean of `completions/mean_length` over `window` steps ≥ `length_ratio` × its mean about 10 steps before; "
            "or ≥ `length_drift` × that of the run's first tenth, unless success has risen by 0.1 since"
        ),
        "Liu et al.: Understanding R1-Zero-like training (arXiv 2503.20783)",
        _(
            "Read the longest rollouts. Take a loss without a length bias (`grpo.loss_type: dr_grpo`), or a reward "
            "component for brevity that counts only where the task is solved."
        ),
        ("window", "length_ratio", "length_drift"),
        ("rollouts", "lab"),
    ),
    "truncation": Rule(
        _("Rollouts are cut off"),
        "warn",
        _("{share} of the rollouts are cut off by a limit."),
        _("A rollout that is cut off cannot show whether its way was right; it is judged by where the limit fell."),
        _(
            "mean of `rollouts/truncated_share` over `window` steps ≥ `truncated_share`, or `truncated_rise` above its "
            "mean about 10 steps before or in the run's first tenth; or over `long_window` steps ≥ `truncated_long`"
        ),
        "DAPO, overlong filtering (arXiv 2503.14476)",
        _(
            "Raise the limits on turns and tokens (`rollout`), or leave such rollouts out of the loss "
            "(`grpo.mask_truncated`)."
        ),
        ("window", "long_window", "truncated_share", "truncated_rise", "truncated_long"),
        ("rollouts", "stop"),
    ),
    "repetition": Rule(
        _("Repetition"),
        "warn",
        _("{cases} of {rollouts} rollouts repeat themselves."),
        _("The text has degenerated: the policy is collapsing, or the reward pays for length or for certain words."),
        _(
            "rollouts whose share of repeated word 4-grams is ≥ `repetition` ÷ rollouts with at least 16 of them, over "
            "`window` steps ≥ `repetition_share`, and at least 8"
        ),
        "Holtzman et al.: The curious case of neural text degeneration (arXiv 1904.09751)",
        _("Read them. Continue from an earlier checkpoint with a lower learning rate, or a penalty for repetition."),
        ("window", "repetition", "repetition_share"),
        ("rollouts", "lab", "stop"),
    ),
    "repeated_text": Rule(
        _("Text repeats itself more and more"),
        "warn",
        _("Of a completion's word sequences {now} occurred before in it; at first it was {before}."),
        _("The text has degenerated: the policy is collapsing, or the reward pays for length or for certain words."),
        _(
            "mean of `completions/repeated_share` over `window` steps ≥ that of the run's first tenth + "
            "`repetition_share`"
        ),
        "Holtzman et al.: The curious case of neural text degeneration (arXiv 1904.09751)",
        _("Read them. Continue from an earlier checkpoint with a lower learning rate, or a penalty for repetition."),
        ("window", "repetition_share"),
        ("rollouts", "lab", "stop"),
    ),
    "looping": Rule(
        _("The same call again and again"),
        "warn",
        _("{cases} of {rollouts} rollouts make one call again and again without solving the task."),
        _("The policy does not use what the environment answers, or each call is rewarded."),
        _(
            "unsolved rollouts with 4 or more identical calls that make at least half of all their calls ÷ rollouts, "
            "over `window` steps ≥ `loop_share`, and at least 8"
        ),
        OWN,
        _("Read what the tool answered. Pay a call once only, or pay for the outcome alone."),
        ("window", "loop_share"),
        ("rollouts", "lab"),
    ),
    "format_decay": Rule(
        _("Calls become unreadable"),
        "warn",
        _("Rollouts with calls that cannot be read rose from {before} to {now}."),
        _("The policy forgets the format of tool calls, so the tools are never reached."),
        _(
            "rollouts with parse errors ÷ rollouts, over `window` steps, ≥ `format_rise` above that of about 10 steps "
            "before or of the run's first tenth, and at least 8 rollouts"
        ),
        OWN,
        _(
            "Read such a turn as it was sampled. Check the dialect (`rollout.dialect`); continue from an earlier "
            "checkpoint, with a KL weight or a format component."
        ),
        ("window", "format_rise"),
        ("rollouts", "stop"),
    ),
    "tool_failures": Rule(
        _("Tool calls fail"),
        "warn",
        _("{failed} of {calls} tool calls were answered by an error."),
        _(
            "The model calls tools wrongly, or a tool is out of order; then the model is punished for a fault that "
            "is not its own."
        ),
        _(
            "failed ÷ all tool calls over `window` steps ≥ `tool_failure_share`, or `tool_failure_rise` above that of "
            "about 10 steps before or of the run's first tenth; at least 20 calls"
        ),
        OWN,
        _("Read the answers. If the tool is at fault, repair its environment and let its errors exclude the rollout."),
        ("window", "tool_failure_share", "tool_failure_rise"),
        ("rollouts", "stop"),
    ),
    "judge_failures": Rule(
        _("Judges do not answer"),
        "warn",
        _("{failed} of {asked} requests were answered by no judge."),
        _("Rollouts without a judgement are excluded, so the run pays for rollouts that teach nothing."),
        _("`judge/failures` ÷ `judge/requests` over `window` steps ≥ `judge_failure_share`; at least 5 requests"),
        OWN,
        _("Check the judge's endpoint, its limits and its key. The run's log names the errors."),
        ("window", "judge_failure_share"),
        ("rollouts",),
    ),
    "excluded_share": Rule(
        _("Many rollouts excluded"),
        "warn",
        _("{share} of the rollouts failed outside the policy."),
        _("Excluded rollouts are not learned from: steps cost more, and groups grow small."),
        _("mean of `rollouts/excluded_share` over `window` steps ≥ `excluded_share`"),
        OWN,
        _("Read their errors: an environment that is overloaded wants more replicas, fewer sessions or longer limits."),
        ("window", "excluded_share"),
        ("rollouts", "stop"),
    ),
    "excluded_bias": Rule(
        _("Harder tasks are lost"),
        "warn",
        _("{lost} rollouts were lost; where some were, {theirs} of the others are solved, elsewhere {others}."),
        _(
            "Lost rollouts are not random: long episodes of hard tasks reach time limits first. The model then "
            "learns from easier tasks than were drawn, and success looks better than it is."
        ),
        _(
            "over twice `window` steps with at least 5 excluded rollouts: success in groups that lost none − success "
            "of what is left in groups that lost some ≥ `excluded_gap`"
        ),
        "Rubin: Inference and missing data (Biometrika 63, 1976)",
        _("Give slow episodes more time (`environment.episode_timeout_s`), or more replicas, before training on."),
        ("window", "excluded_gap"),
        ("rollouts", "stop"),
    ),
    "stall": Rule(
        _("The run stalls"),
        "warn",
        _("A step takes {now} s, where {usual} s was usual."),
        _("The step waits for something: an environment, a judge, one slow rollout, or a machine that swaps."),
        _(
            "`timing/step`, or the time since the last step ended, ≥ `stall_ratio` × the median of the 20 before and "
            "≥ `stall_s`"
        ),
        OWN,
        _("Look at the slowest rollouts in flight and at the workers; lower `environment.episode_timeout_s`."),
        ("stall_ratio", "stall_s"),
        ("rollouts", "stop"),
    ),
    "slowing": Rule(
        _("Steps grow slow"),
        "note",
        _("A step takes {now} s, where {before} s was usual at first."),
        _("The same work costs more and more: memory that fills, a queue that grows, a machine that others use."),
        _(
            "median of `timing/step` over 20 steps ≥ `slow_ratio` × its mean in the run's first tenth, and 1.25 × what "
            "the growth of `completions/mean_length` explains"
        ),
        OWN,
        _("Compare the parts of a step (`timing/…`) now and at first, and look at the workers' memory."),
        ("slow_ratio",),
        ("rollouts",),
    ),
}
