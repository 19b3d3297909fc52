"""Holding answers of the API to the schema that it publishes: field by field, with none that it does not name."""

from __future__ import annotations

import copy
import re
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from jsonschema import Draft202012Validator, FormatChecker

from webapp.api import urls  # noqa: F401 - adds the operations
from webapp.api.base import api

PREFIX = "/api/v1/"
PLACES = {"uuid": r"[0-9a-f-]{36}", "integer": r"\d+", None: r"[^/]+"}
formats = FormatChecker(formats=())


@formats.checks("uuid", raises=ValueError)
def _uuid(value: object) -> bool:
    return not isinstance(value, str) or bool(UUID(value))


@formats.checks("date-time", raises=ValueError)
def _time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@cache
def schema() -> dict[str, Any]:
    """What openapi.json says."""
    return dict(api.get_openapi_schema(path_prefix=PREFIX))


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    """Every operation by its method and its path as the schema writes it."""
    return {
        (method.upper(), path): operation
        for path, all in schema()["paths"].items()
        for method, operation in all.items()
    }


@cache
def _closed() -> dict[str, Any]:
    """The parts of the schema, each without room for a field that it does not name."""

    def close(part: Any) -> None:
        if isinstance(part, dict):
            if "properties" in part:
                part["additionalProperties"] = False
            for item in part.values():
                close(item)
        elif isinstance(part, list):
            for item in part:
                close(item)

    parts = copy.deepcopy(schema()["components"])
    close(parts)
    return parts


def _pattern(path: str, operation: dict[str, Any]) -> re.Pattern[str]:
    kinds = {item["name"]: item["schema"] for item in operation.get("parameters", []) if item["in"] == "path"}

    def place(found: re.Match[str]) -> str:
        shape = kinds.get(found[1], {})
        return PLACES.get(shape.get("format") or shape.get("type"), PLACES[None])

    return re.compile(re.sub(r"\{(\w+)\}", place, path))


def operation_of(method: str, address: str) -> dict[str, Any] | None:
    """The operation of an address; ``None`` where the schema has none."""
    here = {path: operation for (verb, path), operation in operations().items() if verb == method}
    return here.get(address) or next(
        (operation for path, operation in here.items() if _pattern(path, operation).fullmatch(address)), None
    )


def complaints(method: str, address: str, status: int, body: Any) -> list[str]:
    """What is wrong with an answer, by the schema of its operation."""
    operation = operation_of(method, address)
    if operation is None:
        return [f"{method} {address} is not in the schema"]
    documented = operation["responses"].get(status)
    if documented is None:
        return [f"{method} {address} answers {status}, which the schema does not name"]
    shape = documented.get("content", {}).get("application/json", {}).get("schema")
    if shape is None:
        return []
    checker = Draft202012Validator({**shape, "components": _closed()}, format_checker=formats)
    return [f"{method} {address}: {error.json_path}: {error.message[:300]}" for error in checker.iter_errors(body)]
