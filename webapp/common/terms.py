"""Words of the field that pages explain where they use them."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

TERMS: dict[str, tuple[str | Promise, str | Promise]] = {
    "surprise": (
        gettext_lazy("surprise"),
        gettext_lazy(
            "How rare a rollout is in its group, in bits: 0 where all came out alike, 1 for a half of them, 3 for the "
            "only one of eight. It is −log₂ of the share of the group with the same outcome and a reward at most half "
            "a standard deviation away."
        ),
    ),
    "phantom": (
        gettext_lazy("phantom"),
        gettext_lazy(
            "All rollouts of the group came equally far with the task, but their rewards differ: only shaping terms "
            "distinguish them. Training on it teaches form, not the task."
        ),
    ),
    "no_signal": (
        gettext_lazy("no learning signal"),
        gettext_lazy(
            "All rewards of a group are equal (zero variance). Then no rollout is better than another, every advantage "
            "is 0, and the run learns nothing from it."
        ),
    ),
    "bounds": (
        gettext_lazy("bounds"),
        gettext_lazy("The least and the largest value that a figure may have. ≥ and ≤ include the value, < does not."),
    ),
    "pass_hat": (
        gettext_lazy("pass^k"),
        gettext_lazy(
            "pass^k is the chance that all of k tries at a task solve it: how reliable a model is. pass@k is the "
            "chance that at least one of k tries does: what it can reach."
        ),
    ),
    "chance": (
        gettext_lazy("expected by chance"),
        gettext_lazy(
            "Each task is tested for a change (Fisher's exact test, two-sided, at 5%). Of many tasks some differ by "
            "chance: this is how many would if none had changed, given how many of their rollouts solved each."
        ),
    ),
}
"""Each with the word that it explains."""
