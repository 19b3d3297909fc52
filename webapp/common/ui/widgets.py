"""Form fields drawn without templates. Django's own give the same HTML, by an include for each option and attribute.

The form of a run has a hundred fields, and selects of hundreds of options: half of its page's time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.forms.renderers import DjangoTemplates
from django.http import HttpRequest
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

Widget = dict[str, Any]


class Renderer(DjangoTemplates):
    """Draws the widgets of ``DRAWN`` itself, and leaves all others to Django's templates."""

    def render(self, template_name: str, context: dict[str, Any], request: HttpRequest | None = None) -> SafeString:
        """The HTML of a widget."""
        draw = DRAWN.get(template_name)
        if draw is None:
            return mark_safe(super().render(template_name, context, request))  # noqa: S308 (a template escaped it)
        return mark_safe(draw(context["widget"]))  # noqa: S308 (every value is escaped below)


def _attributes_html(widget: Widget) -> str:
    found = ((name, value) for name, value in widget["attrs"].items() if value is not False)
    return "".join(
        f" {_escaped(name)}" if value is True else f' {_escaped(name)}="{_escaped(value)}"' for name, value in found
    )


def _escaped(value: Any) -> str:
    """Escaped, and a number as code writes it: a field takes no thousands' separator."""
    return conditional_escape(value if isinstance(value, str) else str(value))


def _input_html(widget: Widget) -> str:
    value = "" if widget["value"] is None else f' value="{_escaped(widget["value"])}"'
    return (
        f'<input type="{_escaped(widget["type"])}" name="{_escaped(widget["name"])}"{value}{_attributes_html(widget)}>'
    )


def _textarea_html(widget: Widget) -> str:
    # The first new line in a textarea does not count, so that one of the text would be lost without this.
    text = _escaped(widget["value"] or "")
    return f'<textarea name="{_escaped(widget["name"])}"{_attributes_html(widget)}>\n{text}</textarea>'


def _select_html(widget: Widget) -> str:
    groups = "".join(_optgroup_html(name, options) for name, options, _index in widget["optgroups"])
    return f'<select name="{_escaped(widget["name"])}"{_attributes_html(widget)}>{groups}\n</select>'


def _optgroup_html(name: Any, options: list[Widget]) -> str:
    drawn = "".join(f"\n  {_option_html(option)}" for option in options)
    return f'\n  <optgroup label="{_escaped(name)}">{drawn}\n  </optgroup>' if name else drawn


def _option_html(option: Widget) -> str:
    return f'<option value="{_escaped(option["value"])}"{_attributes_html(option)}>{_escaped(option["label"])}</option>'


FOLDER = "django/forms/widgets/"
INPUTS = ("input", "text", "number", "email", "url", "password", "hidden", "checkbox", "file")
DRAWN: dict[str, Callable[[Widget], str]] = {f"{FOLDER}{name}.html": _input_html for name in INPUTS} | {
    f"{FOLDER}textarea.html": _textarea_html,
    f"{FOLDER}select.html": _select_html,
}
