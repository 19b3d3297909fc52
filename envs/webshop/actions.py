"""What a policy may do: ``search[words]`` and ``click[value]``."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

ActionKind = Literal["search", "click"]
MAX_ARGUMENT_LENGTH = 4096
# What a model ended on decides, so of a longer message only the end is read.
MAX_MESSAGE_LENGTH = 65_536

# Values of options may hold one level of brackets themselves. Nothing is given back: what ends an argument is no part
# of one.
_INSIDE = re.compile(r"\b(search|click)\[((?:[^\[\]\n]++|\[[^\[\]\n]*+\])++)\]", re.IGNORECASE)
_MARK = re.compile(r"action\s*:", re.IGNORECASE)


class Action(NamedTuple):
    """One action; the argument is in lower case, as all names in the shop are."""

    kind: ActionKind
    argument: str


def parse_action(text: str) -> Action | None:
    """Read an action as an AgentGym client sends it; ``None`` for anything else.

    It is what upstream's ``re.match(r"(.+)\\[(.+)\\]", text)`` finds, in linear time: in the first line, the argument
    ends at the last closing bracket and begins at the last opening one that leaves it a character. So a value with
    brackets cannot be named, and two actions are none.
    """
    line = text.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 0))
    if start < 0 or line[:start] not in ("search", "click"):
        return None
    return _action(line[:start], line[start + 1 : end])


def find_action(message: str) -> Action | None:
    """The action in what a model wrote: the last one after the last ``Action:``, else the last one anywhere.

    Upstream's client prefers a search to a later click; here the last one counts, for that is what the model ended on.
    """
    message = message[-MAX_MESSAGE_LENGTH:]
    marks = list(_MARK.finditer(message))
    scopes = [message[marks[-1].end() :], message] if marks else [message]
    for scope in scopes:
        matches = list(_INSIDE.finditer(scope))
        if matches:
            return _action(matches[-1][1].lower(), matches[-1][2])
    return None


def _action(name: str, argument: str) -> Action:
    return Action("search" if name == "search" else "click", argument.lower()[:MAX_ARGUMENT_LENGTH])
