"""The texts of the lab's scripts."""

from __future__ import annotations

from django.utils.translation import gettext as _

from webapp.common.strings import run_strings


def lab_strings() -> dict[str, str]:
    """Those of a transcript, and the lab's own."""
    return {
        **run_strings(),
        **_scoring_strings(),
        **_editing_strings(),
        **_figure_strings(),
        **_turn_strings(),
        **_group_strings(),
        **_reading_strings(),
    }


def _scoring_strings() -> dict[str, str]:
    return {
        "lab.scoring": _("Scoring {n} rollouts…"),
        "lab.scored": _("Scored {n} rollouts in {t}"),
        "lab.rescored": _("Scored {n} rollouts in {t}; recomputed: {names}"),
        "lab.ms": _("{n} ms"),
        "lab.computing": _("Computing {names}: {done} of {all} rollouts"),
        "lab.failed": _("The figures below are from before the last change."),
        "lab.no_answer": _(
            "No answer within {n} s. The set may be too large: try again, or create a set of fewer steps."
        ),
        "lab.offline": _("Tiltyard does not answer. Check the connection and try again."),
        "lab.status": _("That did not work ({status})."),
    }


def _editing_strings() -> dict[str, str]:
    return {
        "lab.weight_of": _("Weight of {title}"),
        "lab.remove": _("Remove {title}"),
        "lab.unknown": _("This component is no longer known; remove it to score."),
        "lab.outside": _("Needs an external model: recorded values are used, others are missing."),
        "lab.not_number": _("Enter a number."),
        "lab.not_whole": _("Enter a whole number."),
        "lab.needs_both": _("Fill in both ends, or neither."),
        "lab.sum": _("Weights sum to {sum}"),
        "lab.no_sum": _("Weights sum to –"),
        "lab.unchanged": _("as saved"),
        "lab.count_wrong": _("{n} to fix"),
        "lab.count_changed": _("{n} changed"),
        "lab.as_saved": _("{name} as saved"),
        "lab.none": _("A spec needs at least one component."),
        "lab.fix_first": _("Fix the marked fields; the figures wait until then."),
        "lab.saving": _("Saving…"),
        "lab.saved": _("{name} is saved."),
    }


def _figure_strings() -> dict[str, str]:
    return {
        "lab.before": _("before {value}"),
        "lab.groups_of": _("{n} of {all} groups"),
        "lab.rollouts_of": _("{n} of {all} rollouts"),
        "lab.phantom_groups": _("Phantom groups"),
        "lab.agreement": _("Agreement"),
        "lab.nothing_compared": _("nothing changed yet"),
        "lab.values": _("Values"),
        "lab.mean": _("Mean"),
        "lab.std": _("Std"),
        "lab.range": _("Range used"),
        "lab.r_outcome": _("r outcome"),
        "lab.r_length": _("r length"),
        "lab.share": _("Share"),
        "lab.missing": _("Missing"),
        "lab.constant": _("constant"),
        "lab.rank_correlation": _("rank correlation with {name}"),
        "lab.outcome_is": _("Outcome: {name}"),
        "lab.no_outcome": _("No component reports whether the task succeeded."),
        "lab.stop": _("stop"),
        "lab.warn": _("warning"),
        "lab.note": _("note"),
        "lab.evidence": _("Examples"),
        "lab.evidence_label": _("Rollout {n}, an example of: {title}"),
        "lab.no_alarms": _("No alarms: no sign that this reward can be gamed."),
        "lab.used": _("Uses {low} to {high} of {from} to {to}"),
        "lab.histogram": _("{n} rollouts from {low} to {high}"),
        "lab.missing_of": _("{name} is missing for {n} rollouts: {reason}"),
    }


def _turn_strings() -> dict[str, str]:
    return {
        "lab.turns.turn": _("Turn"),
        "lab.turns.rollouts": _("Rollouts"),
        "lab.turns.gain": _("Gain"),
        "lab.turns.spread": _("Spread"),
        "lab.turns.turned_1": _("Sign changes, discount 1"),
        "lab.turns.turned_0": _("Sign changes, discount 0"),
        "lab.turns.known": _("Rewards by turn recorded of {n} of {all} rollouts"),
        "lab.turns.aggregation": _("Credit to turns divides the sum of components; here each is compared by itself."),
        "lab.turns.pays": _("Turns are paid in the environment's own reward, and this spec has no task_success."),
        "lab.turns.not_recorded": _(
            "These rollouts were recorded without the environment's reward after each turn. Newer runs record it."
        ),
        "lab.turns.at_the_end": _(
            "The environment gave its reward only at the end, so each turn would have the rollout's advantage."
        ),
        "lab.turns.one_turn": _("No rollout has more than one turn."),
        "lab.turns.reached": _(
            "A turn is compared with the rollouts of its group that reached it: if those are few or mostly bad, its "
            "figures are biased."
        ),
        "lab.turns.silent": _("{n} rollouts without a reward before the end keep their advantage."),
        "lab.turns.hidden": _("{n} later turns are not shown."),
    }


def _group_strings() -> dict[str, str]:
    return {
        "lab.group": _("Step {step} · group {group}"),
        "lab.phantom": _("phantom"),
        "lab.phantom_help": _("The rewards differ although all outcomes are the same."),
        "lab.shown": _("{from}–{to} of {all} groups"),
        "lab.no_groups": _("No group matches."),
        "lab.ranks_recorded": _("↑↓ places moved in the group, against the recorded rewards"),
        "lab.ranks_against": _("↑↓ places moved in the group, against {name}"),
        "lab.recorded": _("recorded {value}"),
        "lab.rank_up": _("{n} up in its group"),
        "lab.rank_down": _("{n} down in its group"),
        "lab.card": _("Step {step}, group {group}, rollout {index}: {status}, reward {reward}, advantage {advantage}"),
        "lab.length": _("length {n}"),
    }


def _reading_strings() -> dict[str, str]:
    return {
        "lab.choose": _("Choose a rollout to read what earned its reward."),
        "lab.not_computed": _("not computed"),
        "lab.nothing_marked": _("No span of text earned this value: it follows from the whole episode."),
        "lab.whole_message": _("the whole message"),
        "lab.messages": _("message"),
        "lab.task_prompt": _("from the task"),
        "lab.hint": _("Point at a component to see the text that earned it."),
    }
