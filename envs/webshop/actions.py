"""What a policy may do: ``search[words]`` and ``click[value]``."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

ActionKind = Literal["search", "click"]
MAX_ARGUMENT_LENGTH = 4096

# Values of options may hold one level of brackets themselves.
_ARGUMENT = r"((?:[^\[\]\n]|\[[^\[\]\n]*\])+)"
_WHOLE = re.compile(rf"(search|click)\[{_ARGUMENT}\]")
_INSIDE = re.compile(rf"\b(search|click)\[{_ARGUMENT}\]", re.IGNORECASE)
_MARK = re.compile(r"action\s*:", re.IGNORECASE)


class Action(NamedTuple):
    """One action; the argument is in lower case, as all names in the shop are."""

    kind: ActionKind
    argument: str


def parse_action(text: str) -> Action | None:
    """Read an action as an AgentGym client sends it: the text starts with it. ``None`` for anything else.

    The name must be in lower case and the argument not empty, as upstream; text after the bracket does not matter.
    """
    match = _WHOLE.match(text)
    return _action(match) if match else None


def find_action(message: str) -> Action | None:
    """The action in what a model wrote: the last one after the last ``Action:``, else the last one anywhere.

    Upstream's client prefers a search to a later click; here the last one counts, for that is what the model ended on.
    """
    marks = list(_MARK.finditer(message))
    scopes = [message[marks[-1].end() :], message] if marks else [message]
    for scope in scopes:
        matches = list(_INSIDE.finditer(scope))
        if matches:
            return _action(matches[-1])
    return None


def _action(match: re.Match[str]) -> Action:
    kind: ActionKind = "search" if match[1].lower() == "search" else "click"
    return Action(kind, match[2].lower()[:MAX_ARGUMENT_LENGTH])
