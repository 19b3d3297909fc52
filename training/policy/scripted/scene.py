"""What a scripted policy sees when it is its turn."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from envs.wire import Message
from training.policy.scripted.arguments import Tool, tools_of
from training.policy.scripted.speech import Speech, speech_for

_CHINESE = re.compile("[\u4e00-\u9fff]")


@dataclass(frozen=True)
class Scene:
    """The conversation so far, the first ``prompt_length`` messages of it the task; ``room`` is in tokens.

    ``answer`` is the right one, where the task's row has it.
    """

    messages: list[Message]
    prompt_length: int
    schemas: list[dict[str, Any]] | None
    dialect: str
    room: int
    answer: str = ""

    @cached_property
    def prompt(self) -> str:
        """All texts of the task."""
        return "\n".join(message.content for message in self.messages[: self.prompt_length])

    @cached_property
    def task(self) -> str:
        """What the user asked."""
        said = [message.content for message in self.messages[: self.prompt_length] if message.role == "user"]
        return said[-1] if said else self.prompt

    @cached_property
    def tools(self) -> list[Tool]:
        """The tools that may be called."""
        return tools_of(self.schemas, self.prompt)

    @cached_property
    def speech(self) -> Speech:
        """How to write."""
        return speech_for(self.dialect, self.prompt, {tool.name for tool in self.tools})

    @property
    def language(self) -> Literal["en", "zh"]:
        """The task's language: Chinese as soon as a Chinese character stands in it."""
        return "zh" if _CHINESE.search(self.task) else "en"
