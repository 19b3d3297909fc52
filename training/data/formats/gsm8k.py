"""GSM8K's questions, HelloAgents' rows that are made of them, and our own word problems in the same form."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from training.data.formats.base import DataFormat, Value, converted, fits, text_of, without
from training.data.messages import plain
from training.data.options import ReadOptions
from training.data.problems import RowError
from training.data.schema import Message, Raw, Record, Row, Sample, Spelling, make_row
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
    """HelloAgents' instruction to the model."""
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


# Our own arithmetic word problems in GSM8K's form: seeded, of any number, in English and Chinese.
#
# A problem starts with a count of things and changes it ``steps`` times; each change is one line of the solution. The
# answer of a row ends with ``#### 72``, so that everything that reads GSM8K reads it.

Language = Literal["en", "zh", "both"]
Shape = Literal["rl", "sft"]
LANGUAGES: tuple[Language, ...] = ("en", "zh", "both")
MAX_STEPS = 4
MAX_START, MAX_CHANGE, MAX_FACTOR = 30, 20, 5
TOO_LARGE = 400


class Change(NamedTuple):
    """One change of the count: what the question says of it, and the sign of the calculation."""

    english: str
    chinese: str
    sign: str


NAMES = (("Mira", "小米"), ("Jonas", "小强"), ("Aiko", "爱子"), ("Ravi", "小伟"), ("Lena", "丽娜"), ("Omar", "小明"))
THINGS = (("apples", "苹果"), ("stamps", "邮票"), ("marbles", "弹珠"), ("shells", "贝壳"), ("coins", "硬币"))
CHANGES = (
    Change("finds {n} more", "又找到{n}个", "+"),
    Change("buys {n} more", "又买了{n}个", "+"),
    Change("is given {n} more", "又收到{n}个", "+"),
    Change("gives {n} away", "送出{n}个", "-"),
    Change("loses {n}", "弄丢{n}个", "-"),
    Change("then has {n} times as many", "随后变成原来的{n}倍", "*"),
    Change("shares them equally among {n} people, keeping one share", "和大家平分，一共{n}人，留下一份", "/"),
)


def word_problems(
    count: int,
    *,
    seed: int = 0,
    language: Language = "en",
    steps: int = 2,
    shape: Shape = "rl",
    largest: int = MAX_START,
    careless: float = 0.0,
) -> Iterator[dict[str, str]]:
    """``count`` rows: ``question`` and ``answer`` for RL, or ``prompt`` and ``completion`` for SFT.

    The same seed and index give the same row, whatever the count; another seed gives others. No number of a question is
    over ``largest``. A share of the SFT rows can be ``careless``: they take the first number of the question for its
    answer and calculate nothing.
    """
    for index in range(count):
        # A text as seed: numbers that are close together would give streams that resemble each other.
        rng = random.Random(f"word-problem:{seed}:{language}:{steps}:{index}")  # noqa: S311
        row = _problem(rng, language, steps, largest)
        if shape == "sft" and rng.random() < careless:
            first = _first_number(row["question"])
            row["answer"] = f"{first} = {first}\n#### {first}"
        yield row if shape == "rl" else _worked(row)


def _problem(rng: random.Random, language: Language, steps: int, largest: int) -> dict[str, str]:
    chinese = language == "zh" or (language == "both" and rng.random() < 0.5)
    name, things = rng.choice(NAMES)[chinese], rng.choice(THINGS)[chinese]
    value = rng.randint(2, largest)
    sentences = [f"{name}有{value}个{things}。" if chinese else f"{name} has {value} {things}."]
    lines = []
    for _step in range(steps):
        change, number = _draw(rng, value, largest)
        after = _apply(value, change.sign, number)
        clause = (change.chinese if chinese else change.english).format(n=number)
        sentences.append(f"{name}{clause}。" if chinese else f"{name} {clause}.")
        lines.append(f"{value} {change.sign} {number} = {after}")
        value = after
    asked = f"{name}现在有多少个{things}？" if chinese else f"How many {things} does {name} have now?"
    question = "".join([*sentences, asked]) if chinese else " ".join([*sentences, asked])
    return {"question": question, "answer": "\n".join([*lines, f"#### {value}"])}


def _draw(rng: random.Random, value: int, largest: int) -> tuple[Change, int]:
    """A change that keeps the count a whole number from 1 to ``TOO_LARGE``."""
    while True:
        change = rng.choice(CHANGES)
        number = rng.randint(2, min(largest, MAX_CHANGE if change.sign in "+-" else MAX_FACTOR))
        if change.sign == "/" and value % number:
            continue
        if 1 <= _apply(value, change.sign, number) <= TOO_LARGE:
            return change, number


def _apply(value: int, sign: str, number: int) -> int:
    return {"+": value + number, "-": value - number, "*": value * number, "/": value // number}[sign]


def _first_number(question: str) -> str:
    return next(number for number in re.findall(r"[0-9]+", question))


def _worked(row: dict[str, str]) -> dict[str, str]:
    """The row as HelloAgents' SFT reads it."""
    reasoning, final = split_answer(row["answer"])
    return {"prompt": prompt_of(row["question"]), "completion": f"{reasoning}\n\nFinal Answer: {final}"}
