"""One type of sentence crosses from the library to the pages; there were five, each with its own way into JSON."""

from __future__ import annotations

import copy

import pytest
from pydantic import BaseModel, ValidationError

from training.addresses import AddressRefused, parse_place
from training.errors import DataError, ErrorInfo
from training.words import Sentence, counted, ngettext, sentence


class Report(BaseModel):
    found: list[Sentence] = []
    first: Sentence | None = None


def test_a_sentence_is_its_text_and_keeps_what_it_was_made_of() -> None:
    inner = sentence("byte {n}", n=7)
    outer = sentence("{what} of %(name)s", what=inner, name="a.json")
    assert outer == "byte 7 of a.json" and f"{outer}." == "byte 7 of a.json."
    assert outer.data == {
        "template": "{what} of %(name)s",
        "values": {"what": {"template": "byte {n}", "values": {"n": 7}}, "name": "a.json"},
    }
    assert sentence("nothing to {fill}") == "nothing to {fill}" and sentence(outer) is outer
    for twin in (copy.deepcopy(outer), Sentence.of(outer.data)):
        assert twin == outer and twin.data == outer.data


def test_a_count_chooses_its_form() -> None:
    texts = ngettext("{n} file of {name}", "{n} files of {name}")
    assert (counted(texts, 1, name="a"), counted(texts, 0, name="a")) == ("1 file of a", "0 files of a")
    several = counted(texts, 3, name="a")
    assert Sentence.of(several.data) == several == "3 files of a" and several.data["plural"] == "{n} files of {name}"


def test_reports_of_any_age_are_read() -> None:
    """Journals and rows of older versions hold plain texts, or template and values."""
    found = Report.model_validate({"found": ["plain", {"template": "{a} b", "values": {"a": 1}}], "first": None})
    assert found.found == ["plain", "1 b"] and found.first is None
    assert found.model_dump()["found"] == [
        {"template": "plain", "values": {}},
        {"template": "{a} b", "values": {"a": 1}},
    ]
    assert Report.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize("wrong", [5, ["a"], {"template": "x", "values": 5}])
def test_what_is_no_sentence_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError):
        Report.model_validate({"found": [wrong]})


def test_a_template_from_outside_reads_nothing_but_its_values() -> None:
    """``str.format`` would have followed attributes of the values."""
    assert Sentence.of({"template": "{a.__class__} {a!r} {b}", "values": {"a": 1}}) == "{a.__class__} {a!r} {b}"
    deep: object = "x"
    for _level in range(9):
        deep = {"template": "{a}", "values": {"a": deep}}
    with pytest.raises(ValueError, match="a sentence is"):
        Sentence.of(deep)


def test_errors_carry_their_sentence_where_it_has_values() -> None:
    error = DataError(sentence("{n} rows are broken", n=3))
    assert error.info.model_dump(mode="json") == {
        "code": "data_unreadable",
        "boundary": "data",
        "message": "3 rows are broken",
        "hint": "",
        "told": {"template": "{n} rows are broken", "values": {"n": 3}},
    }
    assert ErrorInfo.model_validate_json(error.info.model_dump_json()) == error.info
    assert "told" not in DataError("plain").info.model_dump()
    with pytest.raises(AddressRefused) as caught:
        parse_place("ftp://a.example/")
    assert caught.value.message == "The address must start with http:// or https://."
