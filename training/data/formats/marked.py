"""A conversation as one text, as a chat template wrote it, such as a `text` column with the marks of ChatML."""

from __future__ import annotations

from collections.abc import Iterator

from training.data.formats.base import DataFormat, Value, converted, fits, without
from training.data.markup import Markup, markup_of, pieces
from training.data.messages import plain
from training.data.options import ReadOptions
from training.data.problems import RowError
from training.data.raw import Raw, Record, Sample
from training.data.schema import Message, Row, Spelling, make_row
from training.words import _, sentence

NAME = _("texts with the marks of a chat template")
COMPLETION, ANSWERS = "completion", ("response", "output", "answer", "solution", "target")
"""Columns that answer a prompt which ends with the mark that asks the model to speak: TRL's, and those of tables."""


def _recognise(sample: Sample) -> tuple[int, str] | None:
    return fits(
        sample, lambda row: _marked(row) is not None, _("hold a conversation as one text with a template's marks")
    )


def _marked(value: Value) -> tuple[str, Markup] | None:
    """The column that holds the conversation, and its marks."""
    for name, text in value.items():
        markup = markup_of(text) if isinstance(text, str) else None
        if markup is not None:
            return name, markup
    return None


def _read_records(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    return converted(raws, lambda value: _convert(value, options.shape))


def _convert(value: Value, shape: str) -> Row:
    found = _marked(value)
    if found is None:
        raise RowError("shape", format=NAME, detail=sentence(_("no column of it has such marks")))
    name, markup = found
    turns = pieces(markup, value[name], "")
    extra, spelling = without(value, name), Spelling(key=name)
    if turns[-1][0] == "assistant" and not turns[-1][1].strip():  # the mark that asks the model to speak
        turns.pop()
        answer = next((key for key in (COMPLETION, *ANSWERS) if isinstance(extra.get(key), str) and extra[key]), None)
        if answer == COMPLETION:
            del extra[COMPLETION]
        elif answer is not None and "ground_truth" not in extra:
            extra["ground_truth"] = extra[answer]
            spelling.added.append("ground_truth")
        if answer == COMPLETION or (answer is not None and shape == "sft"):
            turns += pieces(markup, value[answer], "assistant")
    messages: list[Message] = [plain(role, text) for role, text in turns]  # type: ignore[arg-type]
    return make_row(messages, extra, spelling=spelling, facts=("marked",))


FORMAT = DataFormat(
    name="marked",
    title=_("Texts with the marks of a chat template"),
    about=_(
        "A conversation as one text, such as a `text` column, with the marks of ChatML, Llama 3, Gemma or Zephyr. It "
        "is split into turns at them. If it ends with the mark that asks the model to speak, a `completion` is the "
        "next turn; a `response` or `answer` becomes `ground_truth`, and a turn for SFT."
    ),
    example='{"text": "<|im_start|>user\\nhi<|im_end|>\\n<|im_start|>assistant\\nhello<|im_end|>\\n"}',
    rank=0.96,
    learned="The assistant's turns; an answer in a column of its own with shape `sft`.",
    recognise=_recognise,
    read=_read_records,
    options=("cut", "shape"),
)
