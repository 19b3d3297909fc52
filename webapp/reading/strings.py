"""The texts of these pages' scripts."""

from __future__ import annotations

from django.utils.translation import gettext as _


def rollout_strings() -> dict[str, str]:
    """The page of one rollout."""
    return {
        "words.looking": _("Looking for the words that earned it…"),
        "words.failed": _("The words that earned it could not be read. Reload the page to try again."),
        "words.none": _("Nothing in the text is marked for it."),
        "words.whole": _("the whole message"),
        "words.message": _("Message {n}"),
        "words.hint": _("Choose a component to see the words that earned it."),
        "tokens.looking": _("Reading the tokens…"),
        "tokens.failed": _("The tokens could not be read. Reload the page to try again."),
        "tokens.prompt": _("prompt"),
        "tokens.model": _("model"),
        "tokens.environment": _("environment"),
        "tokens.count": _("{n} tokens"),
        "tokens.none": _("Point at a token, or choose one with the arrow keys, to see its values."),
        "tokens.token": _("token {n}, id {id}"),
        "tokens.logprob": _("log-probability"),
        "tokens.entropy": _("entropy"),
        "tokens.ratio": _("importance ratio"),
        "tokens.advantage": _("advantage"),
        "tokens.learned": _("learned from"),
        "tokens.not_learned": _("not learned from"),
        "tokens.of_environment": _("not sampled by the model"),
        "tokens.nats": _("{n} nats"),
        "copy.long": _("Copied without its turns after {n}: read the others over the API."),
    }
