"""Counting without a tokenizer: a token is a word, a punctuation mark or one Chinese, Japanese or Korean character.

An estimate: a model's tokenizer makes about a third more tokens of English text and of JSON, and about as many of
Chinese. It is the same for every scripted policy, so their lengths compare.
"""

from __future__ import annotations

import json
import re
from typing import Any

from envs.wire import Message

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
