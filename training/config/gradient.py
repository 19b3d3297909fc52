"""Options that several policy gradients have in common."""

from __future__ import annotations

from typing import Any, Literal

from training.config.option import option
from training.words import _

SamplerCorrection = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "off"]
Credit = Literal["rollout", "turns"]
EPSILON: Any = option(0.2, title=_("Clip ε"), help=_("Clipping range of the policy ratio."), gt=0, lt=1)
ENTROPY: Any = option(
    0.0,
    title=_("Entropy weight"),
    help=_("Rewards a policy for staying undecided; 0 is off."),
    ge=0,
    le=1,
)
ITERATIONS: Any = option(
    1, title=_("Iterations per batch"), help=_("Optimiser passes over each batch (μ)."), ge=1, le=16
)
MASK_TRUNCATED: Any = option(
    False, title=_("Mask truncated"), help=_("Exclude rollouts that were cut off from the loss.")
)
SAMPLER_CORRECTION: Any = option(
    "token_truncate",
    title=_("Sampler correction"),
    help=_(
        "If the sampler computes differently from the trainer (vLLM, bfloat16), the loss weighs each token, or each "
        "rollout, by the ratio of the two probabilities. A ratio above the limit counts as the limit, or its token "
        "or rollout is left out."
    ),
    choices={
        "token_truncate": _("tokens, at most the limit"),
        "token_mask": _("tokens, none above the limit"),
        "sequence_truncate": _("rollouts, at most the limit"),
        "sequence_mask": _("rollouts, none above the limit"),
        "off": _("none"),
    },
)
SAMPLER_RATIO_MAX: Any = option(
    3.0,
    title=_("Sampler ratio at most"),
    help=_("Limit of the ratio between the trainer's probability and the sampler's."),
    gt=1,
    le=1000,
)
CREDIT: Any = option(
    "rollout",
    title=_("Credit to"),
    help=_(
        "What a turn is credited with. By turns, what the environment paid before a turn is taken off its reward, "
        "and the turn is compared with the rollouts of the group that reached it. This is biased where mostly good "
        "or mostly bad rollouts get that far. Where the environment pays only at the end, nothing is taken off."
    ),
    choices={
        "rollout": _("the whole rollout: one advantage for all its turns"),
        "turns": _("each turn: what the environment paid before it is not its own"),
    },
)
CREDIT_WEIGHT: Any = option(
    1.0,
    title=_("Credit by turns"),
    help=_(
        "With credit to turns: how much of the reward from before a turn is taken off; near 0 is the rollout's credit."
    ),
    gt=0,
    le=1,
)
CREDIT_DISCOUNT: Any = option(
    1.0,
    title=_("Credit for later turns"),
    help=_(
        "With credit to turns: the share that a turn's advantage keeps of what the environment pays one turn later. "
        "1 keeps all; 0 keeps nothing, for turns that do not depend on one another. What comes with the last answer "
        "always counts."
    ),
    ge=0,
    le=1,
)
PAID_AT: Any = option(
    "rollout",
    title=_("Credit to"),
    help=_(
        "Where the reward is placed. By turns, what the environment paid with the answer to a turn is placed at the "
        "turn's last token, and the rest at the rollout's; values then learn what is still to come."
    ),
    choices={
        "rollout": _("the end of the rollout"),
        "turns": _("the turn whose answer the environment paid it with"),
    },
)
