"""One option of a job, and one group of options."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


def option(
    default: Any = ...,
    *,
    title: str,
    help: str,
    unit: str = "",
    basic: bool = False,
    widget: str = "",
    choices: dict[str, str] | None = None,
    **limits: Any,
) -> Any:
    """One option of a job: a pydantic field with what a form needs besides.

    ``basic`` options are shown first, all others folded by group. ``widget`` names a special control
    (``dataset``, ``model``, ``environment``, ``reward``); those of ``registration`` are filled in when an environment
    is chosen, so no form shows them. ``choices`` maps values to their one-line meaning.
    """
    extra: dict[str, Any] = {"unit": unit, "basic": basic, "widget": widget, "choices": choices or {}}
    if callable(default):
        return Field(default_factory=default, title=title, description=help, json_schema_extra=extra, **limits)
    return Field(default, title=title, description=help, json_schema_extra=extra, **limits)


class Group(BaseModel):
    """A group of options: one fold of the form, one mapping of the YAML."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, protected_namespaces=())
