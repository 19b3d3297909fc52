"""The environment servers that ship with Tiltyard: every folder of ``envs/`` that has an ``openenv.yaml``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from django.conf import settings

from webapp.environments.options import Option

MANIFEST = "openenv.yaml"
OWN_IMAGE = "tiltyard-env-"


class Command(NamedTuple):
    """A command that writes dataset rows: its own options, and those of the server that it takes over."""

    options: list[Option]
    shared: list[Option]


class BuiltIn(NamedTuple):
    """One server, what it asks for by itself, its options, and the commands that write datasets for it."""

    name: str
    version: str
    cpus: float
    memory_mb: int
    tags: list[str]
    options: list[Option]
    datasets: dict[str, Command]


@functools.cache
def builtins() -> dict[str, BuiltIn]:
    """By name. Read once: they come with the code."""
    found = [_read_manifest(path) for path in sorted((Path(settings.BASE_DIR) / "envs").glob(f"*/{MANIFEST}"))]
    return {item.name: item for item in found}


def builtin_of_image(image: str) -> BuiltIn | None:
    """The server in an image of ours, ``tiltyard-env-<name>``, of any registry and tag; else ``None``."""
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return builtins().get(name.removeprefix(OWN_IMAGE)) if name.startswith(OWN_IMAGE) else None


def _read_manifest(path: Path) -> BuiltIn:
    manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    validation = manifest.get("validation", {})
    resources = validation.get("resources", {})
    options = _parse_options(manifest.get("x-options"))
    return BuiltIn(
        path.parent.name,
        str(manifest["version"]),
        float(resources.get("cpu", 1.0)),
        int(resources.get("memory_mb", 1024)),
        [str(tag) for tag in validation.get("types", {}).get("tags", [])],
        options,
        {name: _parse_command(item, options) for name, item in (manifest.get("x-datasets") or {}).items()},
    )


def _parse_options(items: Any) -> list[Option]:
    return [Option.model_validate(item) for item in items or []]


def _parse_command(item: dict[str, Any], options: list[Option]) -> Command:
    shared = set(item.get("shared") or [])
    return Command(_parse_options(item.get("options")), [option for option in options if option.name in shared])
