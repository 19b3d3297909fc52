"""AgentGym: AgentTraj's trajectories and AgentEval's ids of episodes."""

from __future__ import annotations

from training.data.formats.base import DataFormat, Value, each, fits, text_of, without, written_messages
from training.data.messages import messages_of
from training.data.problems import RowError, kind
from training.data.raw import Sample
from training.data.schema import Row, Spelling, make_row
from training.words import _, sentence

NAME = _("AgentGym's rows")
_ROLES = {"user": "human", "assistant": "gpt"}


def _recognise(sample: Sample) -> tuple[int, str] | None:
    return fits(sample, lambda row: isinstance(row.get("item_id"), str), _("name an episode by `item_id`"))


def _convert(value: Value) -> Row:
    text_of(value, "item_id", NAME)
    items = value.get("conversations")
    if items is None:
        return make_row([], without(value, "conversations"), spelling=_spelling(value, []))
    if not isinstance(items, list):
        raise RowError(
            "shape", format=NAME, detail=sentence(_("`conversations` is {kind}, not a list"), kind=kind(items))
        )
    messages, others, roles = messages_of(items)
    return make_row(
        messages,
        without(value, "conversations"),
        others=others if any(others) else None,
        spelling=_spelling(value, roles),
    )


def _spelling(value: Value, roles: list[str]) -> Spelling:
    return Spelling(key="conversations" if "conversations" in value else "", roles=roles)


def write(row: Row) -> Value:
    """A trajectory, or an id whose conversation is null."""
    if not isinstance(row.extra.get("item_id"), str):
        raise RowError("shape", format=NAME, detail=sentence(_("it has no `item_id`")))
    if not row.messages:
        return {**row.extra, "conversations": None} if row.spelling.key else dict(row.extra)
    items = written_messages(row, "from", "value", _ROLES)
    return {**row.extra, "conversations": items}


FORMAT = DataFormat(
    name="agentgym",
    title=_("AgentTraj and AgentEval"),
    about=_(
        "`item_id` such as webshop_6, and the trajectory under `conversations` (from human and gpt, with "
        "`loss`) or null; an id alone starts from the environment's opening."
    ),
    example='{"item_id": "webshop_5238", "conversations": null}',
    rank=0.96,
    learned="The assistant's turns but those with `loss` false; nothing of an id alone.",
    recognise=_recognise,
    read=each(_convert),
    write=write,
    written_as="json",
)
