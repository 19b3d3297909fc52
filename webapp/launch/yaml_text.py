"""Config text that a person pasted: parse it, and say in which line each problem stands."""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from training.config import JobConfig
from training.config.text import yaml_bounded, yaml_nodes
from training.reasons import yaml_reason
from training.words import option_of
from webapp.fields import error_sentence
from webapp.text import in_words

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
        raise YamlProblem([_problem(root, error) for error in errors[:50]]) from exc


def _problem(root: Any, error: Any) -> Problem:
    """A model's error with the line of the option it is about."""
    option = option_of(error)
    return Problem(_line(root, option.split(".")), option, error_sentence(error))


def _line(node: Any, path: list[str]) -> int:
    """The line of the deepest part of a path that stands in the text."""
    line = 0
    for part in path:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if getattr(key, "value", None) == part), None)
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            found = (node.value[int(part)], node.value[int(part)])
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line
