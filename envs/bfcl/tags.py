"""Pairs of tags in a text, found in linear time.

What is found is what ``<tag>(.*?)</tag>`` finds, as upstream's parser has it: the first opening tag, up to the next
closing one. That expression looks for the closing tag anew from every opening one; a model that repeats ``<think>``
without an end would hold the server for minutes.
"""

from __future__ import annotations

from collections.abc import Iterator


def contents(text: str, tag: str) -> list[str]:
    """What stands between each pair of tags."""
    shift = len(tag) + 2
    return [text[start + shift : end - shift - 1] for start, end in _pairs(text, tag)]


def without(text: str, tag: str) -> str:
    """The text without the pairs and what stands between them."""
    kept, position = [], 0
    for start, end in _pairs(text, tag):
        kept.append(text[position:start])
        position = end
    return "".join([*kept, text[position:]])


def _pairs(text: str, tag: str) -> Iterator[tuple[int, int]]:
    """Start and end of each pair, its tags included. Every character is looked at once."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    start = text.find(opening)
    while start >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            return  # no later opening tag has a closing one either
        yield start, end + len(closing)
        start = text.find(opening, end + len(closing))
