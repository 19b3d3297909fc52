"""Short pieces of code to start from. Their comments are in the reader's language."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


class Example(NamedTuple):
    """One example: its name in addresses, its title, a comment, and code with a placeholder for the comment."""

    key: str
    title: Promise | str
    comment: Promise | str
    body: str

    @property
    def code(self) -> str:
        """The code with its comment."""
        return f"# {self.comment}\n{self.body}"


EXAMPLES = (
    Example(
        "contains",
        _("The answer contains the truth"),
        _("1 if the final answer contains the row's answer, else 0."),
        """def reward(episode):
    truth = str(episode["row"].get("answer", "")).strip()
    return 1.0 if truth and truth in episode["final_answer"] else 0.0
""",
    ),
    Example(
        "errors",
        _("Few failed tool calls"),
        _("The share of tool calls that worked; 1 when nothing was called."),
        """def reward(episode):
    calls = episode["calls"]
    failed = sum(call["error"] is not None for call in calls)
    return 1.0 - failed / len(calls) if calls else 1.0
""",
    ),
    Example(
        "number",
        _("A number close to the truth"),
        _("1 for the exact number, falling to 0 when the error reaches twice the number."),
        """import re


def reward(episode):
    found = re.findall(r"-?\\d+(?:\\.\\d+)?", episode["final_answer"])
    truth = float(episode["row"]["answer"])
    if not found:
        return 0.0
    off = abs(float(found[-1]) - truth)
    return max(0.0, 1.0 - off / (2 * abs(truth) or 1.0))
""",
    ),
    Example(
        "short",
        _("Solved, and in few turns"),
        _("The environment's reward, less 0.05 for each model turn after the first."),
        """def reward(episode):
    after = episode["messages"][episode["prompt_length"]:]
    turns = sum(message["role"] == "assistant" for message in after)
    return (episode["env_reward"] or 0.0) - 0.05 * max(0, turns - 1)
""",
    ),
)
BY_KEY = {example.key: example for example in EXAMPLES}
