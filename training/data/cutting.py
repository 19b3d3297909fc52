"""Cut the conversation of a row where the model is to begin."""

from __future__ import annotations

from dataclasses import replace

from training.data.options import Cut
from training.data.problems import RowError
from training.data.schema import Row, make_row


def cut_row(row: Row, cut: Cut) -> Row:
    """The row with the beginning of its conversation. Raises ``RowError`` where nothing would be left.

    A row without an assistant turn has nothing to cut off and stays as it is.
    """
    turns = [number for number, message in enumerate(row.messages) if message.role == "assistant"]
    if cut is Cut.NONE or not turns:
        return row
    end = turns[0] if cut is Cut.QUERY else turns[-1]
    if not end:
        raise RowError("conversation_empty", key=row.spelling.key)
    return make_row(
        row.messages[:end],
        row.extra,
        tools=row.tools,
        others=row.others[:end] if row.others else None,
        offered=row.offered,
        notes=[],
        facts=row.facts,
        spelling=replace(row.spelling, roles=row.spelling.roles[:end], completion=0),
    )
