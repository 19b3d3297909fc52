"""Presets: ready job configs that ship with the product, one YAML file each in ``training/presets``.

The first comment line of a file describes it in English, the second in Chinese.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from django.utils.translation import get_language

import training
from training.config import JobConfig

logger = logging.getLogger(__name__)
FOLDER = Path(training.__file__).parent / "presets"


class Preset(NamedTuple):
    """A job config with a name and what it is for."""

    id: str
    english: str
    chinese: str
    config: JobConfig

    @property
    def title(self) -> str:
        """The description in the reader's language."""
        return (self.chinese if (get_language() or "en").startswith("zh") else self.english) or self.id


def presets() -> list[Preset]:
    """All presets by name; a file that cannot be read is left out and logged (a test keeps that from happening)."""
    return _load(tuple((path.name, path.stat().st_mtime_ns) for path in sorted(FOLDER.glob("*.yaml"))))


def preset_named(preset_id: str) -> Preset | None:
    """The preset with this id."""
    return next((preset for preset in presets() if preset.id == preset_id), None)


@lru_cache(maxsize=2)
def _load(files: tuple[tuple[str, int], ...]) -> list[Preset]:
    found = []
    for name, _changed in files:
        path = FOLDER / name
        try:
            found.append(_read(path))
        except (OSError, ValueError, yaml.YAMLError) as exc:
            logger.error("preset %s cannot be read: %s", name, exc)
    return found


def _read(path: Path) -> Preset:
    text = path.read_text(encoding="utf-8")
    comments = [line.lstrip("# ").strip() for line in text.splitlines()[:4] if line.startswith("#")]
    english, chinese = [*comments, "", ""][:2]
    data: dict[str, Any] = yaml.safe_load(text) or {}
    return Preset(path.stem, english, chinese, JobConfig.model_validate(data))
