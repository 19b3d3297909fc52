"""Text of a turn piece by piece while its tokens come, in whole characters and without special tokens."""

from __future__ import annotations

from collections.abc import Callable

UNFINISHED = "\ufffd"
"""What a decoder writes for bytes that are no character yet."""
MOST_WAITING = 8
"""No character has so many tokens: what looks unfinished for so long is the text itself."""


class Pieces:
    """Turns ids into pieces of text whose sum is the text of all ids.

    Decoding one id alone would lose what its neighbours decide: a space before a word, a character of several tokens.
    So the ids since the last whole piece are decoded together with those of the piece before it, and only what is new
    and whole is given out.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._before = 0  # where the piece before the last one begins
        self._given = 0  # ids up to here are given out

    def add(self, token: int) -> str:
        """The text that is whole with this id; empty while a character is not."""
        self._ids.append(token)
        return self._next(whole=len(self._ids) - self._given >= MOST_WAITING)

    def rest(self) -> str:
        """What was still held back, once no further id comes."""
        return self._next(whole=True)

    def _next(self, *, whole: bool) -> str:
        known = self._decode(self._ids[self._before : self._given])
        text = self._decode(self._ids[self._before :])
        if len(text) <= len(known) or (text.endswith(UNFINISHED) and not whole):
            return ""
        self._before, self._given = self._given, len(self._ids)
        return text[len(known) :]
