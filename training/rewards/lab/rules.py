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
    """An alarm's title, its sentence (%(name)s are its figures), and its rule as docs/rewards.md has it. ``other`` is
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
        f"two kinds of rollouts are looked at one by one: those that repeat one call {LOOP_REPEATS} times or more and "
        "for at least half of their calls, without success where that is known; and those of a degenerate policy of "
        f"the test-bed. The alarm needs {MIN_CASES} of a kind whose mean reward is at least {PAID_SHARE:g} of the mean "
        "of successful other rollouts (of all others where success is unknown or absent; of the highest reward that "
        "the spec can give where there are no others)",
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
        "among groups whose rollouts differ in outcome, a rollout with a worse outcome has the highest reward in at "
        f"least {MIN_CASES} groups and {INVERTED_SHARE:.0%} of them. Or: the outcome is rewarded, and other "
        "components together spread wider (5th to 95th percentile) than the outcome's whole range is worth",
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
        f"in at least {MIN_CASES} groups with mixed outcomes, the best outcome earns more than the others by less than "
        f"{UNPAID_SHARE:g} of the spread of all rewards (5th to 95th percentile), on average. Or: no component that "
        "judges the task has a weight above 0, and there is none (code, judges, reward models) that may judge it in "
        "its own way",
        _("No component that judges the task has a weight, so solving it earns nothing, whatever is played."),
    ),
    "grows_with_length": Words(
        _("Reward grows with length"),
        _(
            "Among rollouts of equal outcome, length and reward go together (r = %(r)s): the longest quarter earns "
            "%(gain)s more than the shortest."
        ),
        f"reward and length correlate by at least {LENGTH_R:g} once the mean of each outcome is subtracted from both, "
        f"and the longest quarter earns at least {LENGTH_GAIN:g} standard deviations of the reward more than the "
        "shortest",
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
        f"all rewards are equal in {FLAT_SHARE:.0%} of the groups of two or more (stop at {FLAT_STOP:.0%})",
    ),
    "phantom_groups": Words(
        _("Groups with a phantom signal"),
        _(
            "In %(cases)s of %(groups)s groups rewards differ although all outcomes are the same: only shaping is "
            "learned from them."
        ),
        f"in {PHANTOM_SHARE:.0%} of the groups rewards differ although outcomes are equal",
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
