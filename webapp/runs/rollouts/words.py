"""The search index of turns: numbers for a turn's words, kept with it, that PostgreSQL can look up (GIN over
``int[]``).

1. A text is read as *words* (runs of letters and digits; ``get_weather`` and ``getWeather`` are ``get`` and
   ``weather``) and, in scripts without spaces, as pairs of neighbouring characters: 天气预报 is 天气, 气预, 预报.
2. A word is known by its beginnings of ``HEADS`` characters, so that a longer one is found by its beginning; a shorter
   word than the least of them only as a whole.
3. Two neighbours, one of them short (``9 * 5``) are known as a pair as well: each alone is in too many turns.
4. Every token is hashed together with the run that it belongs to, so that a search of one run reads that run's turns
   alone, however many there are. Two tokens may share a number: what is found is compared with the text itself.

A text is found by a phrase only if its words are among those of the phrase and the text holds the phrase itself.
System messages, the same in every rollout, are not read.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from webapp.runs.rollouts.figures import Played, note, surprises
from webapp.runs.rollouts.models import Rollout, Turn

HEADS = (4, 6, 8)  # characters at the beginning of a word by which it is known
SHORT = 2  # a word of at most this many characters is known together with its neighbours
TEXT_MAX = 50_000  # characters of one turn that are read
TOKENS_MAX = 4_000  # of one turn
TEXTS = ("content", "reasoning", "refusal")  # of a message

_CJK = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(f"[{_CJK}]+|[^\\W_{_CJK}]+")
_IS_CJK = re.compile(f"[{_CJK}]")
_FIRST = "\u3040"  # what lies below is in no such script
_INNER = re.compile(r"(?<=[a-z])[A-Z][a-z0-9]*")
_CAPITAL = re.compile(r"[a-z][A-Z]")


def texts_of(messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The texts of a turn, and its calls with their arguments, without system messages."""
    for message in messages:
        if message.get("role") == "system":
            continue
        for name in TEXTS:
            if isinstance(text := message.get(name), str) and text:
                yield text
        for call in message.get("tool_calls") or []:
            yield f"{call.get('name', '')} {json.dumps(call.get('arguments'), ensure_ascii=False)}"


def numbers_of(run: UUID, messages: Iterable[dict[str, Any]], wrote: str = "") -> list[int]:
    """The numbers of a turn, sorted, each once. ``wrote``: what it says besides its messages."""
    found, left = set[str](), TEXT_MAX
    for text in chain(texts_of(messages), (wrote,)):
        found |= tokens_in(text[:left])
        left -= len(text)
        if left <= 0 or len(found) > TOKENS_MAX:
            break
    return sorted(_token_numbers(run, found))[:TOKENS_MAX]


def numbers_of_phrase(run: UUID, phrase: str) -> list[int]:
    """The numbers that a turn must have to hold the phrase; empty where it has no word to look for."""
    return sorted(_token_numbers(run, tokens_asked(phrase)))


def tokens_in(text: str) -> set[str]:
    """The tokens that a text can be found by. Every turn of every run passes here, so each word is read once."""
    words = _WORD.findall(text.lower())
    if _CAPITAL.search(text):
        words += [part.lower() for part in _INNER.findall(text)]
    each = set(words)
    pairs = {word for word in each if word >= _FIRST and _IS_CJK.match(word)}
    plain = each - pairs
    found = {word[:size] for size in HEADS for word in plain if len(word) >= size}
    found.update(word for word in plain if len(word) < HEADS[0])
    found.update(word if len(word) == 1 else word[at : at + 2] for word in pairs for at in range(max(1, len(word) - 1)))
    if any(len(word) <= SHORT for word in plain):
        found.update(_short_pairs(words, pairs))
    return found


def tokens_asked(phrase: str) -> set[str]:
    """The tokens that every text with the phrase has.

    The text may continue where the phrase ends: so a word is searched by its longest beginning alone, and a single
    character of a script without spaces not at all. Capitals inside words are ignored: the text may do without them.
    """
    words = _WORD.findall(phrase.lower())
    pairs = {word for word in words if _IS_CJK.match(word)}
    found = {word[at : at + 2] for word in pairs for at in range(len(word) - 1)}
    for word in set(words) - pairs:
        found.add(word[: max((size for size in HEADS if size <= len(word)), default=len(word))])
    return found | _short_pairs(words, pairs)


def _short_pairs(words: list[str], pairs: set[str]) -> set[str]:
    """Pairs of neighbours with a short one, each by its least beginning."""
    return {
        f"{one[: HEADS[0]]} {two[: HEADS[0]]}"
        for one, two in pairwise(words)
        if (len(one) <= SHORT or len(two) <= SHORT) and one not in pairs and two not in pairs
    }


def _token_numbers(run: UUID, tokens: Iterable[str]) -> set[int]:
    """Each token with the run as a signed integer of 32 bits."""
    seed, crc32 = zlib.crc32(run.bytes), zlib.crc32
    found = (crc32(token.encode("utf-8", "replace"), seed) for token in tokens)
    return {number - (1 << 32) if number >= 1 << 31 else number for number in found}


# Turns that were recorded before turns had ``words``: they and their rollouts get what new ones have from the start.
#
# The clockwork asks every minute. A rollout is done at once with all of its turns, so that its index
# is complete. Nothing that a page shows live changes, so no ``seq`` does.

AT_ONCE = 500  # turns that name the rollouts of a batch
SECONDS = 30.0
Place = tuple[UUID, int, int, int]
SET_WORDS = (
    "UPDATE rollouts_turn AS turn SET words = new.words::int[]"
    " FROM unnest(%s::uuid[], %s::int[], %s::text[]) AS new (rollout, number, words)"
    " WHERE turn.rollout_id = new.rollout AND turn.number = new.number"
)


def index_older() -> None:
    """Continue for a while, batch by batch."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and index_batch():
        pass


def index_batch() -> int:
    """Index the rollouts of some turns that are not; returns how many turns that were."""
    ids = list(Turn.objects.filter(words=None).order_by().values_list("rollout", flat=True)[:AT_ONCE])
    if not ids:
        return 0
    rollouts = Rollout.objects.in_bulk(set(ids))
    turns = list(Turn.objects.filter(rollout__in=rollouts).order_by("rollout", "number"))
    for rollout in rollouts.values():
        rollout.tools, rollout.characters = [], 0
    words = words_of(turns)
    for turn in turns:
        note(rollouts[turn.rollout_id], turn.messages, turn.number)
    rare = _with_surprise(list(rollouts.values()))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(SET_WORDS, words)
        Rollout.objects.bulk_update(rollouts.values(), ["tools", "characters"], batch_size=500)
        Rollout.objects.bulk_update(rare, ["surprise"], batch_size=500)
    return len(turns)


def words_of(turns: Sequence[Turn]) -> list[list[Any]]:
    """The search words of turns, as ``SET_WORDS`` takes them."""
    words = [f"{{{','.join(map(str, numbers_of(turn.run_id, turn.messages, turn.wrote)))}}}" for turn in turns]
    return [[turn.rollout_id for turn in turns], [turn.number for turn in turns], words]


def _with_surprise(rollouts: list[Rollout]) -> list[Rollout]:
    """The rollouts of the same groups, those that were scored, each with its surprise."""
    wanted = Q(pk=None)
    for place in {_group_of(item) for item in rollouts if not item.held_out and item.advantage is not None}:
        wanted |= Q(**dict(zip(("run", "attempt", "step", "group"), place, strict=True)), held_out=False)
    groups: dict[Place, list[Any]] = {}
    for item in Rollout.objects.filter(wanted).only("run", "attempt", "step", "group", "outcome", "reward"):
        groups.setdefault(_group_of(item), []).append(item)
    for group in groups.values():
        played = [None if item.reward is None else Played(item.outcome, item.reward) for item in group]
        for item, rare in zip(group, surprises(played), strict=True):
            item.surprise = rare
    return [item for group in groups.values() for item in group]


def _group_of(item: Rollout) -> Place:
    return item.run_id, item.attempt, item.step, item.group
