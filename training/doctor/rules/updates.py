"""Advisories about single updates, and about the sampler that they rest on."""

from __future__ import annotations

from training.doctor.rules.words import OWN, Rule
from training.words import _

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
