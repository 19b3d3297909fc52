"""The texts of a rewound rollout's script."""

from __future__ import annotations

from django.utils.translation import gettext as _

from webapp.environments.playground.strings import playground_strings


def rewind_strings() -> dict[str, str]:
    """The playground's, and those of a replay."""
    return {
        **playground_strings(),
        "play.start": _("The recorded turns are being played again."),
        "play.close.4404": _("This rollout, or its environment, was removed."),
        "play.close.other": _("The connection was lost and with it the episode. Reload the page to rewind again."),
        "rewind.same": _("same"),
        "rewind.other": _("other answer"),
        "rewind.unchecked": _("as recorded"),
        "rewind.all_same": _(
            "The turns before it were played again in {ms} ms, and every answer is the recorded one. "
            "Turn {turn} is yours."
        ),
        "rewind.none": _("The episode is at its beginning, as recorded. Turn {turn} is yours."),
        "rewind.not_asked": _(
            "This server keeps no episode, so nothing was asked again: the conversation is the recorded one. "
            "Turn {turn} is yours."
        ),
        "rewind.over": _("The episode is over here; choose an earlier turn to continue from."),
        "rewind.messages": _("The environment answers differently from turn {turn} on."),
        "rewind.opening": _("The environment opens the episode differently from the recording."),
        "rewind.ended": _("The episode ended after turn {turn}, although more was recorded."),
        "rewind.reward": _("The environment gives another reward at the end."),
        "rewind.not_scored": _("When the episode is over, or you end it, the branch is scored here and kept."),
        "rewind.failed": _("The recorded turns could not be played again."),
        "rewind.branches": _("Side by side with the recorded rollout"),
        "rewind.recorded": _("Recorded"),
        "rewind.now": _("Now"),
        "rewind.nothing": _("(nothing)"),
        "rewind.turn_bad": _("Choose a turn from 1 to {n}."),
    }
