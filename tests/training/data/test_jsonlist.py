"""One JSON list: streamed, every item kept or listed, whatever is wrong with it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from training.data.files import text as text_module
from training.data.reader import read_records

GOOD = {"conversations": [{"from": "human", "value": '天气 ["{\\'}, {"from": "gpt", "value": "]"}]}
TEXT = json.dumps(GOOD, ensure_ascii=False)


def codes(path: Path, data: bytes) -> list[str]:
    """What becomes of each item: its code, or ``ok``."""
    path.write_bytes(data)
    return ["ok" if raw.error is None else raw.error.code for raw in text_module.read_values_list(path)]


def items(*texts: str) -> str:
    """A list of these items and a good one."""
    return "[" + ", ".join([*texts, TEXT]) + "]"


CASES: dict[str, tuple[str, list[str]]] = {
    "empty": ("[]", []),
    "good": (f"[{TEXT}, {TEXT}]", ["ok", "ok"]),
    "bom_and_crlf": (f"\ufeff[\r\n{TEXT},\r\n{TEXT}\r\n]\r\n", ["ok", "ok"]),
    "object": ('{\n"a": 1\n}', ["ok"]),
    "cut_in_an_item": (f"[{TEXT}, {TEXT[:-9]}", ["ok", "list_cut_off"]),
    "cut_after_an_item": (f"[{TEXT}", ["ok", "list_cut_off"]),
    "cut_after_a_comma": (f"[{TEXT},", ["ok", "list_cut_off"]),
    "syntax": (items(TEXT, '{"a": [1, {bad} ]}'), ["ok", "json", "ok"]),
    "key_twice": (items('{"a": 1, "a": 2}'), ["key_twice", "ok"]),
    "nan": (items('{"target": NaN}, {"a": 1e999}'), ["constant", "number_large", "ok"]),
    "mixed": (f'[1, "x", null, [{TEXT}], {TEXT}]', ["item_not_object"] * 4 + ["ok"]),
    "nul": (items('{"a": "\\u0000"}'), ["nul", "ok"]),
    "surrogate": (items('{"a": "\\ud83d"}'), ["surrogate", "ok"]),
    "deep": (items('{"a": ' + "[" * 10_000 + "]" * 10_000 + "}"), ["deep", "ok"]),
    "digits": (items('{"a": ' + "9" * 5000 + "}"), ["digits", "ok"]),
    "comma_missing": (f"[{TEXT} {TEXT}, {TEXT}]", ["ok", "list_comma", "ok"]),
    "stray_bracket": (f"[{TEXT} }} }}, {TEXT}]", ["ok", "list_comma", "ok"]),
    "two_lists": (f"[{TEXT}] [{TEXT}]", ["ok", "list_rest"]),
    "long": (items('{"a": "' + "x" * 1_100_000 + '"}'), ["field_long", "ok"]),
    "two_mb": (items('{"a": [' + "1," * 1_000_000 + "1]}"), ["ok", "ok"]),
    "five_mb": (items('{"a": [' + "1," * 2_500_000 + "1]}"), ["row_long", "ok"]),
}


@pytest.mark.parametrize("name", CASES)
def test_every_item_is_kept_or_listed(tmp_path: Path, name: str) -> None:
    text, expected = CASES[name]
    start = time.process_time()
    assert codes(tmp_path / "f", text.encode()) == expected
    assert time.process_time() - start < 8


def test_wrong_encodings_are_listed_and_the_rest_survives(tmp_path: Path) -> None:
    latin = TEXT.encode().replace("天气".encode(), b"\xe9")
    assert codes(tmp_path / "f", b"[" + latin + b", " + TEXT.encode() + b"]") == ["utf8_row", "ok"]


def test_an_error_names_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('[\n {"a": 1},\n {"a" 2}\n]')
    bad = [raw.error for raw in text_module.read_values_list(tmp_path / "f") if raw.error]
    assert str(bad[0]).endswith("at line 3, column 7 of the file")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.sampled_from([TEXT, '{"a": "\\u4e00 ]["}', "[1]", '{"a": tru}', '{"a": NaN}']), max_size=8),
    chunk=st.integers(1, 40),
)
def test_chunks_of_any_size_give_the_same_rows(tmp_path: Path, texts: list[str], chunk: int) -> None:
    data = ("[" + ",\n".join(texts) + "]").encode()
    expected = codes(tmp_path / "f", data)
    assert len(expected) == len(texts)
    whole, text_module.CHUNK_BYTES = text_module.CHUNK_BYTES, chunk
    try:
        assert codes(tmp_path / "f", data) == expected
    finally:
        text_module.CHUNK_BYTES = whole


_rows: st.SearchStrategy[Any] = st.one_of(
    st.just(TEXT.encode()),
    st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b"") or b"x"),
    st.sampled_from([b'{"messages": 1}', b'{"messages": []}', b"[1]", b'{"prompt": [{}]}', b"\xff"]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(_rows, min_size=1, max_size=12))
def test_rows_in_are_rows_kept_and_rows_listed(tmp_path: Path, rows: list[bytes]) -> None:
    """Of any JSON Lines file: each line that is not blank comes out once, as a row or with a reason."""
    path = tmp_path / "f"
    path.write_bytes(b"\n".join([TEXT.encode(), *rows]) + b"\n")
    expected = [number for number, row in enumerate([TEXT.encode(), *rows], 1) if row.strip()]
    records = list(read_records(path))
    assert [record.line for record in records] == expected
    assert all((record.row is None) == bool(record.reason) for record in records)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["list", "csv", "open_text", "brackets"])
def test_large_files_stream_in_constant_memory(tmp_path: Path, form: str) -> None:
    """100 MB in 300 MB of address space: a list with bad items, a table, a text that never ends, only brackets."""
    from training.data.checking.runner import run_check
    from training.data.problems import CheckLimits

    item = json.dumps({"messages": [{"role": "user", "content": "天气 weather " * 40}]}, ensure_ascii=False)
    count = (100 << 20) // len(item.encode())
    with open(tmp_path / "upload", "w", encoding="utf-8") as file:
        if form == "list":
            file.write(
                '[{"a": tru},' + (item + ",\n") * (count // 2) + '{"b": 1, "b": 2},' + (item + ",") * (count // 2)
            )
            file.write(item)
        elif form == "csv":
            file.write("question,answer\n" + f'"{item[:900].replace(chr(34), "")}",1\n' * count)
        else:
            file.write('[{"a": "' + "x" * (100 << 20) if form == "open_text" else "[" * (100 << 20))
    report = run_check(tmp_path / "upload", tmp_path / "out", limits=CheckLimits(memory_bytes=300 << 20))
    if form == "list":
        assert report["rows"] == count // 2 * 2 + 1
        assert report["codes"].keys() >= {"json", "key_twice", "list_cut_off"}
    elif form == "csv":
        assert report["rows"] == count
    else:
        assert report["verdict"] == "rejected" and report["bad_rows"] == 1
