"""How a turn is written: in the run's dialect, and in the tags that the prompt asks for.

``hermes`` writes JSON in ``<tool_call>`` tags, ``toolbench`` Thought, Action and Action Input, ``bfcl`` a list of
Python calls, ``webshop`` ``search[words]`` and ``click[value]``. Where the dialect reads no calls (``text``) the
prompt's own instructions tell what the environment reads. A prompt that speaks of ``<think></think>`` and
``<answer></answer>``, as EnvTuning's does, gets them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

FINISH = "Finish"
THINK, ANSWER = "<think></think>", "<answer></answer>"


@dataclass(frozen=True)
class Speech:
    """One way to write; ``finishes`` says that an episode ends with a call of ``Finish``."""

    form: str
    thinks: bool = False
    answers: bool = False
    finishes: bool = False

    def call(self, name: str, arguments: dict[str, Any], thought: str) -> str:
        """A turn that calls a tool."""
        if self.form == "toolbench":
            return f"Thought: {thought}\nAction: {name}\nAction Input: {_json(arguments)}"
        if self.form == "webshop":
            value = next((str(item) for item in arguments.values()), thought)
            return f"Thought: {thought}\nAction: {name}[{value}]"
        if self.form == "bfcl":
            return f"{self._thought(thought)}[{name}({_keywords(arguments)})]"
        written = _json({"name": name, "arguments": arguments})
        return f"{self._thought(thought)}<tool_call>{written}</tool_call>"

    def say(self, text: str, brief: str = "") -> str:
        """A turn that calls nothing; ``brief`` stands where the answer belongs, if that is apart."""
        if self.form == "toolbench":
            return f"Thought: {text}"
        if self.thinks or self.answers:
            answer = brief or text
            return f"{self._thought(text)}<answer>{answer}</answer>" if self.answers else self._thought(text) + answer
        return text

    def answer(self, text: str, thought: str) -> str:
        """A turn that ends the episode with an answer, where the environment lets it."""
        if self.finishes:
            return self.call(FINISH, {"return_type": "give_answer", "final_answer": text}, thought)
        if self.thinks or self.answers:
            return self.say(thought, text)
        return self.say(text)

    def _thought(self, text: str) -> str:
        return f"<think>{text}</think>\n" if self.thinks else ""


def speech_for(dialect: str, prompt: str, tool_names: set[str]) -> Speech:
    """What the dialect reads, in the tags that the prompt names."""
    form = dialect
    if dialect == "text":
        shop = "search[" in prompt and "click[" in prompt
        form = "toolbench" if "Action Input:" in prompt else "webshop" if shop else "hermes"
    return Speech(form, THINK in prompt, ANSWER in prompt, FINISH in tool_names)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _keywords(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
