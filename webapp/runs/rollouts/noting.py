"""What a turn adds to its rollout, so that lists need not read turns: the tools it called, how much was written."""

from __future__ import annotations

from typing import Any

from webapp.runs.rollouts.models import Rollout

NAME_MAX = 120
TOOLS_MAX = 50  # of one rollout, each once
INT_MAX = 2**31 - 1


def note(rollout: Rollout, messages: list[dict[str, Any]], number: int) -> None:
    """Keep it; the rollout is not saved. Turn 0 is the prompt, which the policy did not write."""
    for message in messages if number > 0 else ():
        if message.get("role") != "assistant":
            continue
        rollout.characters = min(rollout.characters + len(message.get("content") or ""), INT_MAX)
        for call in message.get("tool_calls") or ():
            name = str(call.get("name", ""))[:NAME_MAX]
            if name and name not in rollout.tools and len(rollout.tools) < TOOLS_MAX:
                rollout.tools = [*rollout.tools, name]
