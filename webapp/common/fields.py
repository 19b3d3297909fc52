"""Form fields made from pydantic models, so that a form never disagrees with the model that checks it in the end.

Django's fields judge single values, because their sentences are translated; the model judges the whole.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Annotated, Any, Literal

import yaml
from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from pydantic import BaseModel
from pydantic import ValidationError as ShapeError
from pydantic.fields import FieldInfo

from training.config import yaml_bounded
from training.words import complaint_of, option_of
from webapp.common.text import code_marks, in_words, translated

MAX_LIST_CHARS = 20_000


class Above:
    """Refuse values that are not above an exclusive limit (or not below it)."""

    def __init__(self, limit: float, *, below: bool = False) -> None:
        self.limit, self.below = limit, below

    def __call__(self, value: float) -> None:
        if self.below and not value < self.limit:
            raise ValidationError(_("Enter a number below %(limit)s.") % {"limit": f"{self.limit:g}"})
        if not self.below and not value > self.limit:
            raise ValidationError(_("Enter a number above %(limit)s.") % {"limit": f"{self.limit:g}"})


class LinesField(forms.CharField):
    """A list of short texts, one a line."""

    widget = forms.Textarea

    def __init__(self, *, max_items: int, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_LIST_CHARS, **kwargs)
        self.max_items = max_items
        self.widget.attrs["rows"] = 4

    def prepare_value(self, value: Any) -> Any:
        """Show a list as lines."""
        return "\n".join(str(item) for item in value) if isinstance(value, list) else value

    def clean(self, value: Any) -> list[str]:  # type: ignore[override]
        """Lines that are not empty."""
        lines = [line.strip() for line in str(super().clean(value)).splitlines() if line.strip()]
        if len(lines) > self.max_items:
            raise ValidationError(_("At most %(count)s lines.") % {"count": self.max_items})
        return lines


def help_text(text: str | None) -> str:
    """A translated help text of ours with `names` set as code."""
    return code_marks(translated(text))


def error_sentence(error: Any) -> str:
    """A model's complaint about a value, in the reader's language where it is a common one."""
    sentences = {
        "missing": _("This option is missing."),
        "extra_forbidden": _("There is no such option."),
        "greater_than_equal": _("It must be at least {ge}."),
        "greater_than": _("It must be above {gt}."),
        "less_than_equal": _("It must be at most {le}."),
        "less_than": _("It must be below {lt}."),
        "literal_error": _("It must be one of {expected}."),
        "string_too_long": _("It may have at most {max_length} characters."),
        "string_too_short": _("It must have at least {min_length} characters."),
        "string_pattern_mismatch": _("It holds characters that are not allowed here."),
        "too_long": _("It may have at most {max_length} items."),
        "finite_number": _("It must be a finite number."),
    }
    kind = str(error.get("type", ""))
    families = {
        "int_": _("It must be a whole number."),
        "float_": _("It must be a number."),
        "bool_": _("It must be true or false."),
        "string_type": _("It must be text."),
        "list_type": _("It must be a list."),
        "dict_type": _("It must be a mapping."),
        "model_type": _("It must be a mapping."),
    }
    for parsed, sentence in families.items():
        if kind.startswith(parsed):
            return sentence
    if kind in sentences:
        return sentences[kind].format(**error.get("ctx", {}))
    return in_words(complaint_of(error))


class YamlListField(forms.CharField):
    """A list of ``item`` models as YAML, such as reward components; ``wanted`` says what each must have."""

    widget = forms.Textarea

    def __init__(
        self, item: type[BaseModel], *, wanted: str, rows: int = 4, brief: bool = False, **kwargs: Any
    ) -> None:
        """``brief`` leaves out options that have their default."""
        attrs = {"rows": rows, "spellcheck": "false", "class": "mono"}
        super().__init__(required=False, max_length=20_000, widget=forms.Textarea(attrs=attrs), **kwargs)
        self.item, self.wanted, self.brief = item, wanted, brief

    def prepare_value(self, value: Any) -> Any:
        """Show the items as YAML, an empty list as nothing."""
        if not isinstance(value, list):
            return value
        plain = [
            item.model_dump(mode="json", exclude_defaults=self.brief) if isinstance(item, BaseModel) else item
            for item in value
        ]
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True) if plain else ""

    def clean(self, value: Any) -> list[BaseModel]:  # type: ignore[override]
        """Parse and check each item."""
        text = str(super().clean(value))
        if not text.strip():
            return []
        try:
            raw = yaml_bounded(text)
            if not isinstance(raw, list):
                raise ValidationError(self.wanted)
            return [self.item.model_validate(item) for item in raw]
        except yaml.YAMLError as exc:
            raise ValidationError(_("This is not valid YAML.")) from exc
        except ShapeError as exc:
            raise ValidationError([_error_line(error) for error in exc.errors(include_url=False)]) from exc


def _error_line(error: Any) -> str:
    where, message = option_of(error), error_sentence(error)
    return f"{where}: {message}" if where else message


def fields_of(model: type[BaseModel]) -> dict[str, forms.Field]:
    """One form field for each option of a model that a form can show; nested models, object lists, code and
    what a registration fills in are left out."""
    schema = _schema_of(model)
    made = {name: _form_field(info, schema.get(name, {})) for name, info in model.model_fields.items()}
    return {name: field for name, field in made.items() if field is not None}


@functools.cache
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The limits of a model's options: cached, because they take milliseconds for a model and are the same in every
    language."""
    found: dict[str, Any] = model.model_json_schema().get("properties", {})
    return found


def _form_field(info: FieldInfo, schema: dict[str, Any]) -> forms.Field | None:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    if extra.get("widget") in ("registration", "code"):
        return None
    common: dict[str, Any] = {
        "label": translated(info.title),
        "help_text": help_text(info.description),
        "initial": info.get_default(call_default_factory=True),  # type: ignore[call-arg]
    }
    kind = info.annotation
    inner = [item for item in typing.get_args(kind) if item is not types.NoneType]
    if typing.get_origin(kind) is types.UnionType and len(inner) == 1:  # may be left empty
        kind, common["required"] = inner[0], False
        schema = {key: value for part in schema.get("anyOf", []) for key, value in part.items()}
    if typing.get_origin(kind) is Literal:
        return forms.ChoiceField(choices=_literal_choices(kind, extra), **common)
    if kind is bool:
        return forms.BooleanField(required=False, **common)
    if kind in (int, float):
        return _number_field(typing.cast(type, kind), schema, common)
    if kind is str:
        limits = {"max_length": schema.get("maxLength", 500), "required": bool(schema.get("minLength"))}
        if "pattern" in schema:
            return forms.RegexField(schema["pattern"], **limits, **common)
        return forms.CharField(**limits, **common)
    if typing.get_origin(kind) is list and typing.get_origin(typing.get_args(kind)[0]) is Literal:
        offered, widget = _literal_choices(typing.get_args(kind)[0], extra), forms.CheckboxSelectMultiple
        return forms.MultipleChoiceField(choices=offered, required=False, widget=widget, **common)
    if typing.get_origin(kind) in (list, types.GenericAlias) and _is_text(typing.get_args(kind)[0]):
        return LinesField(max_items=int(schema.get("maxItems", 200)), required=False, **common)
    return None


def _is_text(kind: Any) -> bool:
    """Whether the items of a list are texts, with or without limits of their own."""
    return kind is str or (typing.get_origin(kind) is Annotated and typing.get_args(kind)[0] is str)


def _literal_choices(kind: Any, extra: dict[str, Any]) -> list[tuple[str, str]]:
    """The values of a ``Literal``, each with its meaning where it has one."""
    meanings = typing.cast(dict[str, str], extra.get("choices") or {})
    return [
        (value, f"{value} · {_(meanings[value])}" if value in meanings else value) for value in typing.get_args(kind)
    ]


def _number_field(kind: type, schema: dict[str, Any], common: dict[str, Any]) -> forms.Field:
    """A number with the model's limits, inclusive and exclusive."""
    validators = []
    low, high = schema.get("minimum"), schema.get("maximum")
    if kind is int:
        if high is None and "exclusiveMaximum" in schema:
            high = int(schema["exclusiveMaximum"]) - 1
        return forms.IntegerField(min_value=low, max_value=high, **common)
    if "exclusiveMinimum" in schema:
        validators.append(Above(schema["exclusiveMinimum"]))
    if "exclusiveMaximum" in schema:
        validators.append(Above(schema["exclusiveMaximum"], below=True))
    field = forms.FloatField(min_value=low, max_value=high, validators=validators, **common)
    field.widget.attrs["step"] = "any"
    return field
