"""Pieces of a turn: whole characters, nothing lost, nothing twice."""

from __future__ import annotations

import random
from typing import Any

from training.chat.speakers import MOST_WAITING, UNFINISHED, Pieces

TEXTS = ["It is 7.", "演武场上见 🤺👩‍👩‍👧‍👦 naïve café", "a  b\n\n  c", "🇨🇳🇫🇷" * 5, "\u200d\ufe0f", "Tab\tand\r\nline"]


def _cut(tokenizer: Any, ids: list[int]) -> list[str]:
    pieces = Pieces(lambda some: str(tokenizer.decode(some, skip_special_tokens=True)))
    return [*(pieces.add(token) for token in ids), pieces.rest()]


def test_the_pieces_are_the_text_in_whole_characters(tokenizer: Any) -> None:
    for text in TEXTS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        cut = _cut(tokenizer, ids)
        assert "".join(cut) == text
        assert not any(UNFINISHED in piece for piece in cut)
    letters = tokenizer("演", add_special_tokens=False)["input_ids"]
    assert len(letters) > 1, "the starter's tokenizer writes it in bytes"
    assert _cut(tokenizer, letters)[: len(letters) - 1] == [""] * (len(letters) - 1)


def test_special_tokens_are_never_shown(tokenizer: Any) -> None:
    ids = [*tokenizer("yes", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    assert "".join(_cut(tokenizer, ids)) == "yes"


def test_bytes_that_never_become_a_character_are_released(tokenizer: Any) -> None:
    lead = tokenizer("演", add_special_tokens=False)["input_ids"][0]
    cut = _cut(tokenizer, [lead] * (3 * MOST_WAITING))
    assert UNFINISHED in "".join(cut[: 2 * MOST_WAITING])


def test_any_ids_give_the_text_of_all_of_them(tokenizer: Any) -> None:
    rng = random.Random(5)
    for _round in range(200):
        ids = [rng.randrange(3, len(tokenizer)) for _ in range(rng.randrange(1, 40))]
        whole = str(tokenizer.decode(ids, skip_special_tokens=True))
        joined = "".join(_cut(tokenizer, ids))
        # Where ids are no text at all, only the marks for broken bytes may be counted otherwise.
        assert joined.replace(UNFINISHED, "") == whole.replace(UNFINISHED, "")
