"""What the palette lists: items in groups, as its script reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Item:
    """A line that leads somewhere. ``about`` is a few words next to the title; ``state`` draws a dot, whose word is
    ``state_word``. ``said`` is the part of the title that was searched, between two others, where the title is a text
    that someone wrote."""

    title: str
    url: str
    about: str = ""
    icon: str = ""
    state: str = ""
    state_word: str = ""
    said: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Group:
    """Items under a heading. ``note`` says what was not searched."""

    title: str
    items: Sequence[Item]
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """The group for the script."""
        return asdict(self)


def fits(text: str, phrase: str) -> bool:
    """Whether a text has each word of a phrase, upper or lower case."""
    within = text.casefold()
    return all(word in within for word in phrase.casefold().split())


def fitting(items: Iterable[Item], phrase: str, most: int) -> list[Item]:
    """The first items whose title or words fit; those whose title fits come first."""
    found = [item for item in items if fits(f"{item.title} {item.about}", phrase)]
    return sorted(found, key=lambda item: not fits(item.title, phrase))[:most]
