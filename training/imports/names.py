"""Names of metrics: which of other trainers' mean the same as one of ours.

Every metric is kept under its own name. One that is listed here is also recorded under ours, so that the run page,
comparisons and the lab know it; where two of a step mean the same, the one that is listed first counts.
"""

from __future__ import annotations

METRICS: dict[str, tuple[str, ...]] = {
    "reward": ("critic/score/mean", "critic/rewards/mean"),
    "kl": ("actor/kl_loss", "critic/kl", "actor/reward_kl_penalty", "objective/kl"),
    "entropy": ("actor/entropy", "actor/entropy_loss"),
    "loss": ("actor/loss",),
    "grad_norm": ("actor/grad_norm",),
    "learning_rate": ("actor/lr", "lr"),
    "clip_ratio/region_mean": ("actor/pg_clipfrac",),
    "value/loss": ("critic/vf_loss", "loss/value_avg"),
    "value/explained_variance": ("critic/vf_explained_var",),
    "value/mean": ("critic/values/mean",),
    "value/clip_share": ("critic/vf_clipfrac", "val/clipfrac_avg"),
    "completions/mean_length": ("response_length/mean",),
    "completions/min_length": ("response_length/min",),
    "completions/max_length": ("response_length/max",),
    "completions/clipped_ratio": ("response_length/clip_ratio",),
    "timing/step": ("timing_s/step", "perf/time_per_step"),
}
"""Our name → theirs."""
PREFIX = "train/"
"""Weights & Biases and TensorBoard put this before the names of Hugging Face trainers, which are ours already."""
_OURS = {
    spelled: ours for ours, theirs in METRICS.items() for name in theirs for spelled in (name, name.replace("/", "_"))
}  # tables often write verl's names with underscores
_PREFIXED = (*METRICS, "reward_std", "mean_token_accuracy", "num_tokens", "frac_reward_zero_std", "step_time")


def ours(name: str) -> str:
    """Our name for a metric, or ``""`` where we have none or it is ours already."""
    if name in _OURS:
        return _OURS[name]
    plain = name.removeprefix(PREFIX)
    if plain != name and (plain in _PREFIXED or plain.startswith(("rewards/", "completions/", "clip_ratio/"))):
        return plain
    return ""


def mapped(values: dict[str, float]) -> tuple[dict[str, float], dict[str, str]]:
    """The values under their own names and ours, and which of theirs became which of ours."""
    chosen: dict[str, tuple[int, str]] = {}
    for name in values:
        our = ours(name)
        if our and our not in values:
            theirs = [spelled for each in METRICS.get(our, ()) for spelled in (each, each.replace("/", "_"))]
            rank = theirs.index(name) if name in theirs else len(theirs)
            chosen[our] = min(chosen.get(our, (rank, name)), (rank, name))
    became = {name: our for our, (_rank, name) in chosen.items()}
    return {**values, **{our: values[name] for our, (_rank, name) in chosen.items()}}, became
