"""A job as YAML, and YAML as a job."""

from __future__ import annotations

from pathlib import Path

import yaml

from training.config.job import CONFIG_VERSION, JobConfig
from training.errors import ConfigError


def config_from_yaml(text: str) -> JobConfig:
    """Parse YAML into a config. Raises ``ConfigError`` for bad YAML, ``pydantic.ValidationError`` for bad options."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise ConfigError(f"This is not valid YAML: {exc}") from exc
    if not isinstance(raw, dict):
        raise ConfigError("The YAML must be a mapping of option groups, such as `model:` and `run:`.")
    return JobConfig.model_validate(raw)


_OTHER_BREAKS = frozenset("\r\x85\u2028\u2029")


class _Readable(yaml.SafeDumper):
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
