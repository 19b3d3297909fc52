"""Hostile dataset files, made on the spot: name -> (bytes, bad line or ``None`` for the whole file, words).

Bytes that take long to make are a function: every process that collects the tests imports this, and one needs them.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable

GOOD = b'{"messages": [{"role": "user", "content": "hi"}]}'

Case = tuple[bytes | Callable[[], bytes], int | None, str]


def row(messages: object = None, **extra: object) -> bytes:
    """One line with these messages; none given, a good one."""
    messages = [{"role": "user", "content": "hi"}] if messages is None else messages
    return json.dumps({"messages": messages, **extra}).encode()


def user_line(content: str) -> bytes:
    """A line whose content is this JSON source, quotes and all."""
    return b'{"messages": [{"role": "user", "content": ' + content.encode("utf-8", "surrogatepass") + b"}]}"


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("notes.txt", GOOD)
    return buffer.getvalue()


WHOLE: dict[str, Case] = {
    "empty": (b"", None, "The file is empty."),
    "newlines": (b"\n\r\n\n  \n\t\n", None, "no rows, only empty lines"),
    "bom_only": (b"\xef\xbb\xbf", None, "no rows"),
    "utf16_le": (GOOD.decode().encode("utf-16"), None, "UTF-16 text. Save it as UTF-8"),
    "utf16_be": (b"\xfe\xff" + GOOD.decode().encode("utf-16-be"), None, "UTF-16"),
    "utf16_without_mark": (GOOD.decode().encode("utf-16-le"), None, "binary: byte 1 is NUL"),
    "utf32": (GOOD.decode().encode("utf-32"), None, "UTF-32"),
    "zip": (_zip(), None, "The zip archive holds no .parquet, .jsonl, .json, .csv, .tsv file."),
    "zip_cut_off": (_zip()[:40], None, "The zip archive is damaged"),
    "gzip_cut_off": (gzip.compress(GOOD)[:-9], None, "The gzip file is damaged or cut off"),
    "gzip_bomb": (lambda: gzip.compress(bytes(80 << 20)), None, "unpacks to far more than its size allows"),
    "gzip_in_gzip": (gzip.compress(gzip.compress(GOOD)), None, "The archive holds another archive"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(20), None, "PNG picture"),
    "jpeg": (b"\xff\xd8\xff\xe0" + bytes(20), None, "JPEG"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3", None, "PDF document"),
    "pickle": (b"\x80\x04\x95\x0b\0\0", None, "Python pickle"),
    "elf": (b"\x7fELF\x02\x01", None, "a program"),
    "sqlite": (b"SQLite format 3\0", None, "SQLite"),
    "bzip2": (b"BZh91AY&SY", None, "bzip2"),
    "zstandard": (b"\x28\xb5\x2f\xfd\x00", None, "zstandard"),
    "arrow": (b"ARROW1\0\0", None, "Arrow file"),
    "nul_first": (b"\0" * 100, None, "binary: byte 0 is NUL"),
    "parquet_mark_only": (b"PAR1", None, "parquet file is damaged"),
    "parquet_garbage": (b"PAR1" + b"\xff" * 500 + b"PAR1", None, "parquet file is damaged"),
    "parquet_huge_footer": (b"PAR1" + b"x" * 50 + b"\xff\xff\xff\x7fPAR1", None, "parquet file is damaged"),
}

LINES: dict[str, tuple[bytes, str]] = {
    "not_json": (b"hello", "not valid JSON"),
    "csv": (b"role,content", "not valid JSON"),
    "python_dict": (b"{'messages': []}", "not valid JSON"),
    "trailing_comma": (GOOD[:-1] + b",}", "not valid JSON"),
    "two_objects": (GOOD + GOOD, "not valid JSON"),
    "carriage_return_lines": (GOOD + b"\r" + GOOD, "not valid JSON"),
    "raw_control_character": (user_line('"a\x01b"'), "not valid JSON"),
    "bom_in_the_middle": (b"\xef\xbb\xbf" + GOOD, "not valid JSON"),
    "a_list": (b"[1, 2]", "not a JSON object"),
    "a_string": (b'"hi"', "not a JSON object"),
    "a_number": (b"1", "not a JSON object"),
    "null": (b"null", "not a JSON object"),
    "no_conversation": (b'{"question": "?", "answer": "!"}', "no conversation"),
    "null_conversation": (b'{"messages": null}', "no conversation"),
    "conversation_is_text": (row("hi"), "`messages` is text, not a list"),
    "conversation_is_an_object": (row({"role": "user"}), "`messages` is an object"),
    "empty_conversation": (row([]), "`messages` is empty"),
    "message_is_text": (row(["hi"]), "message 1 is text"),
    "message_is_null": (row([None]), "message 1 is null"),
    "no_role": (row([{"content": "hi"}]), "message 1 has no role"),
    "unknown_role": (row([{"role": "wizard", "content": "hi"}]), "unknown role 'wizard'"),
    "role_is_a_list": (row([{"role": ["user"], "content": "hi"}]), "unknown role"),
    "role_is_huge": (row([{"role": "w" * 5000, "content": "hi"}]), "unknown role 'www"),
    "no_content": (row([{"role": "user"}]), "message 1 has no content"),
    "content_is_a_number": (row([{"role": "user", "content": 5}]), "the content of message 1 is a number, not text"),
    "content_is_parts": (row([{"role": "user", "content": [{"type": "text"}]}]), "message 1 has no content"),
    "content_is_a_picture": (
        row([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
        "message 1 has a part of type 'image_url'; only parts of text can be trained on",
    ),
    "content_is_true": (row([{"role": "user", "content": True}]), "is true or false, not text"),
    "second_message_bad": (row([{"role": "user", "content": "a"}, {"role": "assistant"}]), "message 2 has no content"),
    "call_is_not_json": (row([{"role": "tool_call", "content": "run it"}]), "message 1 (a tool_call): not valid JSON"),
    "call_without_name": (row([{"role": "tool_call", "content": "{}"}]), "no tool name"),
    "call_arguments_are_a_list": (
        row([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]),
        "is a list, not an object",
    ),
    "calls_are_text": (row([{"role": "assistant", "content": "", "tool_calls": "f()"}]), "not a list"),
    "call_id_is_a_number": (row([{"role": "tool", "content": "", "tool_call_id": 7}]), "not text"),
    "tools_are_not_json": (row(tools="[{"), "`tools`: not valid JSON"),
    "tools_are_texts": (row(tools=["f"]), "not a list of function schemas"),
    "nul_escape": (user_line('"a\\u0000b"'), "NUL character"),
    "nul_in_a_key": (row(**{"a\0b": 1}), "NUL character"),
    "nul_byte": (user_line('"a\0b"'), "NUL byte at byte"),
    "lone_surrogate": (user_line('"\\ud83d"'), "half of a surrogate pair"),
    "lone_low_surrogate": (user_line('"\\ude00 x"'), "half of a surrogate pair"),
    "swapped_surrogates": (user_line('"\\ude00\\ud83d"'), "half of a surrogate pair"),
    "encoded_surrogate": (user_line('"\ud83d"'), "not UTF-8"),
    "latin1": (user_line('"x"').replace(b"x", b"\xe9"), "not UTF-8: byte "),
    "gbk": (user_line('"x"').replace(b"x", "你好".encode("gbk")), "not UTF-8"),
    "overlong_utf8": (user_line('"x"').replace(b"x", b"\xc0\x80"), "not UTF-8"),
    "nan": (GOOD[:-1] + b', "tools": NaN}', "holds NaN"),
    "infinity": (GOOD[:-1] + b', "tools": Infinity}', "holds Infinity"),
    "minus_infinity": (GOOD[:-1] + b', "tools": [-Infinity]}', "holds -Infinity"),
    "float_overflow": (GOOD[:-1] + b', "x": 1e999}', "number too large"),
    "huge_integer": (GOOD[:-1] + b', "x": ' + b"9" * 5000 + b"}", "too many digits"),
    "nested_33": (GOOD[:-1] + b', "tools": ' + b"[" * 32 + b"]" * 32 + b"}", "nested deeper than 32"),
    "nested_objects": (GOOD[:-1] + b', "tools": ' + b'{"a":' * 200 + b"1" + b"}" * 201, "nested deeper than 32"),
    "nested_100000": (b"[" * 100_000, "nested deeper than 32"),
    "nested_million_objects": (b'{"a":' * 500_000, "nested deeper than 32"),
    "nested_in_tools": (row(tools="[" * 50_000), "`tools`: nested deeper"),
    "field_too_long": (row([{"role": "user", "content": "x" * ((1 << 20) + 1)}]), "longer than 1 MB"),
    "field_too_long_in_chinese": (user_line('"' + "字" * 349_526 + '"'), "longer than 1 MB"),
    "key_too_long": (row(**{"k" * 1_100_000: 1}), "longer than 1 MB"),
    "line_too_long": (b'{"x": "' + b"y" * (5 << 20) + b'"}', "longer than 4 MB"),
    "duplicate_key": (GOOD[:-1] + b', "x": 1, "x": 2}', "the key 'x' appears twice in one object"),
    "duplicate_conversation": (GOOD[:-1] + b', "messages": []}', "the key 'messages' appears twice in one object"),
    "duplicate_role": (
        b'{"messages": [{"role": "user", "role": "system", "content": ""}]}',
        "the key 'role' appears twice in one object",
    ),
    "columns": (row(**{f"c{i}": 1 for i in range(200)}), "201 columns; 200 are allowed"),
    "call_nested_too_deeply_once_decoded": (
        row([{"role": "tool_call", "content": '{"name": "f", "arguments": {"a": ' + "[" * 28 + "]" * 28 + "}}"}]),
        "nested deeper than 32",
    ),
    "row_above_4_mb_once_written": (
        b'{"conversation": [{"role": "user", "content": ""}], "x": [' + b"0," * 1_999_999 + b"0" + b"]}",
        "longer than 4 MB",
    ),
    "html": (b"<!doctype html><script>alert(1)</script>", "not valid JSON"),
}


def corpus() -> dict[str, Case]:
    """All files. Each bad line is between two good ones, so that its number and the others' survival show."""
    files = dict(WHOLE)
    for name, (line, reason) in LINES.items():
        files[name] = (GOOD + b"\n" + line + b"\n" + GOOD + b"\n", 2, reason)
    files["last_line_cut"] = (GOOD + b"\n" + GOOD[:-9], 2, "last line is cut off")
    files["last_line_cut_in_a_character"] = (user_line('"字"') + b"\n" + user_line('"字"')[:45], 2, "cannot be decoded")
    files["crlf_and_bom"] = (b"\xef\xbb\xbf" + GOOD + b"\r\nbad\r\n" + GOOD, 2, "not valid JSON")
    files["only_bad"] = (b"bad\n" * 300, 1, "None of the 300 rows can be used")
    return files
