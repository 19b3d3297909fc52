"""The environment servers that ship with Tiltyard: every folder of ``envs/`` that has an ``openenv.yaml``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import yaml
from django.conf import settings

MANIFEST = "openenv.yaml"


class BuiltIn(NamedTuple):
    """One server, and what it asks for by itself."""

    name: str
    version: str
    cpus: float
    memory_mb: int
    tags: list[str]


@functools.cache
def builtins() -> dict[str, BuiltIn]:
    """By name. Read once: they come with the code."""
    found = [_read(path) for path in sorted((Path(settings.BASE_DIR) / "envs").glob(f"*/{MANIFEST}"))]
    return {item.name: item for item in found}


def _read(path: Path) -> BuiltIn:
    manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    validation = manifest.get("validation", {})
    resources = validation.get("resources", {})
    return BuiltIn(
        path.parent.name,
        str(manifest["version"]),
        float(resources.get("cpu", 1.0)),
        int(resources.get("memory_mb", 1024)),
        [str(tag) for tag in validation.get("types", {}).get("tags", [])],
    )
