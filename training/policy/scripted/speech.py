"""How a turn is written: in the run's dialect, and in the tags that the prompt asks for.

``hermes`` writes JSON in ``<tool_call>`` tags, ``toolbench`` Thought, Action and Action Input, ``bfcl`` a list of
Python calls, ``webshop`` ``search[words]`` and ``click[value]``. Where the dialect reads no calls (``text``) the
prompt's own instructions tell what the environment reads. A prompt that speaks of ``<think></think>`` and
``<answer></answer>``, as EnvTuning's does, gets them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from envs.wire import Message

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


# --- Words ----------------------------------------------------------------------------------------------------------
# Counting without a tokenizer: a token is a word, a punctuation mark or one Chinese, Japanese or Korean character.
#
# An estimate: a model's tokenizer makes about a third more tokens of English text and of JSON, and about as many of
# Chinese. It is the same for every scripted policy, so their lengths compare.

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_PIECE = re.compile(rf"\s*(?:[{_CJK}]|[^\W{_CJK}]+|[^\w\s])|\s+")
END, HEARD = 0, 1


class WordTemplate:
    """Stands where a model's chat template does. Only what a policy writes gets ids of its own, to be read back."""

    eos_id = END

    def ends(self, token: int) -> bool:
        """Whether a turn ends at this token."""
        return token == END

    def __init__(self) -> None:
        self._pieces = ["", ""]
        self._ids: dict[str, int] = {}

    def prompt_ids(self, messages: list[Message], tools: list[dict[str, Any]] | None) -> list[int]:
        """As many ids as the prompt has words."""
        return self.suffix_ids(messages) + [HEARD] * (count(json.dumps(tools, ensure_ascii=False)) if tools else 0)

    def suffix_ids(self, messages: list[Message]) -> list[int]:
        """As many ids as the messages have words."""
        return [HEARD] * sum(count(message.content) for message in messages)

    def encode(self, text: str) -> list[int]:
        """The ids of a text that a policy wrote."""
        return [self._id(piece) for piece in _PIECE.findall(text)]

    def decode(self, ids: list[int]) -> str:
        """The text of such ids."""
        return "".join(self._pieces[number] for number in ids)

    def _id(self, piece: str) -> int:
        if piece not in self._ids:
            self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return self._ids[piece]


def count(text: str) -> int:
    """How many tokens a text is taken to have."""
    return sum(1 for _piece in _PIECE.finditer(text))


def cut(text: str, limit: int) -> str:
    """The first ``limit`` tokens of a text."""
    return "".join(_PIECE.findall(text)[: max(0, limit)])
