"""Names of metrics: which of other trainers' mean the same as one of ours.

Every metric is kept under its own name. One that is listed here is also recorded under ours, so that the run page,
comparisons, the doctor and the lab know it; where two of a step mean the same, the one that is listed first counts.
"""

from __future__ import annotations

import re

METRICS: dict[str, tuple[str, ...]] = {
    "reward": ("critic/score/mean", "critic/rewards/mean", "reward_mean", "reward/mean"),
    "reward_std": ("group_reward_std", "critic/score/std"),
    "kl": ("actor/kl_loss", "critic/kl", "actor/reward_kl_penalty", "objective/kl", "kl_mean", "kl_loss"),
    "entropy": ("actor/entropy", "actor/entropy_loss", "policy/entropy_avg", "entropy_mean", "entropy_loss"),
    "loss": ("actor/loss",),
    "grad_norm": ("actor/grad_norm", "actor_grad_norm"),
    "learning_rate": ("actor/lr", "actor_lr", "lr"),
    "clip_ratio/region_mean": (
        "actor/pg_clipfrac",
        "ppo_clip_ratio",
        "policy/clipfrac_avg",
        "pg_clipfrac",
        "clip_fraction",
    ),
    "value/loss": ("critic/vf_loss", "loss/value_avg", "critic_loss", "value_loss"),
    "value/explained_variance": ("critic/vf_explained_var", "value_explained_variance", "explained_variance"),
    "value/mean": ("critic/values/mean",),
    "value/clip_share": ("critic/vf_clipfrac", "val/clipfrac_avg"),
    "completions/mean_length": (
        "response_length/mean",
        "response_length",
        "completion_length",
        "completion_len_mean",
    ),
    "completions/min_length": ("response_length/min",),
    "completions/max_length": ("response_length/max", "completion_len_max"),
    "completions/repeated_share": ("repetition_rate", "repetition_frac"),
    "rollouts/truncated_share": (
        "completions/clipped_ratio",
        "response_length/clip_ratio",
        "truncated_ratio",
        "truncation_rate",
        "truncated",
    ),
    "rollouts/task_success": ("episode/success_rate", "success_rate"),
    "rollouts/turns_mean": ("num_turns/mean",),
    "rollouts/calls_mean": ("tool_call_counts/mean", "tools/call_frequency"),
    "groups/zero_variance_share": ("frac_reward_zero_std", "zero_variance_group_frac"),
    "advantages/zero_share": ("adv_zero_frac", "actor/zero_advantage_frac"),
    "timing/step": ("timing_s/step", "perf/time_per_step", "timing/step_total", "step_time", "step_time_s"),
}
"""Our name → theirs."""
PREFIX = "train/"
"""Weights & Biases and TensorBoard put this before the names of many trainers; those of Hugging Face are ours then."""
_OURS = {
    spelled: ours for ours, theirs in METRICS.items() for name in theirs for spelled in (name, name.replace("/", "_"))
}  # tables often write verl's names with underscores
_PREFIXED = (*METRICS, "mean_token_accuracy", "num_tokens")
HELD_OUT: dict[str, tuple[str, ...]] = {
    "heldout/success": ("acc", "accuracy", "success", "success_rate", "solve_rate", "pass@1", "pass1", "exact_match"),
    "heldout/reward": ("reward", "score", "test_score"),
}
"""Our name → the word of it in theirs, behind `eval/`, `eval_`, `val/`, `val-core/` or `validation/` and a data set's
name: `eval/accuracy`, `val-core/gsm8k/acc/mean@1`, `eval_math_pass1`."""
_EVALUATED = re.compile(
    rf"(?:eval|val|val-core|validation)[/_](?:.+[/_])?(?:{'|'.join(sum(HELD_OUT.values(), ()))})(?:/mean(?:@|_at_)\d+)?"
)
_MEAN_OF = re.compile(r"/mean(?:@|_at_)\d+$")
_OLD_SCORE = re.compile(r"val/test_score/.+")
_PART = re.compile(
    r"(?:reward_components?[./]|rewards/(?!(?:accuracies|margins|chosen|rejected|mean|std|min|max)$))(?P<part>[^/]+)$"
)
"""One part of the reward: TRL wrote `rewards/<function>` before 0.17."""


def ours(name: str) -> str:
    """Our name for a metric, or ``""`` where we have none or it is ours already."""
    if name in _OURS:
        return _OURS[name]
    if held_out := _held_out(name):
        return held_out
    plain = name.removeprefix(PREFIX)
    if part := _PART.match(plain):
        return f"rewards/{part['part']}/mean"
    if plain == name:
        return ""
    if plain in _PREFIXED or plain.startswith(("rewards/", "completions/", "clip_ratio/")):
        return _OURS.get(plain, plain)
    return _OURS.get(plain, "")


def _held_out(name: str) -> str:
    """Whether it is an evaluation's success or its reward. Those of verl's `val-core/` end in a mean over tries."""
    if _OLD_SCORE.fullmatch(name):
        return "heldout/reward"
    if not _EVALUATED.fullmatch(name) or (name.startswith("val-core") and not _MEAN_OF.search(name)):
        return ""
    if "rewards/" in name or "token" in name:  # a part of the reward; the accuracy of single tokens
        return ""
    plain = _MEAN_OF.sub("", name)
    for our, words in HELD_OUT.items():
        if any(re.search(rf"[/_]{re.escape(word)}$", plain) for word in words):
            return our
    return ""


def mapped(values: dict[str, float]) -> tuple[dict[str, float], dict[str, str]]:
    """The values under their own names and ours, and which of theirs became which of ours.

    What is no share is no held-out success: some write percent.
    """
    chosen: dict[str, tuple[int, str]] = {}
    for name in values:
        our = ours(name)
        if our and our not in values and not (our == "heldout/success" and not 0 <= values[name] <= 1):
            theirs = [spelled for each in METRICS.get(our, ()) for spelled in (each, each.replace("/", "_"))]
            plain = name if name in theirs else name.removeprefix(PREFIX)
            rank = theirs.index(plain) if plain in theirs else -1 if plain == our else len(theirs)
            chosen[our] = min(chosen.get(our, (rank, name)), (rank, name))
    became = {name: our for our, (_rank, name) in chosen.items()}
    return {**values, **{our: values[name] for our, (_rank, name) in chosen.items()}}, became
