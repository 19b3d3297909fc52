"""Secrets that a server repeats were taken out in one form only."""

from __future__ import annotations

import html
import json
from urllib.parse import quote, quote_plus

import pytest

from training.redaction import HIDDEN, Pieces, address_secrets, redact, without, without_all

KEY = "sk/live+0123 456&789=\"ab'c"
HOOK = "https://hooks.example/services/T0/B0/S3cretS3cret?key=v%2Falue12345&n=1"


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        quote(KEY),
        quote(KEY, safe=""),
        quote_plus(KEY),
        quote(KEY, safe="").lower(),
        quote(quote(KEY, safe=""), safe=""),
        json.dumps(KEY)[1:-1],
        json.dumps(KEY)[1:-1].replace("/", "\\/"),
        "".join(f"\\u{ord(letter):04x}" for letter in KEY),
        html.escape(KEY),
        "".join(f"&#{ord(letter)};" for letter in KEY),
        KEY.upper(),
        f"Bearer {KEY}",
    ],
)
def test_a_known_secret_is_found_in_every_form(written: str) -> None:
    redacted = without(f'refused: "{written}".', [KEY])
    assert redacted in (f'refused: "{HIDDEN}".', f'refused: "Bearer {HIDDEN}".')


def test_other_text_stays_as_it_is() -> None:
    text = 'Bearer authentication failed: 100% of 3 + 4 & "x" \\u0041 %41 sk-live'
    assert without(text, [KEY, "", "ollama"]) == text == redact(text, ["ollama"])
    assert without("word wordwor wordword", ["wordwor"]) == "word wordwor wordword"  # seven characters are a word
    assert without("word wordwor wordword", ["wordword"]) == f"word wordwor {HIDDEN}"


def test_the_longest_of_several_is_taken_out_first() -> None:
    assert without("a-secret-key-2 a-secret-key", ["a-secret-key", "a-secret-key-2"]) == f"{HIDDEN} {HIDDEN}"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_secret_over_the_border_of_two_pieces_is_found(size: int) -> None:
    text = f"It is {KEY}, no: {KEY[:9]} {quote(KEY, safe='')} sk/"
    pieces, shown = Pieces([KEY]), []
    for start in range(0, len(text), size):
        shown.append(pieces.feed(text[start : start + size]))
    shown.append(pieces.rest())
    assert "".join(shown) == f"It is {HIDDEN}, no: {KEY[:9]} {HIDDEN} sk/"
    assert all(KEY[:10] not in piece for piece in shown) and pieces.rest() == ""


def test_pieces_wait_only_for_what_may_be_a_secret() -> None:
    pieces = Pieces([KEY])
    assert [pieces.feed("hello "), pieces.feed("sk"), pieces.feed("y is high"), pieces.rest()] == [
        "hello ",
        "",
        "sky is high",
        "",
    ]
    assert Pieces([]).feed("sk") == "sk"


def test_all_texts_of_a_value_are_searched() -> None:
    value = {"a": [KEY, 1, None, {KEY: f"x{KEY}"}], "b": True}
    assert without_all(value, [KEY]) == {"a": [HIDDEN, 1, None, {HIDDEN: f"x{HIDDEN}"}], "b": True}


@pytest.mark.parametrize(
    "text",
    [
        HOOK,
        '{"status":404,"path":"/services/T0/B0/S3cretS3cret"}',
        "no route for /services/T0/B0/S3cretS3cret?key=v%2Falue12345&n=1",
        "unknown token S3cretS3cret",
        "bad query key=v%2Falue12345&n=1",
        "bad key v/alue12345",
        "bad key v%2falue12345",
        '{"url":"https:\\/\\/hooks.example\\/services\\/T0\\/B0\\/S3cretS3cret"}',
    ],
)
def test_parts_of_a_secret_address_are_taken_out(text: str) -> None:
    shown = without(text, address_secrets(HOOK))
    assert HIDDEN in shown and "S3cret" not in shown and "alue12345" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("403 refused Bearer hf_CANARYsiteHubToken0001", "403 refused Bearer ***"),
        ("Authorization: Bearer abcd1234efgh", "Authorization: Bearer ***"),
        ("basic dXNlcjpwYXNz0123==", "basic ***"),
        ("token=abcdef password: hunter2", "token=*** password: ***"),
        ("https://me:pass@host/x", "https://me:***@host/x"),
        ("key hf_abcdefghijklmnop1234 and sk-abcdefghijklmnop1234", "key hf_*** and sk-***"),
        ("GET /s/abcdefgh 404", "GET /s/*** 404"),
        ("a bearer of bad news, basic arithmetic, hf_hub_download_of_files, sk-learn-and-its-friends", None),
    ],
)
def test_what_looks_like_a_credential_is_taken_out(text: str, shown: str | None) -> None:
    assert redact(text) == (shown or text)
