"""GSM8K's questions, and HelloAgents' rows for SFT and RL that are made of them."""

from __future__ import annotations

from collections.abc import Iterator

from training.data.formats.base import DataFormat, Value, converted, fits, text_of, without
from training.data.messages import plain
from training.data.options import ReadOptions
from training.data.problems import RowError
from training.data.raw import Raw, Record, Sample
from training.data.schema import Message, Row, Spelling, make_row
from training.words import _, sentence

NAME = _("GSM8K's or HelloAgents' rows")
MARK = "####"


def _recognise(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        if isinstance(row.get("prompt"), str):
            return isinstance(row.get("completion"), str) or ("ground_truth" in row and "full_answer" in row)
        return isinstance(row.get("question"), str) and MARK in str(row.get("answer", ""))

    return fits(sample, test, _("have a `question` whose `answer` ends with ####, or HelloAgents' columns"))


def prompt_of(question: str) -> str:
    """What HelloAgents asks the model."""
    return f"Question: {question}\n\nLet's solve this step by step:"


def split_answer(answer: str) -> tuple[str, str]:
    """The reasoning and the final number of GSM8K's answer."""
    reasoning, _, final = answer.rpartition(MARK)
    return reasoning.strip(), final.strip()


def _read_records(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    def convert(value: Value) -> Row:
        if isinstance(value.get("prompt"), str):
            return _hello_row(value)
        question = text_of(value, "question", NAME)
        reasoning, final = split_answer(text_of(value, "answer", NAME))
        if not final:
            raise RowError("shape", format=NAME, detail=sentence(_("`answer` does not end with #### and a result")))
        messages = [plain("user", prompt_of(question))]
        if options.shape == "sft":
            messages.append(plain("assistant", f"{reasoning}\n\nFinal Answer: {final}"))
        if "ground_truth" in value:
            return make_row(messages, dict(value))
        return make_row(messages, {**value, "ground_truth": final}, spelling=Spelling(added=["ground_truth"]))

    return converted(raws, convert)


def _hello_row(value: Value) -> Row:
    """A row that HelloAgents' tool has made already."""
    messages: list[Message] = [plain("user", text_of(value, "prompt", NAME))]
    if isinstance(value.get("completion"), str):
        messages.append(plain("assistant", text_of(value, "completion", NAME)))
    return make_row(messages, without(value, "prompt", "completion"))


def write(row: Row) -> Value:
    """GSM8K's two columns."""
    if isinstance(row.extra.get("question"), str) and isinstance(row.extra.get("answer"), str):
        return without(row.extra, *row.spelling.added)
    raise RowError("shape", format=NAME, detail=sentence(_("it has no `question` and `answer`")))


def write_sft(row: Row) -> Value:
    """HelloAgents' row for SFT: prompt, completion, and both as one text."""
    question, answer = _texts(row)
    reasoning, final = split_answer(answer)
    prompt, completion = prompt_of(question) + "\n", f"{reasoning}\n\nFinal Answer: {final}"
    return {"prompt": prompt, "completion": completion, "text": prompt + completion}


def write_rl(row: Row) -> Value:
    """HelloAgents' row for RL; its prompt is the user's text, for the run to put into its chat template."""
    question, answer = _texts(row)
    final = split_answer(answer)[1]
    return {"prompt": prompt_of(question), "ground_truth": final, "question": question, "full_answer": answer}


def _texts(row: Row) -> tuple[str, str]:
    question, answer = row.extra.get("question"), row.extra.get("answer", row.extra.get("full_answer"))
    if not isinstance(question, str) or not isinstance(answer, str):
        raise RowError("shape", format=NAME, detail=sentence(_("it has no `question` and `answer`")))
    return question, answer


FORMAT = DataFormat(
    name="gsm8k",
    title=_("GSM8K and HelloAgents"),
    about=_(
        "`question` and `answer` that ends with `#### 72`; or HelloAgents' `prompt` with `completion` (SFT) or "
        "`ground_truth` (RL). The number becomes `ground_truth`."
    ),
    example='{"question": "Natalia sold clips …", "answer": "… #### 72"}',
    rank=0.95,
    learned="With shape `sft` the worked answer, and HelloAgents' `completion`; else nothing.",
    recognise=_recognise,
    read=_read_records,
    write=write,
    options=("cut", "shape"),
)
