"""Alpaca's instructions, as LLaMA-Factory has them: with ``input``, ``system`` and earlier turns under ``history``."""

from __future__ import annotations

from collections.abc import Iterator

from training.data.formats.base import DataFormat, Value, converted, fits, without
from training.data.formats.columns import mapped_row
from training.data.options import ColumnMapping, ReadOptions
from training.data.problems import RowError
from training.data.raw import Raw, Record, Sample
from training.data.schema import Row
from training.words import _, sentence

NAME = _("Alpaca's instructions")
MAPPING = ColumnMapping(prompt="instruction", input="input", history="history", system="system", answer="output")


def _recognise(sample: Sample) -> tuple[int, str] | None:
    return fits(
        sample,
        lambda row: isinstance(row.get("instruction"), str) and isinstance(row.get("output"), str),
        _("have an `instruction` with an `output`"),
    )


def _read_records(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    return converted(raws, lambda value: mapped_row(value, MAPPING, options.shape))


def write(row: Row) -> Value:
    """The columns as they stood. Raises ``RowError`` for a row that never had them."""
    if not isinstance(row.extra.get("instruction"), str) or "output" not in row.extra:
        raise RowError("shape", format=NAME, detail=sentence(_("it has no `instruction` with an `output`")))
    return without(row.extra, *row.spelling.added)


FORMAT = DataFormat(
    name="alpaca",
    title=_("Alpaca instructions"),
    about=_(
        "`instruction` and `output`, maybe with `input` (below the instruction), `system` (the first message) and "
        "`history` (earlier pairs of question and answer). The output becomes `ground_truth`, and a turn for SFT."
    ),
    example='{"instruction": "Translate", "input": "你好", "output": "Hello", "history": [["…", "…"]]}',
    rank=0.9,
    learned="The answers of `history`, and with shape `sft` the `output`.",
    recognise=_recognise,
    read=_read_records,
    write=write,
    written_as="json",
    options=("cut", "shape"),
)
