"""Every text that a script shows, translated on the server: templates pass it on as JSON, scripts hold no prose."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from django.utils.translation import get_language, pgettext
from django.utils.translation import gettext as _

from training.metrics import METRICS
from webapp.common.words import Outcome


def _by_language(made: Callable[[], dict[str, str]]) -> Callable[[], Mapping[str, str]]:
    """Make the texts once for each language: they do not depend on a person or a project, and there are hundreds."""
    kept = functools.cache(lambda _language: MappingProxyType(made()))
    return functools.wraps(made)(lambda: kept(get_language()))


def strings_for(page: str) -> Mapping[str, str]:
    """The catalogue of one page, or the one that every page has."""
    return {"base": base_strings, "run": run_strings, "curves": curve_strings}[page]()


@_by_language
def base_strings() -> dict[str, str]:
    """The texts of ``static/js/app.js`` and ``lib/format.js``."""
    return {
        "seconds": _("{n} s"),
        "minutes": _("{n} min"),
        "minutes_seconds": _("{m} min {s} s"),
        "hours_minutes": _("{h} h {m} min"),
        "days_hours": _("{d} d {h} h"),
        "ago": _("{t} ago"),
        "just_now": _("just now"),
        "close": _("Close"),
        "copied": _("Copied"),
        "not_copied": _("Your browser did not copy it. Select the text and copy it yourself."),
        "request_failed": _(
            "That did not work ({status}). Try again; if it happens again, give your administrator the request id {id}."
        ),
        "offline": _("Tiltyard does not answer. Your work is kept; check the connection and try again."),
        "no_answer": _("Tiltyard has not answered within {n} s. Try again."),
        "waiting": _("No answer yet after {n} s. You need not click again."),
        "waiting_for": _("“{what}”: no answer yet after {n} s. You need not click again."),
        "forbidden": _("Your role does not allow this."),
        "palette_slow": _("Still searching…"),
        "logged_out": _("You have been logged out. Log in again to continue."),
    }


@_by_language
def run_strings() -> dict[str, str]:
    """The texts of the run page's scripts."""
    held = {key: report_strings()[key] for key in ("held", "held_now")}
    return {
        **_live_strings(),
        **_state_strings(),
        **held,
        **_rollout_strings(),
        **curve_strings(),
    }


@_by_language
def report_strings() -> dict[str, str]:
    """Waiting, and what the trainer reports about itself; ``webapp/runs/reports.py`` fills them in, and ``lib/held.js``
    those of a wait."""
    return {
        "held": _("Step {step} waits: {what} Next try in {next}; without success the run pauses in {left}."),
        "held_now": _("Step {step} waits: {what} Trying again now; without success the run pauses in {left}."),
        "held.environment": _("waiting for environment"),
        "held.reward": _("waiting for the reward judge"),
        "held.other": _("waiting"),
        "held_short": _("{what} … next try in {next}, pauses in {left}"),
        "held_short_now": _("{what} … trying now, pauses in {left}"),
        "event.worker": _("taken by worker {name}"),
        "event.device": _("runs on {name}"),
        "event.held": _("step {step} waits (try {tries}): {message} Next try in {next}."),
        "event.held_over": _("step {step} continues"),
        "event.skipped_loss": _("step {step}: update skipped because the loss was not finite ({n} in a row)"),
        "event.skipped_gradient": _("step {step}: update skipped because the gradient was not finite ({n} in a row)"),
        "event.stage_first": _("stage {stage} of {of} begins: {name}"),
        "event.stage_resumed": _("continues in stage {stage} of {of}: {name}"),
        "event.stage_steps": _("stage {stage} of {of} begins after step {step}, as planned: {name}"),
        "event.stage_figure": _(
            "stage {stage} of {of} begins after step {step}, the held-out figure is reached: {name}"
        ),
        "event.order_end": _("{by} ended rollout {group}.{index} of step {step}"),
        "event.order_fail": _("{by} marked rollout {group}.{index} of step {step} as failed"),
        "event.torn": _("damaged, set aside: {names}"),
        "event.old": _("removed to keep the newest only: {names}"),
        "event.tasks_held_out_share": _("{n} tasks ({groups} of different text) are held out of the dataset."),
        "event.tasks_held_out_dataset": _("{n} tasks ({groups} of different text) of the held-out dataset are played."),
        "event.leaked": _("{n} that are also trained on were left out."),
        "event.alike": _("{n} closely resemble one of the {rows} training rows that were compared."),
        "event.alike_none": _("None equals or closely resembles one of the {rows} training rows that were compared."),
        "event.evaluated": _("after step {step}: success {value} ({low} to {high}) on {tasks} held-out tasks"),
        "event.evaluated_best": _(
            "★ after step {step}: success {value} ({low} to {high}) on {tasks} held-out tasks, the best so far"
        ),
        "report.comma": _(", "),
        "report.ended": _("Attempt {attempt} ended: {why}"),
        "report.files": _(
            "{why} What worker {worker} writes is kept on its host, and shown here once the store takes it. Training"
            " does not wait for that."
        ),
        "report.resumed": _("Attempt {attempt} continued from {source} at step {step}."),
        "report.began": _("Attempt {attempt} began at step 0: there was no intact checkpoint."),
        "report.lost": _("Steps trained again: {n}."),
        "report.aside": _("Damaged and set aside: {names}."),
        "report.verified": _("Verified: {what}."),
        "report.sampler": _(
            "Sampler check at step {step}: its log-probabilities differ from the trainer's by at most {gap} nats"
            " (mean {mean}) over {tokens} tokens; the limit is {limit}."
        ),
        "report.time": _("Time budget: {used} of {of} used, {left} left."),
        "report.time_over": _("Time budget of {of} reached after {used}: the run ended after step {step}."),
        "report.skipped_loss": _(
            "Skipped updates: {n}, the last one at step {step} because the loss was not finite. Skipped updates do"
            " not change the weights."
        ),
        "report.skipped_gradient": _(
            "Skipped updates: {n}, the last one at step {step} because the gradient was not finite. Skipped updates do"
            " not change the weights."
        ),
    }


def _live_strings() -> dict[str, str]:
    return {
        "live": _("live"),
        "reconnecting": _("reconnecting"),
        "stale": _("last update {t} ago"),
        "ended": _("ended"),
        "paused_view": _("catching up"),
        "not_allowed": _("You may no longer see this run."),
        "gone": _("This run was deleted."),
        "trainer_silent": _(
            "The trainer has been silent for {t}. If this continues, another worker takes over the run."
        ),
        "no_progress": _("No progress for {t}"),
        "step_of": _("step {step} of {total}"),
        "stage_of": _("stage {stage} of {of}: {name}"),
        "per_step": _("{t} per step"),
        "left": _("{t} left"),
        "generating_of": _("generating {done} of {all}"),
        "attempt": _("attempt {n}"),
        "new_attempt": _("The run continues as attempt {n}. Repeated steps replace the earlier ones."),
    }


def _state_strings() -> dict[str, str]:
    return {
        "state.draft": _("draft"),
        "state.queued": _("queued"),
        "state.preparing": _("preparing"),
        "state.running": _("running"),
        "state.pausing": _("pausing"),
        "state.paused": _("paused"),
        "state.stopping": _("stopping"),
        "state.succeeded": _("succeeded"),
        "state.failed": _("failed"),
        "state.cancelled": _("cancelled"),
        "phase.checking": _("being checked"),
        "phase.preparing": _("preparing"),
        "phase.generating": _("generating"),
        "phase.environment": _("environment"),
        "phase.scoring": _("scoring"),
        "phase.training": _("training"),
        "phase.saving": _("saving"),
        "phase.evaluating": _("evaluating held-out tasks"),
        **{f"outcome.{outcome.value}": str(outcome.label) for outcome in Outcome},
        "truncated": _("truncated"),
        "role.system": pgettext("chat role", "system"),
        "role.user": pgettext("chat role", "user"),
        "role.assistant": pgettext("chat role", "assistant"),
        "role.tool": pgettext("chat role", "result"),
        "kind.state": _("state"),
        "kind.phase": _("phase"),
        "kind.attempt": _("attempt"),
        "kind.log": _("log"),
        "kind.warning": _("warning"),
        "kind.held": _("wait"),
        "kind.update_skipped": _("skipped update"),
        "kind.sampler_checked": _("sampler check"),
        "kind.resumed": _("resume"),
        "kind.checkpoints_removed": _("checkpoints"),
        "kind.tasks_held_out": _("held-out tasks"),
        "kind.held_out_evaluated": _("evaluation"),
        "kind.stage_started": _("stage"),
        "kind.rollout_order": _("rollout"),
    }


@_by_language
def run_words() -> dict[str, str]:
    """The run page's texts on rollouts, for the part that the server draws first."""
    return {**_state_strings(), **_rollout_strings()}


def _rollout_strings() -> dict[str, str]:
    return {
        "group": _("group {n}"),
        "group_mean": _("mean {mean}, spread {std}"),
        "zero_variance": _("all rewards equal: no learning signal"),
        "phantom": _("phantom: outcomes equal, rewards not"),
        "one_turn": _("1 turn"),
        "turns": _("{n} turns"),
        "turn": _("turn {n}"),
        "tokens": _("{n} tokens"),
        "reward": _("reward"),
        "advantage": _("advantage"),
        "call": _("call"),
        "no_arguments": _("no arguments"),
        "show_all": _("Show all {n} lines"),
        "show_less": _("Show less"),
        "missing": _("missing"),
        "missing_part": _("could not be computed; not counted as 0"),
        "excluded_because": _("Excluded from its group's baseline: {message}"),
        "waiting_turn": _("waiting for the next turn"),
        "flight.waiting": _("waiting to begin"),
        "flight.begins": _("waits for its environment to begin"),
        "flight.writes": _("the model writes"),
        "flight.tool": _("waits for {name}"),
        "flight.answer": _("waits for the environment"),
        "flight.scoring": _("is being scored"),
        "flight.none": _("No rollout is being played now."),
        "flight.ordered": _("{by} ordered its end"),
        "flight.nothing": _("No rollout has begun yet."),
        "flight.step_done": _("step {n}, done"),
        "step_number": _("step {n}"),
        "flight_more": _("and {n} more"),
        "loading": _("Loading…"),
        "copy_link": _("Copy link"),
        "empty_message": _("(empty)"),
        "reasoning": _("reasoning"),
        "refusal": _("refusal"),
        "finish.length": _("cut off at the limit of tokens"),
        "finish.content_filter": _("held back by the endpoint's content filter"),
        "hidden_char": _("hidden character {code}"),
        "task_row": _("row {n}"),
    }


@_by_language
def metric_titles() -> dict[str, str]:
    """Titles of charts by metric, with the unit where there is one, and what each shows."""
    titles = {
        f"metric.{name}": _("{title} ({unit})").format(title=_(entry.title), unit=_(entry.unit))
        if entry.unit
        else _(entry.title)
        for name, entry in METRICS.items()
    }
    return titles | {f"about.{name}": _(entry.what) for name, entry in METRICS.items()}


@_by_language
def curve_strings() -> dict[str, str]:
    """The texts of runs' charts, on the run's page and on the project's."""
    return {
        **metric_titles(),
        "step": _("step"),
        "step_number": _rollout_strings()["step_number"],
        "remove_curve": _("Remove {name}"),
        "at_time": _("{n} h"),
        "at_rollouts": _("{n} rollouts"),
        "at_tokens": _("{n} tokens"),
        "axis.time": _("Hours"),
        "axis.rollouts": _("Rollouts"),
        "axis.tokens": _("Tokens"),
        "chart.menu": _("What to do with {name}"),
        "chart.stack": _("Stacked"),
        "chart.behind": _("Reward behind it"),
        "behind": _("{name}, on its own scale"),
        "held_out_tasks": _("Held-out success, n = {n}"),
        "chart.png": _("Picture (PNG)"),
        "chart.svg": _("Drawing (SVG)"),
        "chart.csv": _("All points (CSV)"),
        "chart.pin": _("Pin to the project's page"),
        "pinned": _("Pinned: it is on the project's page."),
        "as_of": _("as of {time}"),
        "sum_reward": _("Reward"),
        "axis_unknown": _("This run does not record it."),
        "leave_out": _("Leave out"),
        "no_run": _("No other run that trains matches."),
        "run_unknown": _("This run is gone, or you may not see it."),
        "rewards_differ": _("rewarded in another way: its rewards are not drawn"),
        "still_chart": _("One chart without movement: {names}"),
        "still_charts": _("{n} charts without movement: {names}"),
        "no_points": _("No figures yet: the first step has not finished."),
        "no_match": _("No metric matches."),
        "no_metric": _("not reported"),
        "final": _("final"),
        "roll_back": _("Roll back and change"),
        "checkpoint.torn": _("damaged"),
        "checkpoint.removed": _("removed"),
        "no_events": _("Nothing has happened yet."),
        "attempt_event": _("attempt {n} began"),
    }
