"""The texts of the chat's scripts."""

from __future__ import annotations

from django.utils.translation import gettext as _

from webapp.common.strings import run_strings


def chat_strings() -> dict[str, str]:
    """Those of a transcript, and the chat's own."""
    return {**run_strings(), **_state_strings(), **_wait_strings(), **_act_strings()}


def _state_strings() -> dict[str, str]:
    return {
        "chat.you": _("You"),
        "chat.environment": _("Environment"),
        "chat.begins": _("The environment begins."),
        "chat.status.connecting": _("connecting"),
        "chat.status.live": _("live"),
        "chat.status.stale": _("no updates for a while"),
        "chat.status.paused": _("database unreachable"),
        "chat.status.reconnecting": _("reconnecting"),
        "chat.status.login": _("logged out"),
        "chat.status.forbidden": _("no access"),
        "chat.status.gone": _("deleted"),
        "chat.closed.login": _("You have been logged out. Log in again to continue."),
        "chat.closed.forbidden": _("You can no longer see this chat."),
        "chat.closed.gone": _("This chat was deleted."),
        "chat.answering": _("being written"),
        "chat.stopped": _("stopped"),
        "chat.cut": _("cut off"),
        "chat.length": _("cut at {n} tokens: raise “Tokens at most” and regenerate"),
        "chat.turns": _("stopped after {n} turns with the environment"),
        "chat.differs": _("The environment answered earlier calls differently this time."),
        "chat.nothing": _("Nothing was written."),
        "chat.tokens": _("{n} tokens"),
        "chat.first": _("first after {t}"),
        "chat.reward": _("reward {n}"),
        "chat.said.done": _("{name} has answered."),
        "chat.said.other": _("{name}: {state}."),
    }


def _wait_strings() -> dict[str, str]:
    return {
        "chat.wait.loading": _("Loading the model, for {t} so far."),
        "chat.wait.starting": _("Waiting for a worker, for {t} so far."),
        "chat.wait.busy": _("Waiting for {t}: other chats have the worker; {n} before this one."),
        "chat.wait.run": _("Waiting for {t}: the run {run} has the worker."),
        "chat.wait.run_left": _("Waiting for {t}: the run {run} has the worker, for about {left} more."),
        "chat.wait.other_run": _("Waiting for {t}: a run of another project has the worker."),
        "chat.wait.other_run_left": _(
            "Waiting for {t}: a run of another project has the worker, for about {left} more."
        ),
        "chat.wait.no_worker": _("No worker is available. Waiting for {t}."),
        "chat.wait.open_run": _("Open the run"),
        "chat.wait.workers": _("Look at the workers"),
        "chat.wait.kept": _("Your message is kept; you may leave this page."),
    }


def _act_strings() -> dict[str, str]:
    return {
        "chat.edit": _("Edit"),
        "chat.edit_send": _("Send the changed message"),
        "chat.edit_note": _("Later messages are kept as an earlier version."),
        "chat.cancel": _("Cancel"),
        "chat.again": _("Regenerate"),
        "chat.try": _("{n} of {all}"),
        "chat.try_before": _("Earlier answer"),
        "chat.try_next": _("Later answer"),
        "chat.versions": _("Earlier versions ({n})"),
        "chat.no_answer": _("this call got no answer"),
        "chat.arguments": _("Arguments"),
        "chat.result": _("Answer"),
        "chat.too_long": _("This message has {n} characters; at most {most} fit."),
        "chat.refused": _("That did not work. Try again in a moment."),
        "chat.saved_row": _("Added to {name}."),
        "chat.saved_case": _("Saved as the reward test case {name}."),
        "chat.range": _("Enter two numbers for the total, the lower one first."),
    }
