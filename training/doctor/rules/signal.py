"""Advisories about what is learned: the signal of the groups, and where it leads."""

from __future__ import annotations

from training.doctor.rules.words import OWN, Rule
from training.words import _

SIGNAL: dict[str, Rule] = {
    "no_spread": Rule(
        _("Groups without spread"),
        "warn",
        _("{share} of the groups have equal rewards, with {solved} of the rollouts solved."),
        _(
            "A group whose rewards are equal has no advantage, so its rollouts cost time and teach nothing. The tasks "
            "are too easy or too hard for the model, or the reward cannot tell the answers apart."
        ),
        _("mean of `groups/zero_variance_share` over twice `window` steps ≥ `no_spread_share`"),
        "DAPO, dynamic sampling (arXiv 2503.14476)",
        _(
            "Take harder tasks if most are solved, easier ones or a warm-up if few are; draw other tasks for such "
            "groups with `rollout.refill_rounds`; raise the temperature or the group size."
        ),
        ("window", "no_spread_share"),
        ("rollouts", "lab", "stop"),
    ),
    "phantom_share": Rule(
        _("Phantom groups"),
        "warn",
        _("In {cases} of {groups} groups the rewards differ although all outcomes are the same."),
        _(
            "The advantage of these groups comes from shaping alone: where all have failed, the model is taught to "
            "fail more nicely. It is right early in training, and misleads if it lasts."
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
            "The model has found something that the reward pays for and that does not solve the task. Held-out success "
            "is what is compared where the run plays held-out tasks, else that of its rollouts."
        ),
        _(
            "mean reward of `window` steps − mean of the steps about 10 before ≥ `reward_gain` × `reward_std` and ≥ "
            "5% of the larger, while success rose by no more than `success_gain` and is below 0.95"
        ),
        "Gao, Schulman, Hilton: Scaling laws for reward model overoptimization (arXiv 2210.10760)",
        _(
            "Read unsolved rollouts with high rewards and find what earns them. Change the reward in the lab, and go "
            "on from a checkpoint before the rise. A KL weight (`grpo.beta`) slows it down and does not end it."
        ),
        ("window", "reward_gain", "success_gain"),
        ("rollouts", "lab", "stop"),
    ),
    "collapse": Rule(
        _("Collapse"),
        "stop",
        _("From {best} at its best to {now}."),
        _("The model has unlearned what it could. Training on from here seldom recovers."),
        _(
            "best mean of `window` steps − mean of the newest ≥ `collapse_share` × the best, and at least 0.2, of task "
            "success; without it of the reward, by at least `reward_std`"
        ),
        OWN,
        _("Stop, and go on from the best checkpoint with a lower learning rate or a KL weight."),
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
            "`entropy_floor` × its mean over the first 10"
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
        _("The weights do not move: what the run costs, it spends for nothing."),
        _(
            "`learning_rate` is 0 for 5 steps; or `grad_norm` ≤ 1e-8 for 5 steps of which each has a group with "
            "spread; or `kl` ≤ `no_effect_kl` for 10 such steps"
        ),
        OWN,
        _(
            "Check the learning rate and its schedule (`optim`), and whether the adapter reaches the layers that it "
            "should (`model.lora_targets`)."
        ),
        ("no_effect_kl",),
        ("stop",),
    ),
}
