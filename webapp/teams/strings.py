"""Every text that a script shows, translated on the server: templates pass it on as JSON, scripts hold no prose."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from webapp.failures import failure_strings


def strings_for(page: str) -> dict[str, str]:
    """The catalogue of one page, or the one that every page has."""
    return {"base": base_strings, "run": run_strings}[page]()


def base_strings() -> dict[str, str]:
    """What ``static/js/app.js`` and ``lib/format.js`` say."""
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
        "request_failed": _(
            "That did not work ({status}). Try again; if it stays so, give your administrator the request id {id}."
        ),
        "offline": _("Tiltyard does not answer. Your work is kept; check the connection and try again."),
        "forbidden": _("Your role does not allow this."),
        "logged_out": _("You have been logged out. Log in again to go on."),
    }


def run_strings() -> dict[str, str]:
    """What the run page's scripts say."""
    return {**_live(), **_words(), **_rollouts(), **_curves(), **failure_strings()}


def _live() -> dict[str, str]:
    return {
        "live": _("live"),
        "reconnecting": _("reconnecting"),
        "stale": _("stale for {t}"),
        "ended": _("ended"),
        "paused_view": _("catching up"),
        "not_allowed": _("You may no longer see this run."),
        "gone": _("This run was deleted."),
        "trainer_silent": _(
            "The trainer has been silent for {t}. If this goes on, the run is taken over by another worker."
        ),
        "no_progress": _("No progress for {t}"),
        "waiting_warm_up": _("Waiting for the warm-up run {name} to finish; this run starts from its model."),
        "waiting_worker": _("Waiting for a free worker."),
        "step_of": _("step {step} of {total}"),
        "per_step": _("{t} a step"),
        "left": _("{t} left"),
        "generating_of": _("generating {done} of {all}"),
        "attempt": _("attempt {n}"),
        "new_attempt": _("The run goes on as attempt {n}. Steps it repeats replace the earlier ones."),
    }


def _words() -> dict[str, str]:
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
        "phase.preparing": _("preparing"),
        "phase.generating": _("generating"),
        "phase.environment": _("environment"),
        "phase.scoring": _("scoring"),
        "phase.training": _("training"),
        "phase.saving": _("saving"),
        "status.running": _("in flight"),
        "status.completed": _("completed"),
        "status.truncated": _("truncated"),
        "status.excluded": _("excluded"),
        "role.system": pgettext("chat role", "system"),
        "role.user": pgettext("chat role", "user"),
        "role.assistant": pgettext("chat role", "assistant"),
        "role.tool": pgettext("chat role", "result"),
        "kind.state": _("state"),
        "kind.phase": _("phase"),
        "kind.attempt": _("attempt"),
        "kind.log": _("log"),
        "kind.warning": _("warning"),
    }


def _rollouts() -> dict[str, str]:
    return {
        "group": _("group {n}"),
        "group_mean": _("mean {mean}, spread {std}"),
        "zero_variance": _("no spread: teaches nothing"),
        "rollout_label": _(
            "Step {step}, group {group}, rollout {index}: {status}, reward {reward}, advantage {advantage}"
        ),
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
        "no_rollouts": _("No rollouts in this step yet."),
        "no_flight": _("Nothing in flight."),
        "flight_more": _("and {n} more"),
        "loading": _("Loading…"),
        "choose_rollout": _("Choose a rollout to read it."),
        "copy_link": _("Copy link"),
        "open_page": _("Open as page"),
        "empty_message": _("(empty)"),
        "hidden_char": _("hidden character {code}"),
        "task_row": _("row {n}"),
    }


def _curves() -> dict[str, str]:
    return {
        "metric.reward": _("Reward"),
        "metric.components": _("Reward components"),
        "metric.loss": _("Loss"),
        "metric.kl": _("KL divergence"),
        "metric.entropy": _("Entropy"),
        "metric.clip_ratio/region_mean": _("Clip ratio"),
        "metric.completions/mean_length": _("Completion length, tokens"),
        "metric.learning_rate": _("Learning rate"),
        "metric.groups/zero_variance_share": _("Groups without spread"),
        "metric.rollouts/excluded_share": _("Excluded rollouts"),
        "metric.rollouts/task_success": _("Task success"),
        "metric.timing/step": _("Step time, s"),
        "metric.judge/requests": _("Questions to the judge"),
        "metric.judge/failures": _("Questions that the judge failed"),
        "metric.judge/cost": _("Cost of the judge"),
        "metric.grad_norm": _("Gradient norm"),
        "metric.updates/skipped": _("Skipped updates"),
        "metric.groups/best_reward_mean": _("Best of group"),
        "metric.groups/pass_share": _("Groups with a success"),
        "metric.mean_token_accuracy": _("Token accuracy"),
        "step": _("step"),
        "remove_curve": _("Remove {name}"),
        "no_points": _("No figures yet: the first step has not finished."),
        "no_match": _("No metric matches."),
        "no_metric": _("not reported"),
        "final": _("final"),
        "no_log": _("Nothing in the log yet."),
        "no_events": _("Nothing has happened yet."),
        "attempt_event": _("attempt {n} began"),
    }
