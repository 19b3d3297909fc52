"""The alarms in words: what they say, and the rules with their thresholds, as docs/rewards.md has them."""

from __future__ import annotations

from typing import NamedTuple

from training.words import _

MIN_ROLLOUTS = 8
MIN_CASES = 3
EVIDENCE = 5
LOOP_REPEATS = 4
LOOP_SHARE = 0.5
PAID_SHARE = 0.9
INVERTED_SHARE = 0.1
UNPAID_SHARE = 0.05
LENGTH_R = 0.5
LENGTH_GAIN = 0.25
CUT_SHARE = 0.1
FLAT_SHARE, FLAT_STOP = 0.3, 0.8
PHANTOM_SHARE = 0.1
LYING = ("negate", "contradict", "list_answers", "append_prompt")
"""Policies of the test-bed that use the right answer without giving it; their answers are wrong."""
RIGHT = ("paraphrase", "other_language")
"""Policies of the test-bed that give the right answer in another form."""
DEGENERATE = ("empty", "repeat", "copy_prompt", "one_tool", "claim_success", "beg", *LYING)
"""Policies of the test-bed that do not do the task, by ``Rollout.policy``."""
SILENT = (0.0, 1.0)
"""Tokens of a rollout in which nothing was written, with its end or without: the policy had no answer to know."""


class Words(NamedTuple):
    """An alarm's title, its sentence (%(name)s are its figures), and its rule as docs/rewards.md says it. ``other`` is
    said in place of the sentence where the second half of the rule made it speak."""

    title: str
    sentence: str
    rule: str
    other: str = ""


ALARMS: dict[str, Words] = {
    "looping_pays": Words(
        _("Doing nothing useful is rewarded"),
        _(
            "%(cases)s rollouts that repeat one call, or play a degenerate policy, earn %(mean)s on average, "
            "compared with %(against)s. A policy learns this before it learns the task."
        ),
        f"rollouts with {LOOP_REPEATS} or more identical calls that make at least half of all their calls, without "
        "success where that is known, or played by a degenerate policy of the test-bed, each kind by itself: at least "
        f"{MIN_CASES}, whose mean reward is at least {PAID_SHARE:g} of the mean of the successful others, or of all "
        "others where success is unknown or absent; without others, of the highest reward that the spec can give",
    ),
    "answers_misjudged": Words(
        _("The outcome misjudges answers"),
        _(
            "%(accepted)s of %(wrong)s wrong answers of the test-bed are accepted: denied ones, ones that are taken "
            "back, or several at once. %(refused)s of %(right)s right ones are refused."
        ),
        f"rollouts of the policies {', '.join(f'`{name}`' for name in LYING)} that the outcome calls a success, or of "
        f"{', '.join(f'`{name}`' for name in RIGHT)} that it does not: at least one, where rows have an answer",
        _(
            "Right answers are refused: %(refused)s of %(right)s that the test-bed gives in another form. Of "
            "%(wrong)s wrong ones %(accepted)s are accepted."
        ),
    ),
    "shaping_over_outcome": Words(
        _("Shaping outweighs the outcome"),
        _(
            "Of %(groups)s groups with both outcomes, %(share)s%% (%(cases)s of %(groups)s; 95%%: %(low)s to "
            "%(high)s%%) rank a failure above a success."
        ),
        "groups whose rollouts differ in outcome, in which one with a worse outcome has the highest reward: at least "
        f"{MIN_CASES} of them and {INVERTED_SHARE:.0%}; or, with the outcome rewarded, everything else together "
        "spreads wider (5th to 95th percentile) than the outcome's whole range is worth",
        _(
            "The components other than the outcome spread over %(shaping)s; the outcome's whole range is worth "
            "%(worth)s."
        ),
    ),
    "outcome_unpaid": Words(
        _("Solving the task earns nothing"),
        _(
            "Of %(groups)s groups with both outcomes, %(share)s%% (%(cases)s of %(groups)s; 95%%: %(low)s to "
            "%(high)s%%) rank a failure above a success: the best outcome earns %(gain)s more on average, where "
            "rewards spread over %(spread)s."
        ),
        f"at least {MIN_CASES} groups with mixed outcomes, in which the mean reward of the best outcome less that of "
        f"the others is below {UNPAID_SHARE:g} of the spread of all rewards (5th to 95th percentile), averaged; or, "
        "whatever was played, no component that judges the task has a weight above 0, and none may judge it in its own "
        "way (code, judges, reward models)",
        _("No component that judges the task has a weight, so solving it earns nothing, whatever is played."),
    ),
    "grows_with_length": Words(
        _("Reward grows with length"),
        _(
            "Among rollouts of equal outcome, length and reward go together (r = %(r)s): the longest quarter earns "
            "%(gain)s more than the shortest."
        ),
        f"correlation of reward and length, both less the mean of their outcome, of at least {LENGTH_R:g}, where the "
        f"longest quarter earns more than the shortest by at least {LENGTH_GAIN:g} standard deviations of the reward",
    ),
    "cut_episodes_pay": Words(
        _("Episodes that were cut off are rewarded"),
        _(
            "%(cases)s of %(cut)s unsolved episodes that were cut off earn as much as solved ones (%(mean)s "
            "against %(against)s)."
        ),
        "episodes cut off, or with turns of their task never reached, without success: at least "
        f"{MIN_CASES} of them, and {CUT_SHARE:.0%}, earn at least {PAID_SHARE:g} of the mean of the solved ones; "
        "without solved ones, of the highest reward that the spec can give",
    ),
    "constant_component": Words(
        _("A component is constant"),
        _("It is %(value)s for all %(rollouts)s rollouts, so it changes no advantage."),
        f"a component with a weight whose term is the same for all of at least {MIN_ROLLOUTS} rollouts",
    ),
    "ceiling_below_one": Words(
        _("The highest reward is below 1"),
        _("No rollout can earn more than %(ceiling)s with these weights and limits."),
        "the sum of the highest (for negative weights the lowest) terms of all components is below 1",
    ),
    "zero_variance": Words(
        _("No learning signal"),
        _("In %(cases)s of %(groups)s groups all rewards are equal: no learning signal."),
        f"groups of two or more whose rewards are equal make {FLAT_SHARE:.0%} ({FLAT_STOP:.0%}: stop)",
    ),
    "phantom_groups": Words(
        _("Groups with a phantom signal"),
        _(
            "In %(cases)s of %(groups)s groups rewards differ although all outcomes are the same: only shaping is "
            "learned from them."
        ),
        f"groups whose rewards differ although their outcome does not make {PHANTOM_SHARE:.0%}",
    ),
    "outcome_missing": Words(
        _("Nothing reports whether the task was solved"),
        _("%(missing)s of %(rollouts)s rollouts have no outcome, neither in the reward nor from the environment."),
        "no outcome is known for more than a tenth of the rollouts",
    ),
    "judge_missing": Words(
        _("A judge or a model is missing"),
        _("%(missing)s rollouts have no recorded value; the judge is not asked again here, so they are left out."),
        "a component that asks outside has no recorded value for some rollout",
    ),
}
