"""Makes docs/configuration.md from the config models: `python -m training docs`; a test keeps it current."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from training.config import JobConfig

_HEAD = """\
# Options of a job

Made from `training/config/` by `python -m training docs`. The form, the YAML view, the API and the command line all
take these. In the web application `model.source`, `data.train`, `environment.name` and `rewards.spec` are references
such as `dataset:my-tasks@2`; a YAML file for `python -m training run` has paths, URLs and components there.
"""

_BOUNDS = (
    (annotated_types.Ge, "ge", "≥"),
    (annotated_types.Gt, "gt", ">"),
    (annotated_types.Le, "le", "≤"),
    (annotated_types.Lt, "lt", "<"),
)


def reference() -> str:
    """The page as Markdown."""
    parts = [_HEAD, _table("", JobConfig, only_groups=False)]
    for name, field in JobConfig.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            parts.append(f"## `{name}`: {field.title}\n\n{inspect.getdoc(group)}\n\n{_table(name, group)}")
    return "\n".join(parts)


def _table(prefix: str, model: type[BaseModel], *, only_groups: bool = True) -> str:
    lines = ["| option | default | limits | what it does |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        if not only_groups and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            continue
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        unit = f" {extra['unit']}" if extra.get("unit") else ""
        path = f"{prefix}.{name}" if prefix else name
        lines.append(f"| `{path}` | {_default(field)}{unit} | {_limits(field, extra)} | {_what(field, extra)} |")
    return "\n".join(lines) + "\n"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    return f"`{value}`" if value not in ("", []) else "–"


def _limits(field: FieldInfo, extra: Mapping[str, object]) -> str:
    choices = extra.get("choices") or {}
    if isinstance(choices, dict) and choices:
        return ", ".join(f"`{value}`: {meaning}" for value, meaning in choices.items())
    found = [
        f"{sign} {getattr(rule, name)}"
        for rule in field.metadata
        for kind, name, sign in _BOUNDS
        if isinstance(rule, kind)
    ]
    return ", ".join(found) or "–"


def _what(field: FieldInfo, extra: Mapping[str, object]) -> str:
    title, text = field.title or "", field.description or ""
    return f"**{title}.** {text}".replace("|", "\\|").strip()
