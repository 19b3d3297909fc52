"""Form fields that are made of a model keep its limits, and say what is wrong in its words."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from django.core.exceptions import ValidationError
from pydantic import BaseModel, Field
from pydantic import ValidationError as ShapeError

from webapp.common.fields import Above, LinesField, YamlListField, error_sentence, fields_of


class Part(BaseModel):
    """What a list holds."""

    name: str = Field(min_length=1, max_length=3)
    weight: float = 1.0


class Options(BaseModel):
    """One option of each shape."""

    whole: int = Field(3, ge=1, lt=10)
    share: float = Field(0.5, gt=0, lt=1)
    rate: float = Field(1.0, ge=0, le=2)
    perhaps: int | None = Field(None, ge=2)
    text: str = Field("a", min_length=1, max_length=5)
    code: str = Field("", pattern="^[a-z]*$", max_length=9)
    loose: str = ""
    on: bool = False
    one: Literal["a", "b"] = "a"
    several: list[Literal["a", "b"]] = Field(default_factory=list)
    lines: list[str] = Field(default_factory=list, max_length=2)
    hidden: str = Field("", json_schema_extra={"widget": "code"})
    filled: str = Field("", json_schema_extra={"widget": "registration"})
    nested: Part | None = None
    parts: list[Part] = Field(default_factory=list)


def test_a_form_has_the_options_that_it_can_show() -> None:
    shown = ["whole", "share", "rate", "perhaps", "text", "code", "loose", "on", "one", "several", "lines"]
    fields = fields_of(Options)
    assert list(fields) == shown
    assert [name for name in shown if fields[name].required] == ["whole", "share", "rate", "text", "one"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("whole", ["1", "9"], ["0", "10", "1.5", ""]),
        ("share", ["0.001", "0.999"], ["0", "1"]),
        ("rate", ["0", "2"], ["-0.1", "2.1", "nan"]),
        ("perhaps", ["", "2"], ["1"]),
        ("text", ["a", "abcde"], ["", "abcdef"]),
        ("code", ["", "abc", "a" * 9], ["A", "a" * 10]),
        ("loose", ["", "x" * 500], ["x" * 501]),
        ("one", ["a", "b"], ["c", ""]),
        ("lines", ["", "a\n\n b \n"], ["a\nb\nc"]),
    ],
)
def test_a_field_takes_what_its_model_takes(name: str, good: list[str], bad: list[str]) -> None:
    field = fields_of(Options)[name]
    for value in good:
        field.clean(value)
    for value in bad:
        with pytest.raises(ValidationError):
            field.clean(value)


def test_lines_are_stripped_counted_and_shown_again() -> None:
    field = LinesField(max_items=2, required=False)
    assert field.clean(" a \n\n b") == ["a", "b"] and field.prepare_value(["a", 2]) == "a\n2"
    with pytest.raises(ValidationError, match="At most 2 lines"):
        field.clean("a\nb\nc")


def test_a_limit_that_is_not_taken_itself() -> None:
    Above(0)(0.1), Above(1, below=True)(0.9)
    for limit, sentence in ((Above(0.5), "above 0.5"), (Above(0.5, below=True), "below 0.5")):
        with pytest.raises(ValidationError, match=f"Enter a number {sentence}"):
            limit(0.5)


def test_items_are_written_as_yaml_and_read_again() -> None:
    whole, brief = (YamlListField(Part, wanted="Write a list.", brief=brief) for brief in (False, True))
    items = [Part(name="a"), Part(name="b", weight=2)]
    assert whole.prepare_value(items[:1]) == "- name: a\n  weight: 1.0\n"
    assert brief.prepare_value(items) == "- name: a\n- name: b\n  weight: 2.0\n"
    assert brief.clean(brief.prepare_value(items)) == items and whole.prepare_value([]) == ""
    assert whole.clean(" \n") == [] and whole.prepare_value("typed: [") == "typed: ["
    for text, sentence in {
        "name: a": "Write a list.",
        "- {": "This is not valid YAML.",
        "- name: abcd": "name: It may have at most 3 characters.",
        "- 1": "It must be a mapping.",
    }.items():
        with pytest.raises(ValidationError) as refused:
            whole.clean(text)
        assert refused.value.messages == [sentence]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"whole": 0}, "It must be at least 1."),
        ({"whole": 10}, "It must be below 10."),
        ({"whole": "x"}, "It must be a whole number."),
        ({"whole": 1.5}, "It must be a whole number."),
        ({"share": 0}, "It must be above 0.0."),
        ({"rate": 3}, "It must be at most 2.0."),
        ({"rate": "x"}, "It must be a number."),
        ({"on": "perhaps"}, "It must be true or false."),
        ({"text": 1}, "It must be text."),
        ({"text": ""}, "It must have at least 1 characters."),
        ({"code": "A"}, "It holds characters that are not allowed here."),
        ({"one": "c"}, "It must be one of 'a' or 'b'."),
        ({"lines": "a"}, "It must be a list."),
        ({"lines": ["a"] * 3}, "It may have at most 2 items."),
        ({"parts": [{}]}, "This option is missing."),
    ],
)
def test_a_models_complaint_is_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ShapeError) as caught:
        Options.model_validate(values)
    assert error_sentence(caught.value.errors(include_url=False)[0]) == sentence
