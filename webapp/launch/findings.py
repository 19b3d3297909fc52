"""Findings of the checks before a launch, and config text that a person pasted, with the line of each problem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import yaml
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from training.config import JobConfig, config_to_yaml, nearest_option, yaml_bounded, yaml_nodes
from training.plain import number_in, yaml_reason
from training.presets import Text
from training.words import option_of
from webapp.common.fields import error_sentence
from webapp.common.text import in_words, translated


class Offer(NamedTuple):
    """An action on a finding: start ``more`` more replicas of this environment."""

    environment_id: str
    more: int


class Check(NamedTuple):
    """One finding. ``path`` names the option it belongs to; ``hard`` problems cannot be overridden, and a ``remark``
    (not ok either) stops nothing.

    A ``grave`` remark is shown in red like a problem: the run can begin, but it would not learn the task.
    ``detail`` is what was reported in the words of the library or server that reported it.
    """

    title: str
    ok: bool
    message: str = ""
    hint: str = ""
    hard: bool = False
    path: str = ""
    detail: str = ""
    offer: Offer | None = None
    remark: bool = False
    grave: bool = False

    def of(self, stage: str) -> Check:
        """The same finding for a stage of the run; for the whole run with an empty name."""
        return self._replace(title=f"{self.title} · {stage}") if stage else self

    @property
    def level(self) -> str:
        """How the page shows it."""
        if self.ok:
            return "ok"
        return "grave" if self.grave else "remark" if self.remark else "problem"

    @property
    def sentence(self) -> str:
        """The finding where only one text fits."""
        return " ".join(part for part in (self.message, self.detail) if part)


class Outcome(NamedTuple):
    """All findings, and the config with its references resolved where that was possible."""

    checks: list[Check]
    resolved: JobConfig | None

    @property
    def blocked(self) -> bool:
        """Whether a hard problem was found."""
        return any(check.hard and not check.ok for check in self.checks)

    @property
    def problems(self) -> bool:
        """Whether anything was found that a person should decide on."""
        return any(not check.ok and not check.remark for check in self.checks)


def option_title(path: str) -> str:
    """The title of an option; empty for a path that is none."""
    group, _dot, name = path.partition(".")
    found = JobConfig.model_fields.get(group)
    info = getattr(found.annotation, "model_fields", {}).get(name) if found else None
    return translated(str(info.title)) if info is not None and info.title else ""


def option_name(path: str) -> str:
    """The title of an option, or of an entry of one that is a list; the path itself where it has none."""
    listed, _dot, entry = path.rpartition(".")
    if entry.isdecimal() and (title := option_title(listed)):
        return _("%(title)s, entry %(number)d") % {"title": title, "number": int(entry) + 1}
    return option_title(path) or path


# Config text that a person pasted: parse it, and give the line of each problem.

MAX_YAML_BYTES = 64 * 1024


class Problem(NamedTuple):
    """One thing wrong with the text; line 0 means that it has no place of its own."""

    line: int
    path: str
    message: str


class YamlProblem(Exception):
    """The text is not a config."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


def config_from_text(text: str) -> JobConfig:
    """The config that a YAML text means. Raises ``YamlProblem``."""
    if len(text.encode("utf-8", "replace")) > MAX_YAML_BYTES:
        raise YamlProblem([Problem(0, "", _("A config may have at most 64 KB."))])
    try:
        raw = yaml_bounded(text)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        what = _("not valid YAML: %(what)s") % {"what": in_words(yaml_reason(exc))}
        raise YamlProblem([Problem(mark.line + 1 if mark else 0, "", what)]) from exc
    if not isinstance(raw, dict):
        raise YamlProblem(
            [Problem(1, "", _("Write option groups, such as `model:` and `run:`, each with its options."))]
        )
    try:
        return JobConfig.model_validate(raw)
    except ShapeError as exc:
        root = yaml_nodes(text)
        errors = exc.errors(include_url=False, include_input=False)
        raise YamlProblem([_problem_of(root, error) for error in errors[:50]]) from exc


def options_of(text: str) -> dict[str, int | bool | str]:
    """Options by path, as a page sends them in JSON. Raises ``YamlProblem`` for a name that is not an option."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(
        option_title(path) and isinstance(value, int | bool | str) for path, value in found.items()
    ):
        raise YamlProblem([Problem(0, "", _("These are no options."))])
    return found


def yaml_set(text: str, values: Mapping[str, int | bool | str]) -> str:
    """The text with options set by their paths. The rest stays as it was written, comments too, where
    the text is written group by group; else all of it is written again. Raises ``YamlProblem``."""
    wanted = config_from_text(text).model_dump()
    for path, value in values.items():
        group, _dot, name = path.partition(".")
        wanted[group][name] = value
    with suppress(YamlProblem, yaml.YAMLError):  # where a line has no place, the text is no longer one
        made = text
        for path, value in values.items():
            made = _line_set(made, path, json.dumps(value))
        if config_from_text(made).model_dump() == wanted:
            return made
    try:
        return config_to_yaml(JobConfig.model_validate(wanted))
    except ShapeError as exc:
        raise YamlProblem([Problem(0, option_of(e), error_sentence(e)) for e in exc.errors(include_url=False)]) from exc


def _line_set(text: str, path: str, value: str) -> str:
    """The text with one option in its place: its value replaced, a line in its group, or a group at the end."""
    group, _dot, name = path.partition(".")
    held = _child_node(yaml_nodes(text), group)
    if held is None:
        return f"{text.rstrip()}\n{group}:\n  {name}: {value}\n"
    found = _child_node(held, name)
    if found is not None:
        return text[: found.start_mark.index] + value + text[found.end_mark.index :]
    if not isinstance(held, yaml.MappingNode) or not held.value:
        return text
    start = held.start_mark.index
    if held.flow_style:
        return f"{text[: start + 1]}{name}: {value}, {text[start + 1 :]}"
    return f"{text[:start]}{name}: {value}\n{' ' * held.start_mark.column}{text[start:]}"


def _child_node(node: Any, name: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if getattr(key, "value", None) == name), None)


def _problem_of(root: Any, error: Any) -> Problem:
    """A model's error with the line of the option it is about."""
    option = option_of(error)
    return Problem(_line_of_path(root, option.split(".")), option, config_sentence(error))


def config_sentence(error: Any) -> str:
    """A complaint about an option of a job; of one that there is not, with the one that may have been meant."""
    near = nearest_option(option_of(error)) if error["type"] == "extra_forbidden" else ""
    sentence = error_sentence(error)
    return f"{sentence} {_('Did you mean %(name)s?') % {'name': near}}" if near else sentence


def _line_of_path(node: Any, path: list[str]) -> int:
    """The line of the deepest part of a path that the text has."""
    line = 0
    for part in path:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if getattr(key, "value", None) == part), None)
        elif isinstance(node, yaml.SequenceNode):
            place = number_in(part)
            found = (node.value[place], node.value[place]) if place is not None and place < len(node.value) else None
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


# Presets in the words of the interface.


def in_language(text: Text) -> str:
    """A preset's text in the reader's language."""
    return text.zh if (get_language() or "en").startswith("zh") else text.en
