"""WebShop: what the environment says that a purchase is worth, and its parts."""

from __future__ import annotations

import re
from collections.abc import Callable

from pydantic import Field

from training.rewards.base import Component, Episode, Example, Params, Span, played, says, tool
from training.rewards.general import VerdictParams
from training.rewards.text import placed_turns, whole
from training.words import _

# The purchase, and the page that shows its worth.

DONE_MARK = "Thank you for shopping with us!"
_BUY = "buy now"


def purchase(episode: Episode, params: Params) -> list[Span]:
    """The last turn that bought, and the page after it."""
    spans: list[Span] = []
    for place, turn in placed_turns(episode):
        calls = " ".join(str(call.arguments) for call in turn.said.tool_calls or [])
        if _BUY in turn.said.content.casefold() or _BUY in calls.casefold():
            spans = [whole(place, _("the purchase"))]
    for place, message in enumerate(episode.messages[episode.prompt_length :], start=episode.prompt_length):
        if message.role != "assistant" and message.content.lstrip().startswith(DONE_MARK):
            spans.append(whole(place, _("the score of the purchase")))
    return spans


SOURCE = "WebShop (princeton-nlp), `get_reward`"
_SCORE = re.compile(r"Your score \(min 0\.0, max 1\.0\) \[SEP\] ([01](?:\.\d+)?)(?!\d)")


class PartParams(VerdictParams):
    """Parameters of the parts of a purchase's score."""

    no_purchase: float = Field(
        0.0, title=_("No purchase"), description=_("Value of an episode that bought nothing."), ge=-1, le=1
    )


class OptionParams(PartParams):
    """Parameters of ``webshop_options``."""

    no_options: float | None = Field(
        1.0,
        title=_("No options"),
        description=_("Value of a purchase for a goal that asks for no options. Empty excludes such episodes."),
        ge=-1,
        le=1,
        allow_inf_nan=False,
    )


def env_score(episode: Episode, params: VerdictParams) -> float | None:
    """The environment's score of the purchase, else what the last page says; 0 where nothing was bought."""
    if "score" in episode.env_parts:
        return episode.env_parts["score"]
    if episode.env_reward is not None:
        return episode.env_reward
    shown = _shown(episode)
    if shown is not None:
        return shown
    return params.cut_off if episode.truncated else None


def success(episode: Episode, params: VerdictParams) -> float | None:
    """1 for a perfect purchase, else 0."""
    if "task_success" in episode.env_parts:
        return episode.env_parts["task_success"]
    value = env_score(episode, params)
    unknown = value is None or (episode.truncated and episode.env_reward is None and _shown(episode) is None)
    return value if unknown else float(value == 1.0)


def _part(name: str) -> Callable[[Episode, PartParams], float | None]:
    def score(episode: Episode, params: PartParams) -> float | None:
        if name in episode.env_parts:
            return episode.env_parts[name]
        if "r_type" in episode.env_parts:
            return params.no_options if isinstance(params, OptionParams) else None
        if "score" in episode.env_parts:
            return params.no_purchase
        return params.cut_off if episode.truncated and episode.env_reward is None else None

    return score


def _shown(episode: Episode) -> float | None:
    """The score that the page after a purchase shows."""
    for message in reversed(episode.messages[episode.prompt_length :]):
        if message.role == "assistant":
            continue
        if not message.content.lstrip().startswith(DONE_MARK):
            return None
        found = _SCORE.search(message.content[:20_000])
        return float(found[1]) if found else None
    return None


_PERFECT = {"r_type": 1.0, "r_att": 1.0, "r_option": 1.0, "r_price": 1.0, "task_success": 1.0, "score": 1.0}
_HALF = {"r_type": 0.5, "r_att": 0.5, "r_price": 1.0, "task_success": 0.0, "score": 1 / 3}
PERFECT = played("q", says("", "click"), tool("…"), env_reward=1.0, env_parts=_PERFECT)
HALF = played("q", says("", "click"), tool("…"), env_reward=1 / 3, env_parts=_HALF)
NOTHING = played("q", says("a"), env_reward=0.0, env_parts={"task_success": 0.0, "score": 0.0})
CUT = played("q", says("a"), truncated=True)
_DONE = f"{DONE_MARK} [SEP] Your code: [SEP] None [SEP] Reward [SEP] Your score (min 0.0, max 1.0) [SEP] 0.75 [SEP] x"
PAGE = played("q", says("click[Buy Now]"), tool(_DONE))


def _component(part: str, name: str, title: str, help: str, formula: str, params: type[Params]) -> Component:
    value, half = _PERFECT[part], _HALF.get(part)
    return Component(
        name,
        title,
        help,
        _part(part),
        params,
        source=SOURCE,
        formula=formula,
        examples=(
            Example("a perfect purchase", PERFECT, value),
            Example("half of it right, no options asked", HALF, 1.0 if half is None else half),
            Example("nothing bought", NOTHING, 0.0),
            Example("cut off", CUT, 0.0),
        ),
    )


WEBSHOP = (
    Component(
        "webshop_score",
        _("WebShop score"),
        _("The environment's score of the purchase."),
        env_score,
        VerdictParams,
        spans=purchase,
        source=SOURCE,
        formula="r_type · (attributes met + options met + [price ≤ cap]) / (attributes + options + 1); 0 unless bought",
        examples=(
            Example("a perfect purchase", PERFECT, 1.0),
            Example("½ · (1 of 2 attributes + price) / 3", HALF, 1 / 3),
            Example("nothing bought", NOTHING, 0.0),
            Example("only the last page shows it", PAGE, 0.75),
            Example("cut off", CUT, 0.0),
            Example("ended, score unknown", played("q", says("a")), None),
        ),
        warning=_(
            "With the published rule 458 of the 6,910 goals cannot reach 1; with the server's `fixed` rule they can."
        ),
    ),
    _component(
        "r_type",
        "webshop_type",
        _("WebShop kind"),
        _("Whether it is the right kind of product."),
        "1, 0.5, 0.1 or 0 by search query, categories and title",
        PartParams,
    ),
    _component(
        "r_att",
        "webshop_attributes",
        _("WebShop attributes"),
        _("Share of the wanted attributes that it has."),
        "attributes met / attributes",
        PartParams,
    ),
    _component(
        "r_option",
        "webshop_options",
        _("WebShop options"),
        _("Share of the wanted options that were chosen."),
        "options met / options; no_options where the goal has none",
        OptionParams,
    ),
    _component(
        "r_price",
        "webshop_price",
        _("WebShop price"),
        _("Whether the price is within the cap."),
        "1 if price ≤ cap, else 0",
        PartParams,
    ),
    Component(
        "webshop_success",
        _("WebShop success"),
        _("1 for a perfect purchase."),
        success,
        VerdictParams,
        spans=purchase,
        source=f"{SOURCE}; success is a score of 1",
        formula="1 if score = 1, else 0",
        examples=(
            Example("a perfect purchase", PERFECT, 1.0),
            Example("half of it right", HALF, 0.0),
            Example("only the last page shows it", PAGE, 0.0),
            Example("cut off", CUT, 0.0),
        ),
    ),
)
