"""Advisories about what is learned: the signal of the groups, and where it leads."""

from __future__ import annotations

from training.doctor.rules.words import OWN, Rule
from training.words import _

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
