"""The advisories in words: codes are stable, ``RULES`` is in the order of docs/doctor.md."""

from __future__ import annotations

from typing import Literal, NamedTuple

from training.words import _

Severity = Literal["stop", "warn", "note"]
Act = Literal["rollouts", "lab", "stop", "slower"]
OWN = _("our own rule")


class Rule(NamedTuple):
    """One advisory in words.

    ``sentence`` says what was found ({name} are figures), ``meaning`` why it matters, ``formula`` when it is given,
    with ``options`` by name, ``source`` where the rule comes from, ``remedy`` what to do. ``acts`` are what a page
    offers with it; ``slower`` is a child with half the learning rate.
    """

    title: str
    severity: Severity
    sentence: str
    meaning: str
    formula: str
    source: str
    remedy: str
    options: tuple[str, ...]
    acts: tuple[Act, ...] = ()


SIGNAL: dict[str, Rule] = {
    "no_spread": Rule(
        _("Zero-variance groups"),
        "warn",
        _("{share} of the groups have equal rewards, with {solved} of the rollouts solved."),
        _(
            "A group whose rewards are equal has no advantage, so its rollouts cost time and teach nothing. The tasks "
            "are too easy or too hard for the model, or the reward cannot tell the answers apart."
        ),
        _(
            "mean of `groups/zero_variance_share` over twice `window` steps ≥ `no_spread_share`; or over `long_window` "
            "steps ≥ `no_spread_long`, unless 0.8 of their rollouts are solved"
        ),
        "DAPO, dynamic sampling (arXiv 2503.14476)",
        _(
            "Take harder tasks if most are solved, easier ones or a warm-up if few are; draw other tasks for such "
            "groups with `rollout.refill_rounds`; raise the temperature or the group size."
        ),
        ("window", "long_window", "no_spread_share", "no_spread_long"),
        ("rollouts", "lab", "stop"),
    ),
    "zero_advantages": Rule(
        _("Advantages of 0"),
        "warn",
        _("{share} of the advantages are 0."),
        _("Nothing is learned where the advantage is 0: rewards are too alike, or their scale was lost on the way."),
        _(
            "mean of `advantages/zero_share` over twice `window` steps ≥ `no_spread_share`, or over `long_window` "
            "steps ≥ `no_spread_long`"
        ),
        "DAPO, dynamic sampling (arXiv 2503.14476)",
        _("Look at the rewards of some groups. If they differ, look at how they are scaled."),
        ("window", "long_window", "no_spread_share", "no_spread_long"),
        ("lab", "stop"),
    ),
    "no_calls": Rule(
        _("No call was read"),
        "stop",
        _("{rollouts} rollouts in a row were offered tools, and none has a call that could be read."),
        _(
            "The model writes calls in a form other than the one that is read, or it does not know that it may call "
            "tools."
        ),
        _("`rollouts/calls_mean` is 0 in the newest steps, which have 16 rollouts or more together"),
        OWN,
        _(
            "Read a turn as it was sampled. If it holds a call, choose the dialect that reads it "
            "(`rollout.dialect`); if not, begin with demonstrations or another model."
        ),
        (),
        ("rollouts", "stop"),
    ),
    "dominant_part": Rule(
        _("One part dominates the reward"),
        "warn",
        _("{part} has {share} of what makes rewards differ, and pays {pays}; {task} pays {earns}."),
        _(
            "A group is compared by what differs in it. If that is a part about form, the model is trained on form; "
            "the task is solved too rarely or pays too little to be noticed."
        ),
        _(
            "from step 2 × `long_window` on: the part that judges the task pays at most half of what another part "
            "does, and that one has ≥ `part_share` of the variance of all parts over `long_window` steps and is not "
            "being learned (`rewards/…/std` where it is known, else the variance of `rewards/…/mean`; before "
            "weights), or it was learned while the task's part has not moved for a third of the run after it had "
            "risen"
        ),
        OWN,
        _(
            "Lower the weight of that part, or pay it only where the task is solved. A part that all rollouts earn "
            "can be removed."
        ),
        ("long_window", "part_share"),
        ("lab", "stop"),
    ),
    "phantom_share": Rule(
        _("Phantom groups"),
        "warn",
        _("In {cases} of {groups} groups the rewards differ although all outcomes are the same."),
        _(
            "The advantage of these groups comes from shaping alone: where all have failed, the model is taught to "
            "fail more nicely. This is right early in training, and misleads if it lasts."
        ),
        _(
            "groups with different rewards and equal, known outcomes ÷ all groups of two or more, over twice "
            "`window` steps ≥ `phantom_share`, and at least 3"
        ),
        "GRPO's advantage (arXiv 2402.03300)",
        _(
            "Open the groups and read what the reward pays for. Gate the shaping components by the outcome, or learn "
            "from groups with both outcomes only (`rewards.signal: outcome`) in a child run."
        ),
        ("window", "phantom_share"),
        ("rollouts", "lab", "stop"),
    ),
    "shaping_above_outcome": Rule(
        _("Shaping above the outcome"),
        "stop",
        _("In {cases} of {groups} groups with mixed outcomes, an unsolved rollout earns the most."),
        _("The model is taught to prefer a nicely made failure to a plain success."),
        _(
            "groups with mixed outcomes whose highest reward is of a worse outcome ÷ groups with mixed outcomes, over "
            "`window` steps ≥ `inverted_share`, and at least 3"
        ),
        "Ng, Harada, Russell: Policy invariance under reward transformations (ICML 1999)",
        _(
            "Stop the run. In the reward lab lower the weights of shaping until no failure beats a success, or gate "
            "them, and train a child run with the new spec."
        ),
        ("window", "inverted_share"),
        ("rollouts", "lab", "stop"),
    ),
    "over_optimisation": Rule(
        _("Reward rises, success does not"),
        "stop",
        _("Reward rose from {low} to {high}; success went from {then} to {now}."),
        _(
            "The model has found something that the reward pays for and that does not solve the task. The comparison "
            "uses held-out success where the run plays held-out tasks, else the success of its rollouts."
        ),
        _(
            "mean reward of `window` steps − mean of the steps about 10 before ≥ `reward_gain` × `reward_std` and ≥ "
            "5% of the larger, while success rose by no more than `success_gain` and is below 0.95; or the same since "
            "the run's first tenth; or success has fallen from its best stretch by 0.1 and by four standard errors, "
            "and the reward has not"
        ),
        "Gao, Schulman, Hilton: Scaling laws for reward model overoptimization (arXiv 2210.10760)",
        _(
            "Read unsolved rollouts with high rewards and find what earns them. Change the reward in the lab, and "
            "continue from a checkpoint before the rise. A KL weight (`grpo.beta`) slows it down and does not end it."
        ),
        ("window", "reward_gain", "success_gain"),
        ("rollouts", "lab", "stop"),
    ),
    "collapse": Rule(
        _("Collapse"),
        "stop",
        _("From {best} at its best to {now}."),
        _("The model has lost what it had learned. Further training from here seldom recovers it."),
        _(
            "best mean of `window` steps − mean of the newest ≥ `collapse_share` × the best, and at least 0.2, of task "
            "success; without it of the reward, by at least `reward_std`"
        ),
        OWN,
        _("Stop, and continue from the best checkpoint with a lower learning rate or a KL weight."),
        ("window", "collapse_share"),
        ("rollouts", "stop", "slower"),
    ),
    "entropy_fall": Rule(
        _("Fall of the entropy"),
        "warn",
        _("Entropy fell from {before} to {now} nats."),
        _(
            "The policy is nearly certain of each token, so the rollouts of a group become the same and exploration "
            "ends, before the best way is found."
        ),
        _(
            "mean of `entropy` over `window` steps ≤ `entropy_ratio` × its mean about 10 steps before, or ≤ "
            "`entropy_floor` × its mean over the run's first tenth"
        ),
        "Cui et al.: The entropy mechanism of reinforcement learning (arXiv 2505.22617)",
        _(
            "Raise the upper clip range (`grpo.epsilon_high`) or the temperature, or lower the learning rate. If "
            "success is high and steady, the run is done."
        ),
        ("window", "entropy_ratio", "entropy_floor"),
        ("rollouts", "stop"),
    ),
    "no_effect": Rule(
        _("Updates without effect"),
        "warn",
        _("`{curve}` was at most {value} for {steps} steps."),
        _("The weights do not move, so the run spends its time for nothing."),
        _(
            "`learning_rate` is 0 for 5 steps; or `grad_norm` ≤ 1e-8 for 5 steps of which each has a group with "
            "variance; or `kl` ≤ `no_effect_kl` for 10 such steps"
        ),
        OWN,
        _(
            "Check the learning rate and its schedule (`optim`), and whether the adapter reaches the layers that it "
            "should (`model.lora_targets`)."
        ),
        ("no_effect_kl",),
        ("stop",),
    ),
    "plateau": Rule(
        _("Nothing more is learned"),
        "note",
        _("`{curve}` has been about {level} since step {step}."),
        _("The run has learned something and no longer improves: what follows costs time and gains nothing."),
        _(
            "from step 150 on: the last sixth of the run − the sixth before + three standard errors ≤ 3% of what was "
            "gained since the first tenth; of success (below 0.95), else of the reward"
        ),
        "Mann: Nonparametric tests against trend (Econometrica 13, 1945)",
        _("Stop, or continue from the best checkpoint with other tasks, a larger group or another learning rate."),
        (),
        ("stop",),
    ),
    "wasted_hours": Rule(
        _("Hours without a learning signal"),
        "note",
        _("{lost} of {spent} hours ({share}) went into rollouts that nothing is learned from."),
        _("Zero-variance groups and excluded rollouts cost as much as others. Multiply by the run's devices."),
        _(
            "`timing/step` × the share of rollouts in zero-variance groups or excluded, added up over the run, ≥ "
            "`wasted_hours` and ≥ `wasted_share` of all time"
        ),
        OWN,
        _(
            "Draw tasks that are solved sometimes (`data.draw`, `rollout.refill_rounds`, a curriculum), or repair what "
            "excludes rollouts."
        ),
        ("wasted_hours", "wasted_share"),
        ("stop",),
    ),
}


UPDATES: dict[str, Rule] = {
    "kl_spike": Rule(
        _("KL spike"),
        "warn",
        _("KL divergence {now} nats, where {usual} was usual."),
        _("One update has carried the policy far from the reference model; what it knew may be lost."),
        _("`kl` of a step ≥ `kl_ratio` × the upper quartile of the 20 before, and ≥ `kl_floor`"),
        "GRPO's KL estimator (arXiv 2402.03300)",
        _(
            "Read the step's rollouts. Lower the learning rate or raise `grpo.beta`; if success falls afterwards, "
            "continue from the checkpoint before."
        ),
        ("kl_ratio", "kl_floor"),
        ("rollouts", "stop", "slower"),
    ),
    "kl_drift": Rule(
        _("Far from the reference model"),
        "warn",
        _("KL divergence {now} nats."),
        _("Step by step the policy has moved away from the model that it began as; what that one knew may be lost."),
        _("mean of `kl` over `window` steps ≥ `kl_ceiling`"),
        "Gao, Schulman, Hilton: Scaling laws for reward model overoptimization (arXiv 2210.10760)",
        _("Raise `grpo.beta` or lower the learning rate, and continue from a checkpoint before it went that far."),
        ("window", "kl_ceiling"),
        ("rollouts", "stop", "slower"),
    ),
    "gradient_spike": Rule(
        _("Gradient spike"),
        "note",
        _("Gradient norm {now}, where {usual} was usual."),
        _("A few rollouts dominated the update. Clipping limits the harm; many spikes make training unstable."),
        _(
            "`grad_norm` of a step ≥ `gradient_ratio` × the upper quartile of the 20 before, or its median over "
            "`window` steps ≥ `gradient_ratio` × the median of the whole run"
        ),
        "Pascanu, Mikolov, Bengio: On the difficulty of training recurrent networks (arXiv 1211.5063)",
        _("Keep `optim.max_grad_norm` at 1 or below, lower the learning rate, or take more rollouts a step."),
        ("window", "gradient_ratio"),
        ("rollouts", "slower"),
    ),
    "no_gradient": Rule(
        _("No gradient, no choice"),
        "stop",
        _("The gradient was exactly 0 for {steps} steps, and the policy's entropy is {entropy} nats."),
        _(
            "An update went so far that the policy gives one token all probability at every position: rewards no "
            "longer differ, rollouts run to their limits, and no update will bring it back."
        ),
        _("`grad_norm` is 0 for `window` steps, and the mean of `entropy` is below 0.05"),
        OWN,
        _("Continue from a checkpoint before the gradient vanished, with a lower learning rate."),
        ("window",),
        ("stop", "slower"),
    ),
    "clip_share": Rule(
        _("Many tokens clipped"),
        "warn",
        _("{share} of the tokens are clipped."),
        _("A clipped token gets no gradient: the updates of a step go further than the sampled rollouts can justify."),
        _("mean of `clip_ratio/region_mean` over `window` steps ≥ `clip_share`"),
        "PPO (arXiv 1707.06347)",
        _("Lower the learning rate or `grpo.num_iterations`, or take larger mini-batches."),
        ("window", "clip_share"),
        ("stop", "slower"),
    ),
    "logprob_gap": Rule(
        _("Sampler and trainer disagree"),
        "stop",
        _("Log-probabilities differ by {gap} nats; {most} is the limit."),
        _(
            "The rollouts were sampled from a policy other than the one that is trained, so the gradient is biased. "
            "The cause is precision, weights that did not arrive complete, or a sampler that computes differently."
        ),
        _("`sampling/sampling_logp_difference/mean` ≥ `gap_mean`, or `sampling/logprob_gap_max` ≥ `gap_max`"),
        "Yao et al.: Your efficient RL framework secretly brings you off-policy RL training (2025)",
        _(
            "Sample in the precision that is trained, keep the importance correction on (`grpo.sampler_correction`), "
            "lower `rollout.max_staleness`."
        ),
        ("gap_mean", "gap_max"),
        ("stop",),
    ),
    "critic_blind": Rule(
        _("The critic explains nothing"),
        "warn",
        _("The values explain {now} of the returns' variance over {steps} steps; {best} at their best."),
        _("Advantages come from a critic that predicts no better than a constant, so they are mostly noise."),
        _(
            "mean of `value/explained_variance` over `window` steps ≤ 0, where it was 0.2 at its best or its mean "
            "over 20 steps is so too"
        ),
        "PPO (arXiv 1707.06347)",
        _("Lower the critic's learning rate, warm it up before the policy, or take a method without a critic."),
        ("window",),
        ("stop", "slower"),
    ),
}


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
    "device_idle": Rule(
        _("A device is idle"),
        "note",
        _("Device {device} of {host} worked for {share} of the time of {n} steps, {left} left out, by {by}. {cause}"),
        _("An idle device costs as much as one that works, and the run takes longer than it has to."),
        _(
            "of the device that worked least: over the last twice `window` steps, of which at least `window` count, "
            "share of the time in which it worked < `idle_share`. What NVML measured counts where it covers half of "
            "the time, else the share of generation and training in the time without evaluations. The first step of "
            "an attempt and steps that were held do not count"
        ),
        OWN,
        _(
            "End what it waits for longest: more sessions at once or more replicas for environments, playing ahead "
            "(`rollout.max_staleness`), faster rewards, several updates of each sampling, fewer checkpoints."
        ),
        ("window", "idle_share"),
    ),
}


__all__ = ["CURVES", "RULES", "SEVERITIES", "Rule"]

RULES: dict[str, Rule] = {**SIGNAL, **UPDATES, **ROLLOUTS}
SEVERITIES = {"stop": _("stop and look"), "warn": _("look soon"), "note": _("good to know")}
CURVES = {
    "phantom_share": _("Phantom groups"),
    "inverted_share": _("Groups where a failure wins"),
    "repetition_share": _("Rollouts that repeat themselves"),
    "loop_share": _("Rollouts that loop"),
    "unread_share": _("Rollouts with unreadable calls"),
    "tool_failure_share": _("Failed tool calls"),
    "judge_failure_share": _("Unanswered judge requests"),
    "success": _("Solved rollouts"),
    "device_work": _("Work of the device"),
}
"""Curves of evidence that are no metric of ``training/metrics.py``; shares from 0 to 1."""
