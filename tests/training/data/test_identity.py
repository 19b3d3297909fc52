"""Which row a row is: twelve ways to bring the same rows back under another name, and twelve sets that are others."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from training.data.checking.check import check_file
from training.data.identity import (
    IDENTITIES_NAME,
    Identities,
    held_out,
    identities_read,
    identities_write,
    identity_of,
    known,
    split_rows,
)
from training.data.options import ReadOptions
from training.data.reader import load_rows
from training.data.schema import row_from_dict

QUESTIONS = [
    "Weather in Moscow?", "Compute 9 + 3.", "What is 7 * 8?", "How many metres are 3 km?", "Is 17 a prime?",
    "Weather in Berlin?", "Compute 12 - 30.", "Name the capital of Peru.", "What is 1000 * 2?", "6 乘以 7 等于多少？",
]  # fmt: skip
ANSWERS = ["-4", "12", "56", "3000", "yes", "11", "-18", "Lima", "2000", "42"]
TOOL = {"type": "function", "function": {"name": "calculator", "parameters": {"type": "object", "properties": {}}}}
SYSTEM = {"role": "system", "content": "Answer in one word."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def rows() -> list[dict[str, Any]]:
    """What was learned from."""
    return [
        {"id": f"t-{n}", "messages": [user(question)], "answer": {"contains": [answer]}, "language": "en"}
        for n, (question, answer) in enumerate(zip(QUESTIONS, ANSWERS, strict=True))
    ]


def jsonl(found: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found).encode()


def shuffled(found: list[Any]) -> list[Any]:
    return random.Random(3).sample(found, len(found))


def parquet(found: list[dict[str, Any]]) -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(found), made)
    return made.getvalue()


def table(found: list[dict[str, Any]]) -> bytes:
    made = io.StringIO()
    writer = csv.DictWriter(made, ["prompt", "answer"])
    writer.writeheader()
    writer.writerows({"prompt": r["messages"][0]["content"], "answer": json.dumps(r["answer"])} for r in found)
    return made.getvalue().encode()


def with_each(**over: Callable[[int, dict[str, Any]], Any]) -> bytes:
    return jsonl([row | {name: make(n, row) for name, make in over.items()} for n, row in enumerate(rows())])


def asked(row: dict[str, Any]) -> str:
    return str(row["messages"][0]["content"])


AGAIN: dict[str, Callable[[], bytes]] = {
    "the same file": lambda: jsonl(rows()),
    "shuffled, with other ids": lambda: jsonl(shuffled([row | {"id": f"exam-{n}"} for n, row in enumerate(rows())])),
    "extra columns, keys in another order": lambda: jsonl(
        [dict(reversed((row | {"source": "web", "difficulty": n}).items())) for n, row in enumerate(rows())]
    ),
    "prompt and completion": lambda: jsonl(
        [{"prompt": asked(row), "completion": answer} for row, answer in zip(rows(), ANSWERS, strict=True)]
    ),
    "parquet": lambda: parquet(rows()),
    "a table with the answer as text": lambda: table(rows()),
    "ShareGPT's names": lambda: jsonl([{"conversations": [{"from": "human", "value": asked(r)}]} for r in rows()]),
    "white space, case and full-width forms": lambda: with_each(
        messages=lambda n, row: [user(("  " + asked(row).upper() + "\n").replace("3", "３"))]
    ),
    "demonstrations": lambda: with_each(
        messages=lambda n, row: [user(asked(row)), {"role": "assistant", "content": ANSWERS[n]}, user("Sure?")],
        answer=lambda n, row: None,
    ),
    "a system text and tools": lambda: with_each(
        messages=lambda n, row: [SYSTEM, *row["messages"]], tools=lambda n, r: [TOOL]
    ),
    "the answer under another name": lambda: jsonl(
        [{"messages": row["messages"], "ground_truth": row["answer"]} for row in rows()]
    ),
    "filtered and mixed with others": lambda: jsonl(
        shuffled([*rows()[:5], *({"messages": [user(f"Spell word {n}.")], "answer": "x"} for n in range(5))])
    ),
}  # fmt: skip
KNOWN = {"filtered and mixed with others": 5}
"""Rows that are found; all ten of the others."""


def clean(texts: list[str], **over: Any) -> bytes:
    return jsonl([{"messages": [user(text)], "answer": {"contains": ["1"]}} | over for text in texts])


OTHERS: dict[str, Callable[[], bytes]] = {
    "other numbers": lambda: clean([text.replace("3", "4").replace("7", "5") for text in QUESTIONS if "3" in text]),
    "other cities": lambda: clean(["Weather in Lagos?", "Weather in Quito?", "Weather in Oslo?"]),
    "the same ids": lambda: jsonl([{"id": f"t-{n}", "messages": [user(f"Spell {n}.")]} for n in range(10)]),
    "the same answers": lambda: jsonl(
        [{"messages": [user(f"Say it, {n}.")], "answer": {"contains": [a]}} for n, a in enumerate(ANSWERS)]
    ),
    "the same question, another answer": lambda: with_each(answer=lambda n, row: {"contains": [f"{ANSWERS[n]}0"]}),
    "the same system text and tools": lambda: clean([f"Translate {n}." for n in range(9)], tools=[TOOL]),
    "a question that contains one": lambda: clean([f"{text} Then double it." for text in QUESTIONS]),
    "the same words after the first answer": lambda: jsonl(
        [{"messages": [user(f"Hi {n}!"), {"role": "assistant", "content": "?"}, user(QUESTIONS[n])]} for n in range(9)]
    ),
    "the same words in a system text": lambda: jsonl(
        [{"messages": [{"role": "system", "content": text}, user(f"Go on, {n}.")]} for n, text in enumerate(QUESTIONS)]
    ),
    "one opening for all": lambda: jsonl([{"messages": [user("Begin.")], "answer": f"o{n}"} for n in range(10)]),
    "sessions of an environment": lambda: jsonl([{"messages": [], "session_id": n} for n in range(50, 60)]),
    "another language": lambda: clean(["莫斯科天气如何？", "9 加 3 等于多少？"]),
}  # fmt: skip
GENERIC = [{"messages": [user("Begin.")], "answer": f"b{n}"} for n in range(10)]
SESSIONS = [{"messages": [], "session_id": n} for n in range(10)]


@pytest.fixture
def ids(tmp_path: Path) -> Callable[[bytes], Identities]:
    """``ids(file)``: the identities that its check kept."""
    numbers = iter(range(100))

    def make(data: bytes) -> Identities:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        (folder / "upload").write_bytes(data)
        report = check_file(folder / "upload", folder)
        found = identities_read(folder / IDENTITIES_NAME)
        assert report.bad_rows == 0 and found is not None and len(found) == report.rows, report.message
        return found

    return make


@pytest.fixture
def learned(ids: Callable[[bytes], Identities]) -> list[Identities]:
    """Three sets that were learned from: tasks, such as begin alike, and such as the environment opens."""
    return [ids(jsonl(found)) for found in (rows(), GENERIC, SESSIONS)]


@pytest.mark.parametrize("way", AGAIN)
def test_the_same_rows_are_known_under_any_name(
    way: str, ids: Callable[[bytes], Identities], learned: list[Identities]
) -> None:
    found = known(ids(AGAIN[way]()), learned[0])
    assert found.sum() == KNOWN.get(way, 10)


@pytest.mark.parametrize("other", OTHERS)
def test_other_rows_are_not_accused(other: str, ids: Callable[[bytes], Identities], learned: list[Identities]) -> None:
    its = ids(OTHERS[other]())
    assert len(its) and sum(int(known(its, each).sum()) for each in learned) == 0


def test_twelve_of_twelve_ways_are_found_and_none_of_twelve_other_sets(
    ids: Callable[[bytes], Identities], learned: list[Identities]
) -> None:
    found = sum(bool(known(ids(make()), learned[0]).any()) for make in AGAIN.values())
    accused = sum(any(known(ids(make()), each).any() for each in learned) for make in OTHERS.values())
    assert (len(AGAIN), found, len(OTHERS), accused) == (12, 12, 12, 0)


def test_a_question_that_many_rows_share_needs_the_same_answer(ids: Callable[[bytes], Identities]) -> None:
    some = [{"messages": [user("Begin.")], "answer": f"b{n}"} for n in range(5, 15)]
    assert list(known(ids(jsonl(some)), ids(jsonl(GENERIC)))) == [True] * 5 + [False] * 5
    untold = ids(jsonl([{"messages": [user("Begin.")]}]))
    assert not known(untold, ids(jsonl(GENERIC))).any()
    two = [{"messages": [user("Begin.")], "answer": answer} for answer in "ab"]
    assert known(untold, ids(jsonl(two))).all()  # two of that kind do not make it a common one


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("42", 42, True), ("42", 42.0, True), ("1,234", "1234", True), ("so it is 9. #### 42", "42", True),
        (["42"], "42", True), ({"a": 1, "b": None}, {"a": "1"}, True), ('{"a": [1, 2]}', {"a": [1, 2]}, True),
        ("42", "43", False), ([1, 2], [2, 1], False), ("1,23", "123", False), ({"a": 1}, {"b": 1}, False),
    ],
)  # fmt: skip
def test_an_answer_is_the_same_in_every_spelling(one: Any, two: Any, same: bool) -> None:
    a, b = (row_from_dict({"messages": [user("Q?")], "answer": value}) for value in (one, two))
    assert (identity_of(a).expected == identity_of(b).expected) is same


@pytest.mark.parametrize("nothing", [None, "", [], {}, {"a": None}, "  "])
def test_an_answer_that_says_nothing_is_none(nothing: Any) -> None:
    assert identity_of(row_from_dict({"messages": [user("Q?")], "answer": nothing})).expected == 0


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.1, 0.5, 1.0])
def test_the_rows_that_a_share_holds_out_are_those_of_the_split(
    share: float, ids: Callable[[bytes], Identities], tmp_path: Path
) -> None:
    data = jsonl([*rows(), *SESSIONS, rows()[3]])
    found = held_out(ids(data), share)
    (tmp_path / "rows.jsonl").write_bytes(data)
    assert list(np.flatnonzero(found)) == split_rows(load_rows(tmp_path / "rows.jsonl"), share).held_out


def test_the_kept_file_is_that_of_the_rows_read_again(tmp_path: Path) -> None:
    """A version that was checked before checks kept identities gets the same ones."""
    (tmp_path / "upload").write_bytes(AGAIN["parquet"]())
    check_file(tmp_path / "upload", tmp_path, reading=ReadOptions())
    kept = (tmp_path / IDENTITIES_NAME).read_bytes()
    identities_write(load_rows(tmp_path / "rows.jsonl"), tmp_path / "again.ids")
    assert (tmp_path / "again.ids").read_bytes() == kept and len(kept) == 8 + 32 * 10


def test_a_damaged_or_missing_file_is_not_read(tmp_path: Path) -> None:
    assert identities_read(tmp_path / "no.ids") is None
    for damaged in (b"", b"rowids0\n" + bytes(32), b"rowids1\n" + bytes(31)):
        (tmp_path / "x.ids").write_bytes(damaged)
        assert identities_read(tmp_path / "x.ids") is None


def test_nothing_is_known_of_no_rows(ids: Callable[[bytes], Identities]) -> None:
    some = ids(jsonl(rows()))
    assert known(some[:0], some).shape == (0,) and not known(some, some[:0]).any()
