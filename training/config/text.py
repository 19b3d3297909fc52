"""A job as YAML, and YAML as a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from training.config.job import CONFIG_VERSION, JobConfig
from training.errors import ConfigError

MAX_DEPTH = 64  # the scanner's time grows with the square of the depth
MAX_CHARACTERS = 1_000_000
CLEARER_BELOW = 4_000  # characters before the fault
# libyaml's scanner where PyYAML was built with it: ten times as fast, the same language.
SafeLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def yaml_bounded(text: str) -> Any:
    """Parse YAML that anybody may have written. Raises ``yaml.YAMLError``, also for what would take long.

    The events come first, and stop at ``MAX_DEPTH``: nothing is built of a text that is nested deeper. Aliases are
    refused, because with them a small text makes an enormous value.
    """
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"it is longer than {MAX_CHARACTERS:,} characters")
    try:
        _check_events(text, SafeLoader)
        return yaml.load(text, Loader=SafeLoader)  # noqa: S506 - it is the safe one
    except yaml.MarkedYAMLError as exc:
        if exc.problem_mark is not None and exc.problem_mark.index < CLEARER_BELOW:
            _check_events(text, yaml.SafeLoader)  # tells better what is wrong, and where, but is slow
        raise
    except (RecursionError, ValueError) as exc:
        raise yaml.YAMLError("it is nested too deeply or holds an impossible value") from exc


def yaml_nodes(text: str) -> yaml.Node | None:
    """The nodes with their lines, of a text that ``yaml_bounded`` has taken."""
    node: yaml.Node | None = yaml.compose(text, Loader=SafeLoader)
    return node


def _check_events(text: str, loader: type[Any]) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise yaml.YAMLError("it is nested too deeply or holds an impossible value")


def config_from_yaml(text: str) -> JobConfig:
    """Parse YAML into a config. Raises ``ConfigError`` for bad YAML, ``pydantic.ValidationError`` for bad options."""
    try:
        raw = yaml_bounded(text)
    except yaml.YAMLError as exc:
        raise ConfigError(f"This is not valid YAML: {exc}") from exc
    if not isinstance(raw, dict):
        raise ConfigError("The YAML must be a mapping of option groups, such as `model:` and `run:`.")
    return JobConfig.model_validate(raw)


_OTHER_BREAKS = frozenset("\r\x85\u2028\u2029")


class _Readable(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # libyaml takes a quarter as long
    """YAML in which a text of several lines, such as code or a rubric, stands as it was written."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Other line ends are lost in every style but the quoted one, which escapes them.
    style = '"' if _OTHER_BREAKS & set(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)


def config_to_yaml(config: JobConfig, *, only_changed: bool = False) -> str:
    """The config as YAML. ``only_changed`` leaves out options that stand at their defaults."""
    data = config.model_dump(mode="json", exclude_defaults=only_changed)
    data = {"version": CONFIG_VERSION, "kind": config.kind, **data}
    return yaml.dump(data, Dumper=_Readable, sort_keys=False, allow_unicode=True)


def config_load(path: Path) -> JobConfig:
    """Read a config file; errors as in ``config_from_yaml``, or ``ConfigError`` if it cannot be read."""
    try:
        return config_from_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"The config file cannot be read: {exc}") from exc
