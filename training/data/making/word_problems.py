"""Our own arithmetic word problems in GSM8K's form: seeded, of any number, in English and Chinese.

A problem starts with a count of things and changes it ``steps`` times; each change is one line of the solution. The
answer of a row ends with ``#### 72``, so that everything that reads GSM8K reads it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from training.data.formats.gsm8k import prompt_of, split_answer

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
        # A text as seed: numbers that stand close together would give streams that resemble each other.
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
    told = [f"{name}有{value}个{things}。" if chinese else f"{name} has {value} {things}."]
    lines = []
    for _step in range(steps):
        change, number = _draw(rng, value, largest)
        after = _apply(value, change.sign, number)
        said = (change.chinese if chinese else change.english).format(n=number)
        told.append(f"{name}{said}。" if chinese else f"{name} {said}.")
        lines.append(f"{value} {change.sign} {number} = {after}")
        value = after
    asked = f"{name}现在有多少个{things}？" if chinese else f"How many {things} does {name} have now?"
    question = "".join([*told, asked]) if chinese else " ".join([*told, asked])
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
