"""The schema as people read it: operations by subject, their fields in rows, an example for a shell."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from webapp.api.base import api
from webapp.common.middleware import LOOKS, page

PREFIX = "/api/v1/"
METHODS = ("get", "post", "patch", "put", "delete")
# Subjects in the order in which a new reader needs them; others follow by name.
SUBJECTS = (
    "me",
    "projects",
    "people",
    "machine accounts",
    "runs",
    "rollouts",
    "datasets",
    "rewards",
    "environments",
    "endpoints",
    "models",
    "comparisons",
    "saved comparisons",
    "suites",
    "votes",
    "chats",
    "notifications",
)
MOST_DEEP = 4
JSON, FORM = "application/json", "multipart/form-data"
CODE = re.compile(r"`([^`]+)`")
Schema = dict[str, Any]


class Piece(NamedTuple):
    """A part of a sentence; ``code`` is set in the type of code."""

    text: str
    code: bool


class FieldRow(NamedTuple):
    """A parameter or a field. ``depth`` counts the objects around it."""

    name: str
    kind: str
    required: bool
    about: list[Piece]
    depth: int = 0


class Answer(NamedTuple):
    """The answer of a status: fields, or ``kind`` alone where it is not a JSON object."""

    status: int
    kind: str
    fields: list[FieldRow]


class Operation(NamedTuple):
    """One method of one path."""

    id: str
    method: str
    path: str
    summary: list[Piece]
    about: list[Piece]
    parameters: list[FieldRow]
    body: list[FieldRow]
    form: bool
    answers: list[Answer]
    errors: list[int]
    example: tuple[str, str, str]
    words: str


class Subject(NamedTuple):
    """The operations on one kind of thing."""

    id: str
    title: str
    operations: list[Operation]


def pieces(text: str) -> list[Piece]:
    """A sentence cut at its backticks."""
    parts = CODE.split(" ".join(text.split()))
    return [Piece(part, bool(place % 2)) for place, part in enumerate(parts) if part]


@cache
def openapi_schema() -> Schema:
    """The schema of the API. It does not change while the process lives."""
    return dict(api.get_openapi_schema(path_prefix=PREFIX))


@cache
def subjects() -> list[Subject]:
    """Every operation of the API, by subject."""
    schema = openapi_schema()
    shapes = schema["components"]["schemas"]
    found: dict[str, list[Operation]] = {}
    for path, methods in schema["paths"].items():
        for method in METHODS:
            if method in methods:
                operation = methods[method]
                found.setdefault(operation["tags"][0], []).append(
                    _operation_of(method.upper(), path, operation, shapes)
                )
    order = [*(name for name in SUBJECTS if name in found), *sorted(set(found) - set(SUBJECTS))]
    return [Subject(name.replace(" ", "-"), name.capitalize(), found[name]) for name in order]


def _operation_of(method: str, path: str, operation: Schema, shapes: Schema) -> Operation:
    summary, _dot, about = re.sub(r"\s+", " ", operation.get("description", "")).partition(". ")
    content = operation.get("requestBody", {}).get("content", {})
    kind = next(iter(content), "")
    body = list(_field_rows(content[kind]["schema"], shapes)) if kind else []
    parameters = [
        FieldRow(
            item["name"],
            _type_text(item["schema"], shapes),
            bool(item.get("required")),
            _field_notes(item["schema"], item),
        )
        for item in operation.get("parameters", [])
        if item["in"] in ("path", "query")
    ]
    shown, answers = "/" + path.removeprefix(PREFIX), operation["responses"]
    return Operation(
        id=f"{method.lower()}{re.sub(r'[^a-z0-9]+', '-', shown.lower())}".rstrip("-"),
        method=method,
        path=shown,
        summary=pieces(summary.rstrip(".")),
        about=pieces(about),
        parameters=parameters,
        body=body,
        form=kind == FORM,
        answers=[_answer_of(int(status), answer, shapes) for status, answer in answers.items() if int(status) < 400],
        errors=sorted(int(status) for status in answers if int(status) >= 400),
        example=_example_call(method, path, content, shapes),
        words=" ".join([method, shown, operation.get("description", ""), *operation["tags"]]).lower(),
    )


def _answer_of(status: int, answer: Schema, shapes: Schema) -> Answer:
    shape = answer.get("content", {}).get(JSON, {}).get("schema")
    if shape is None:
        return Answer(status, "file", [])
    return Answer(status, _type_text(shape, shapes), list(_field_rows(shape, shapes)))


# --- Shapes ---------------------------------------------------------------------------------------------------------
def _resolved_shape(shape: Schema, shapes: Schema) -> Schema:
    """The shape behind a reference, and the part that is not null where it may be null."""
    if "$ref" in shape:
        return _resolved_shape(shapes[shape["$ref"].rpartition("/")[2]], shapes)
    some = [item for item in shape.get("anyOf", []) if item.get("type") != "null"]
    return _resolved_shape(some[0], shapes) if len(some) == 1 else shape


def _type_text(shape: Schema, shapes: Schema) -> str:
    """The type of a value, in a word or two."""
    if "anyOf" in shape:
        kinds = [_type_text(item, shapes) for item in shape["anyOf"]]
        return " | ".join(dict.fromkeys(kinds))
    whole = _resolved_shape(shape, shapes)
    if "enum" in whole or "const" in whole:
        return " | ".join(json.dumps(item) for item in whole.get("enum", [whole.get("const")]))
    kind = str(whole.get("type", "any"))
    if kind == "array":
        return f"list of {_type_text(whole.get('items', {}), shapes)}"
    return str({"uuid": "id", "date-time": "time", "binary": "file"}.get(str(whole.get("format")), kind))


def _field_notes(whole: Schema, shape: Schema) -> list[Piece]:
    """The description of a field, and its limits."""
    limits = []
    for key, words in (
        ("minimum", "at least {}"),
        ("maximum", "at most {}"),
        ("maxLength", "at most {} characters"),
        ("minItems", "at least {} items"),
        ("maxItems", "at most {} items"),
    ):
        if key in whole:
            limits.append(words.format(whole[key]))
    default = shape.get("default", whole.get("default"))
    if default not in (None, "", [], {}):
        limits.append(f"default `{json.dumps(default)}`")
    description = shape.get("description") or ("" if "properties" in whole else whole.get("description", ""))
    return pieces("; ".join(part for part in (description, ", ".join(limits)) if part))


def _field_rows(shape: Schema, shapes: Schema, depth: int = 0) -> Iterator[FieldRow]:
    """The fields of an object, those of objects in it below them."""
    inner = _resolved_shape(shape, shapes)
    while inner.get("type") == "array":
        inner = _resolved_shape(inner.get("items", {}), shapes)
    if isinstance(inner.get("additionalProperties"), dict) and "properties" not in inner:
        inner = _resolved_shape(inner["additionalProperties"], shapes)
    required = inner.get("required", [])
    for name, field in inner.get("properties", {}).items():
        yield FieldRow(
            name,
            _type_text(field, shapes),
            name in required,
            _field_notes(_resolved_shape(field, shapes), field),
            depth,
        )
        if depth < MOST_DEEP:
            yield from _field_rows(field, shapes, depth + 1)


# --- Examples -------------------------------------------------------------------------------------------------------
def _example_call(method: str, path: str, content: Schema, shapes: Schema) -> tuple[str, str, str]:
    """A call for a shell: the text before the server's address, the path, and the text after it."""
    ask = "" if method == "GET" else f"--request {method} "
    head = f'curl {ask}--header "Authorization: Bearer $TOKEN" '
    if JSON in content:
        body = json.dumps(_example_value(content[JSON]["schema"], shapes), ensure_ascii=False)
        return head, path, f" --header 'Content-Type: application/json' --data '{body}'"
    if FORM in content:
        names = _resolved_shape(content[FORM]["schema"], shapes).get("required", [])
        parts = [f"--form {name}=…" for name in names if name != "file"]
        return head, path, " " + " ".join([*parts, "--form file=@rows.jsonl"])
    return head, path, ""


def _example_value(shape: Schema, shapes: Schema) -> Any:
    """The least value that a shape takes; of a body without anything required, one field to show how."""
    whole = _resolved_shape(shape, shapes)
    if "enum" in whole or "const" in whole:
        return whole.get("enum", [whole.get("const")])[0]
    kind = whole.get("type")
    if kind == "object":
        fields = whole.get("properties", {})
        names = whole.get("required") or list(fields)[:1]
        return {name: _example_value(fields[name], shapes) for name in names if name in fields}
    if kind == "array":
        return [_example_value(whole.get("items", {}), shapes)] * max(1, int(whole.get("minItems", 1)))
    if kind in ("integer", "number"):
        return whole.get("default", whole.get("minimum", 1))
    if kind == "boolean":
        return not whole.get("default", False)
    return "00000000-0000-0000-0000-000000000000" if whole.get("format") == "uuid" else "…"


# --- Constant -------------------------------------------------------------------------------------------------------
# Answers that stay the same until the next release: built and compressed once, and not sent again to clients that have
# them.


class Constant(NamedTuple):
    """A body, the same compressed, and its hash."""

    body: bytes
    packed: bytes
    hash: str
    content_type: str


def constant(body: bytes, content_type: str) -> Constant:
    """The body in its stored form."""
    return Constant(body, gzip.compress(body, mtime=0), hashlib.sha256(body).hexdigest()[:32], content_type)


def constant_answer(request: HttpRequest, made: Constant, *, cache_control: str) -> HttpResponseBase:
    """The body with its strong ETag, compressed for clients that accept that; 304 for clients that have it."""
    packs = "gzip" in request.headers.get("Accept-Encoding", "")
    etag = f'"{made.hash}{"-gzip" if packs else ""}"'  # compressed it is another body, and a strong tag must differ
    response = HttpResponse(made.packed if packs else made.body, content_type=made.content_type)
    response["ETag"], response["Cache-Control"] = etag, cache_control
    if packs:
        response["Content-Encoding"] = "gzip"
    patch_vary_headers(response, ["Accept-Encoding"])
    found = get_conditional_response(request, etag=etag, response=response)
    return response if found is None else found


# --- Docs page ------------------------------------------------------------------------------------------------------
# The reference of the API as a page.
#
# Its operations are laid out once for each language; the page without a login, which names no person, once for each
# language, theme and density. The server's name in the request replaces ``ADDRESS`` last.

ADDRESS = "http://address.of.this.server.invalid"
MOST_ADDRESSES = 32  # names of one server, languages and looks together
CACHE_CONTROL = "private, no-cache"  # after a login the page has another frame


def docs_answer(request: HttpRequest) -> HttpResponseBase:
    """The page: the same bytes for every stranger, with the person's own frame after a login."""
    address, language = request.build_absolute_uri("/").rstrip("/"), get_language() or ""
    if not request.user.is_authenticated:
        made = _stranger_page_at(language, tuple(page(request)[name] for name in LOOKS), address)
        return constant_answer(request, made, cache_control=CACHE_CONTROL)
    context = {
        **_page_context(language),
        "operations": _with_address(_operations_html(language), address),
        "address": address,
    }
    response = render(request, "api/docs.html", context)
    response["Cache-Control"] = CACHE_CONTROL
    return response


def _page_context(language: str) -> dict[str, object]:
    found = subjects()
    return {
        "subjects": found,
        "count": sum(len(subject.operations) for subject in found),
        "strings": {"api.found": _("{n} of {all} operations")},
        "operations": _operations_html(language),
        "address": ADDRESS,
    }


@cache
def _operations_html(_language: str) -> SafeString:
    return render_to_string("api/_operations.html", {"subjects": subjects(), "address": ADDRESS})


@cache
def _stranger_page(language: str, looks: tuple[str, ...], product_name: str) -> str:
    return render_to_string(
        "api/docs.html",
        {**_page_context(language), **dict(zip(LOOKS, looks, strict=True)), "product_name": product_name},
    )


@lru_cache(maxsize=MOST_ADDRESSES)
def _stranger_page_at(language: str, looks: tuple[str, ...], address: str) -> Constant:
    whole = _stranger_page(language, looks, settings.PRODUCT_NAME)
    return constant(_with_address(whole, address).encode(), "text/html; charset=utf-8")


def _with_address(text: str, address: str) -> SafeString:
    return mark_safe(text.replace(ADDRESS, escape(address)))  # noqa: S308 (the text is a template's; the rest is escaped)
