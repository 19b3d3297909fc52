"""Preference pairs as TRL reads them for DPO: ``chosen`` and ``rejected``, with ``prompt`` or a common beginning.

The row asks what both answer. The pair stays with it as it is, for methods that learn from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from training.data.formats.base import DataFormat, Value, each, fits
from training.data.messages import messages_of, plain
from training.data.pairs import pair_keys
from training.data.problems import RowError
from training.data.raw import Sample
from training.data.schema import Message, Row, Spelling, make_row
from training.data.tools import tools_key, tools_of
from training.words import _, sentence

NAME = _("pairs of `chosen` and `rejected`")
_TURN = "\n\nAssistant:"
_ASKED = ("prompt", "messages", "conversations", "conversation")
"""Where the question of a pair stands: with TRL, and with LLaMA-Factory."""


def _recognise(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        return all(isinstance(given, str | list | dict) and given for given in map(row.get, pair_keys(row)))

    return fits(sample, test, _("have a `chosen` and a `rejected` answer"))


def _convert(value: Value) -> Row:
    messages, others, roles = _asked(value)
    source = value["input"] if isinstance(value.get("input"), dict) else value  # OpenAI's
    under = tools_key(source)
    extra = {name: item for name, item in value.items() if name not in (*_ASKED[1:], "tools", under)}
    return make_row(
        messages,
        extra,
        tools=tools_of(source.get(under)),
        others=others if any(others) else None,
        spelling=Spelling(roles=roles, tools_as_text=isinstance(source.get(under), str), tools=under),
        facts=("preference",),
    )


def _asked(value: Value) -> tuple[list[Message], list[Value], list[str]]:
    """What stands before both answers. Raises ``RowError``."""
    source = value["input"] if isinstance(value.get("input"), dict) else value
    prompt = next((source[name] for name in _ASKED if source.get(name)), None)
    if isinstance(prompt, str) and prompt:
        return [plain("user", prompt)], [], ["user"]
    if isinstance(prompt, list) and prompt:
        return messages_of(prompt)
    chosen, rejected = map(value.get, pair_keys(value))
    if isinstance(chosen, list) and isinstance(rejected, list):
        return messages_of(_common(chosen, rejected))
    if isinstance(chosen, str) and isinstance(rejected, str):
        text = "".join(_common(chosen, rejected))
        text = text[: text.rfind(_TURN)] if _TURN in text else ""
        if text:
            return [plain("user", text.removeprefix("\n\nHuman:").strip())], [], ["user"]
    raise _nothing_common()


def _common(chosen: Sequence[Any], rejected: Sequence[Any]) -> list[Any]:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False))
    same = [one for one, _other in pairs]
    if not same:
        raise _nothing_common()
    return same


def _nothing_common() -> RowError:
    detail = sentence(_("there is no `prompt`, and the two begin with nothing in common"))
    return RowError("shape", format=NAME, detail=detail)


def write(row: Row) -> Value:
    """The columns as they stood. Raises ``RowError`` for a row without a pair."""
    if not all(name in row.extra for name in pair_keys(row.extra)):
        raise RowError("shape", format=NAME, detail=sentence(_("it has no `chosen` and `rejected`")))
    return dict(row.extra) | ({row.spelling.tools: row.tools} if row.tools is not None else {})


FORMAT = DataFormat(
    name="preference",
    title=_("Preference pairs"),
    about=_(
        "`chosen` and `rejected` answers, texts or lists of messages, with a `prompt` or with the beginning that both "
        "have in common. The row asks what both answer; the pair is kept with it, for DPO."
    ),
    example='{"prompt": "…", "chosen": "…", "rejected": "…"}',
    rank=0.97,
    learned="DPO: `chosen` over `rejected`. SFT: assistants' turns that both have in common, where there are any.",
    recognise=_recognise,
    read=each(_convert),
    write=write,
    takes_messages=True,
)
