"""Makes docs/algorithms.md: `python -m training docs algorithms`; a test keeps it current and whole.

Each algorithm has its paper, its formula in plain text, its options and when to use it. Titles, defaults and limits of
options are in docs/configuration.md; here they are only named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# --- Reference entries ----------------------------------------------------------------------------------------------
# What docs/algorithms.md says of each method, loss and setting: paper, formula, options, and when to use it.


class Entry(NamedTuple):
    """One algorithm, loss or setting. ``names`` are a method's kind, or values or options of the config."""

    names: tuple[str, ...]
    paper: str
    formula: str
    use: str
    options: tuple[str, ...] = ()


METHODS = (
    Entry(
        ("grpo",),
        "Shao et al. 2024, *DeepSeekMath*",
        "A = (r − mean of the group) / (std of the group + 1e-4), for every token that the model sampled",
        "Multi-turn tasks with rewards from environments, judges or functions. Needs no value model.",
        (
            "grpo.scale_rewards",
            "grpo.num_iterations",
            "grpo.mask_truncated",
            "grpo.credit",
            "rewards.aggregation",
            "rewards.signal",
        ),
    ),
    Entry(
        ("rloo",),
        "Ahmadian et al. 2024, *Back to Basics: Revisiting REINFORCE-Style Optimization*",
        "A = R − mean R of the group's other rollouts, R = r − β Σ (log π − log π_ref); loss = −A Σ log π of the "
        "rollout's tokens, averaged over rollouts",
        "Where one update is made of each sampling: no ratio, no clipping, no division by the spread of a group, so "
        "that a group with a small spread does not count as much as one with a large one. The advantage is computed "
        "here within TRL's GRPO trainer, because TRL's own RLOO trainer takes neither multi-turn rollouts nor a mask "
        "of the environment's tokens. Journalled advantages are those of the rewards; the pull is the curve of `kl`.",
        ("rloo.beta", "rloo.mask_truncated", "rloo.credit"),
    ),
    Entry(
        ("ppo",),
        "Schulman et al. 2017, *Proximal Policy Optimization Algorithms*; advantages: Schulman et al. 2016, "
        "*High-Dimensional Continuous Control Using Generalized Advantage Estimation*",
        "A_t = δ_t + γλ A_t+1, δ_t = r_t + γ V_t+1 − V_t over the model's own tokens, then whitened; loss = that of "
        "`dapo` + c · ½ mean max((V − R)², (clip(V, V_old ± reach) − R)²), R = A + V_old",
        "Tasks that are played once or a few times each, long episodes, and rewards of which a value can show "
        "which part of a rollout earned them. Values are one linear layer over the model's last hidden states, "
        "learned with it, and one more forward a sampling; its start is below. The reward is at the last "
        "own token; tokens of the environment are passed over: the value after one's last token is that of the "
        "next own one. A rollout that was cut off ends there. The pull β (log π − log π_ref) is taken from the "
        "reward of each token. Journalled rollouts have no advantage, since each token has its own.",
        (
            "ppo.gamma",
            "ppo.lam",
            "ppo.beta",
            "ppo.epsilon",
            "ppo.cliprange_value",
            "ppo.value_coef",
            "ppo.critic_learning_rate",
            "ppo.critic_warmup",
            "ppo.whiten_advantages",
            "ppo.num_iterations",
            "ppo.entropy_coef",
            "ppo.mask_truncated",
            "ppo.credit",
            "ppo.sampler_correction",
            "ppo.sampler_ratio_max",
        ),
    ),
    Entry(
        ("dpo",),
        "Rafailov et al. 2023, *Direct Preference Optimization*",
        "−log σ(β (Δ chosen − Δ rejected)), Δ = Σ (log π − log π_ref) over an answer's own tokens",
        "Pairs of a better and a worse answer: uploaded ones, or the best and worst rollouts of each task of a run. "
        "Needs no environment while it trains. What tools answered within an answer is read and not learned.",
        (
            "dpo.loss_type",
            "dpo.beta",
            "dpo.imitation_weight",
            "dpo.label_smoothing",
            "dpo.batch_size",
            "dpo.max_length",
        ),
    ),
    Entry(
        ("sft",),
        "Ouyang et al. 2022, *Training language models to follow instructions*, step 1",
        "−mean log π over the tokens that assistants wrote",
        "Demonstrations, before any of the others: a model that never solves a task has nothing to be rewarded for.",
        ("sft.batch_size", "sft.max_length", "sft.packing", "sft.held_out_share", "sft.held_out_every"),
    ),
)
LOSSES = (
    Entry(
        ("dapo",),
        "Yu et al. 2025, *DAPO*",
        "−Σ min(ρ A, clip(ρ, 1 − ε, 1 + ε above) A) / tokens of the step",
        "The default: long rollouts count by their tokens.",
        ("grpo.epsilon", "grpo.epsilon_high", "grpo.delta"),
    ),
    Entry(
        ("grpo",),
        "Shao et al. 2024",
        "the same, averaged over each rollout's tokens, then over rollouts",
        "As published; prefers short answers where they are good, and long ones where they are bad.",
    ),
    Entry(
        ("bnpo",),
        "– (an averaging of TRL)",
        "the same, over the tokens of the micro batch",
        "Where micro batches are the whole step, it is dapo.",
    ),
    Entry(
        ("dr_grpo",),
        "Liu et al. 2025, *Understanding R1-Zero-Like Training*",
        "the same, divided by rollouts × `rollout.max_completion_tokens`",
        "Without bias by length; with `scale_rewards: none` as published.",
    ),
    Entry(
        ("cispo",),
        "MiniMax 2025, *MiniMax-M1*; the limit as in Khatri et al. 2025, *The Art of Scaling RL Compute*",
        "−Σ sg[min(ρ, limit)] A log π / tokens of the step",
        "Several updates of one sampling: tokens that clipping would silence still teach, with a bounded weight. "
        "`grpo.epsilon_high` is the limit itself.",
        ("grpo.epsilon_high",),
    ),
    Entry(
        ("sapo",),
        "Gao et al. 2025, *Soft Adaptive Policy Optimization*",
        "−mean over rollouts of mean over tokens of σ(τ (ρ − 1)) · 4/τ · A, τ by the sign of A",
        "Several updates of one sampling, where a hard edge makes training jump.",
        ("grpo.sapo_temperature_pos", "grpo.sapo_temperature_neg"),
    ),
    Entry(
        ("luspo",),
        "*Length-Unbiased Sequence Policy Optimization* 2026 (arXiv 2602.05261)",
        "−mean over rollouts of length · min(ρ A, clip(ρ) A), ρ the geometric mean of the rollout's ratios",
        "GSPO where answers shrink during training. Needs `grpo.importance_sampling: sequence`.",
        ("grpo.importance_sampling", "grpo.epsilon"),
    ),
    Entry(
        ("vespo",),
        "*Variational Sequence-Level Soft Policy Optimization* 2026 (arXiv 2602.10693)",
        "−Σ sg[w^k e^(λ (1 − w))] A log π / tokens of the step, w the product of the rollout's ratios",
        "Stale rollouts: a rollout far from the policy loses weight smoothly instead of token by token.",
        ("grpo.vespo_k_pos", "grpo.vespo_lambda_pos", "grpo.vespo_k_neg", "grpo.vespo_lambda_neg"),
    ),
)
PAIR_LOSSES = (
    Entry(("sigmoid",), "Rafailov et al. 2023", "−log σ(β margin)", "The default."),
    Entry(
        ("ipo",),
        "Azar et al. 2023, *A General Theoretical Paradigm*",
        "(margin per token − 1/(2β))²",
        "Clear pairs that DPO would push without end.",
    ),
    Entry(
        ("hinge",),
        "Zhao et al. 2023, *SLiC-HF*",
        "max(0, 1 − β margin)",
        "Pairs that are to count no more once they are distinguished.",
    ),
    Entry(
        ("robust",),
        "Chowdhury et al. 2024, *Provably Robust DPO*",
        "((1 − e) · −log σ(β margin) + e · log σ(−β margin)) / (1 − 2e)",
        "Pairs of which a share e is the wrong way round, such as those of a judge.",
        ("dpo.label_smoothing",),
    ),
)
CREDIT = (
    Entry(
        (
            "grpo.credit",
            "grpo.credit_weight",
            "grpo.credit_discount",
            "rloo.credit",
            "rloo.credit_weight",
            "rloo.credit_discount",
        ),
        "Reward to go: Williams 1992, *Simple Statistical Gradient-Following Algorithms*; Baxter and Bartlett 2001. "
        "Turns of a group compared by number: Zeng et al. 2025, *Turn-Level Credit Assignment* (arXiv 2505.11821). "
        "Discounted returns of steps: Feng et al. 2025, *GiGPO* (arXiv 2505.10978)",
        "A_k = (M_k − mean M_k) / (std M_k + 1e-4) for the tokens of turn k of K; M_k = r − w C_k; "
        "C_k = Σ g_l over l < k + Σ (1 − γ^(l − k)) g_l over k < l < K; g_l = what the environment's reward gained "
        "with the answer to turn l, times the weight of `task_success`; w `credit_weight`, γ `credit_discount`",
        "Environments that pay during an episode. What is paid before a turn does not depend on it and is only "
        "noise to it; with γ below 1 what is paid long after it counts less, with 0 only its own gain and the last "
        "answer's. See *Credit to turns* below.",
    ),
    Entry(
        ("ppo.credit",),
        "Zeng et al. 2025, *Turn-Level Credit Assignment* (arXiv 2505.11821)",
        "r_t = g_l at the last own token of turn l < K, r − Σ g_l at the rollout's",
        "The same with values: they learn what is still to come, and `ppo.gamma` and `ppo.lam` discount by token.",
    ),
)
SETTINGS = (
    Entry(
        ("grpo.beta", "grpo.ref_sync_steps", "grpo.ref_sync_share"),
        "Schulman 2020 (k3); DeepSeek-V3.2 2025; Gorbatovski et al. 2024, *Learn Your Reference Model*",
        "β ρ (e^d − d − 1), d = log π_ref − log π, added to each token; every n steps π_ref ← α π + (1 − α) π_ref",
        "Fine-tuned models that have something to lose. A reference that follows lets them go further; checkpoints "
        "hold it, so a resumed run pulls to where it did. Not with LoRA.",
    ),
    Entry(
        ("grpo.top_entropy_share",),
        "Wang et al. 2025, *Beyond the 80/20 Rule*",
        "only the tokens above the (1 − share) quantile of entropy have a loss; the divisor stays",
        "Long reasoning, where most tokens are foregone. The quantile is of a micro batch.",
    ),
    Entry(
        ("grpo.off_policy_limit",),
        "DeepSeek-V3.2 2025, eq. 9",
        "rollouts with A < 0 and mean (log π_sampler − log π) > limit have no loss",
        "Many updates of one sampling, or a sampler that differs from the trainer.",
    ),
    Entry(
        ("grpo.sampler_correction", "grpo.sampler_ratio_max"),
        "Yao et al. 2025, *Your Efficient RL Framework Secretly Brings You Off-Policy RL Training*",
        "loss of each token (or rollout) × min(limit, sg(π of the trainer / π of the sampler)), or left out above it",
        "Whenever the sampler computes otherwise than the trainer: vLLM, and bfloat16 in process. A growing share at "
        "the limit (`sampling/truncated_share`) says that the two have drifted apart.",
    ),
    Entry(
        ("grpo.importance_sampling",),
        "Zheng et al. 2025, *Group Sequence Policy Optimization*",
        "ρ = e^(mean over the rollout's tokens of log π − log π_old)",
        "Mixture-of-experts models, whose single ratios are noisy; with the loss grpo as published.",
    ),
    *CREDIT,
    Entry(
        ("grpo.entropy_coef",),
        "Mnih et al. 2016, *Asynchronous Methods*",
        "− weight · mean entropy of the tokens",
        "A policy that settles too early.",
    ),
    Entry(
        ("ppo.critic_warmup", "ppo.critic_learning_rate"),
        "the warm-up after verl's `trainer.critic_warmup`, which plays samplings for it",
        "first the bias b = mean R, R the returns of the first sampling that are made with V = b (λ 1: the mean over "
        "tokens of what follows, discounted); then n times AdamW on ½ mean (V − R)² over all its own tokens, of the "
        "head alone",
        "The start is always made, at the first sampling with rollouts that count; excluded ones have no part, the "
        "pull of β has. The warm-up is off at 0. It comes after the first advantages are made and before the policy's "
        "first update: the policy does not move, no step is counted, the learning rate's schedule stays at its "
        "beginning, and `ppo.value_coef` has no part. It costs two forwards of one sampling, however many updates, "
        "and sums of width² numbers. A run that continues, and a later stage, has the head of its checkpoint. "
        "Explained variance on the demo task, 64 rollouts a step, mean of steps 2 to 25 (and at how many of the 24 it "
        "is above 0), two seeds: −0.08 and −0.06 (7 and 0) with a head that starts at 0 and moves by 0.05 an update, "
        "0.10 and 0.05 (22 and 23) as it is now, 0.12 and 0.07 (24 and 22) with 20 updates of warm-up; the rewards are "
        "alike. `benchmarks/values.py`.",
    ),
    Entry(
        ("optim.micro_batch_size", "optim.max_tokens_per_micro_batch"),
        "– (arithmetic)",
        "rows of an update, the longest first, n at a time; or as many as rows × longest ≤ limit",
        "An update that does not fit at once. A forward pass is as wide as the longest row in it, and a sum over the "
        "update does not depend on how rows were dealt. With the limit a long rollout has a pass of its own and short "
        "ones share one. Rows keep TRL's random order where a mean is one of a micro batch: bnpo, the entropy bonus, "
        "the undecided tokens; those refuse the limit.",
    ),
    Entry(
        ("optim.packing",),
        "after Krell et al. 2021; Dao 2023, *FlashAttention-2* (varlen)",
        "the rows of a micro batch follow each other in one of their own tokens, by first fit where a limit "
        "of tokens is set; attention goes through each row alone",
        "Rollouts of uneven length: no cell is computed that is no token (1.00 a token; without it 1.16 on a "
        "long-tailed sampling, 1.04 with a limit of tokens), so the gain is what dealing by length leaves. "
        "The gradient stays what it is. Attention costs Σ length², with no mask over the whole row, on a "
        "processor too. A model whose layers carry something along a row (qwen3_5, qwen3_next, lfm2, "
        "falcon_h1, bamba, llama4's chunks, bloom) is refused by name when the run starts: two rows are "
        "tried, and what each is given has to be what it is given alone.",
    ),
    Entry(
        ("model.attention",),
        "–",
        "what computes attention in training: PyTorch's own, written out, or FlashAttention 2",
        "FlashAttention 2 on a CUDA GPU with bfloat16 and flash-attn (`pip install flash-attn`, not among the "
        "locked packages); refused by name elsewhere, as is an attention that a family does not have. The "
        "trainer's own sampler decodes as it always does.",
    ),
    Entry(
        ("model.quantization",),
        "Dettmers et al. 2023, *QLoRA*",
        "the base's linear layers in NF4, their constants quantised too: 4.13 bits a weight; the adapter in float32",
        "An adapter over a base that does not fit otherwise. One CUDA GPU; slower. With vLLM the importance "
        "correction has to be on, since it samples from the base as it is stored.",
    ),
    Entry(
        ("vllm.sleep",),
        "–",
        "the server leaves the device to training and takes it back to sample",
        "One card that would not hold both. Seconds a step; not with playing ahead.",
    ),
    Entry(
        ("vllm.quantization",),
        "Yao et al. 2025; Micikevicius et al. 2022, *FP8 Formats for Deep Learning*",
        "the sampler's weights in 8 or 4 bits; the loss weighs samples by π of the trainer / π of the sampler",
        "Sampling that is short of memory or time. Look at `sampling/truncated_share`: what is cut there is "
        "not corrected for.",
    ),
    Entry(
        ("rewards.signal",),
        "after DAPO's dynamic sampling",
        "groups whose rewards (or outcomes) are equal have no loss, KL and entropy terms included",
        "Shaped rewards on hard tasks: where all rollouts of a group fail, what still differs is shaping alone, and "
        "learning from it teaches to fail more nicely. `outcome` asks the environment's verdict; without one, rewards.",
    ),
    Entry(
        ("rollout.refill_rounds",),
        "Yu et al. 2025, *DAPO*, dynamic sampling",
        "the place of a group whose rewards are equal goes to a group of another task, in up to so many rounds",
        "Tasks that are mostly too easy or too hard: every step then learns from as many groups. Costs the rollouts "
        "that are played on top (`rollouts/extra`).",
    ),
    Entry(
        ("data.draw",),
        "Foster et al. 2025, *Learning to Reason at the Frontier of Learnability*; Qu et al. 2025, *Can Prompt "
        "Difficulty be Online Predicted*",
        "chance = (1 − u) L / Σ L + u / tasks, L = αβ / ((α + β)(α + β + 1)), α = m/2 + solved, β = m/2 + failed; a "
        "rollout counts half after h samplings",
        "Sets of which most tasks are solved or hopeless, and which are played several times: rollouts go where a "
        "group teaches. Whether a task is solved is the environment's verdict, else the reward between the lowest and "
        "the highest that were seen. See [curriculum.md](curriculum.md#tasks-drawn-by-their-own-pass-rate).",
        ("data.draw_even_share", "data.draw_prior", "data.draw_half_life"),
    ),
    Entry(
        ("rollout.max_staleness",),
        "Noukhovitch et al. 2024, *Asynchronous RLHF*",
        "rollouts come from weights that miss at most so many samplings' updates",
        "A vLLM server on devices of its own: sampling and training run at once. 1 is enough where both take "
        "about as long; the correction for the sampler weighs what is older.",
    ),
    Entry(
        ("sft.packing",),
        "after Krell et al. 2021, *Efficient Sequence Packing without Cross-contamination*",
        "first-fit of a micro batch's conversations, the longest first; positions from 0 and a mask for each",
        "Conversations of uneven length. The loss stays what it is, and the model proves before the first step that "
        "its layers keep conversations apart.",
    ),
)


_HEAD = """# Algorithms

Made from `training/algorithms/reference.py` by `python -m training docs algorithms`. What each method and
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

With `credit: turns` each turn has an advantage of its own besides the rollout's. What that means at its edges:

- **An environment that pays at the end alone**: nothing is taken off, and every turn has exactly the rollout's
  advantage. What comes with the last answer is the outcome, for which all turns answer.
- **An answer without a reward** has not paid 0: what is known stays as it was, and the next answer with a reward is
  credited with the difference. A rollout of several turns whose environment said no reward before the end keeps the
  rollout's advantage and has no part in the others' means; `credit/silent_share` counts those. A reward that the
  reset does not mention begins at 0.
- **Unequal numbers of turns**: mean and spread of M_k are over the rollouts of the group that reached turn k. That is
  biased where reaching it is itself good or bad: if only those that have earned nothing continue, they are compared
  among themselves. Fewer than two that reached a turn are not compared: the turn has the rollout's advantage.
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
