"""Presets: ready jobs that ship with the product, one YAML file each in this folder.

A preset has up to three sizes: *demo*, in which the starter model learns its task on a CPU within ten minutes, in a
world that is small enough; *full* with the values of the document it follows; and *test*, which only shows that
everything works. Besides the config it says what it needs (an environment, a dataset, a reward spec, a run to start
from), so that a page can find or make these, and from which document each value comes.

``config`` holds what differs from the defaults of ``JobConfig``; ``demo`` and ``test`` hold what these sizes change of
``needs`` and ``config``. ``python -m training.presets`` prints docs/presets.md.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from training.config import JobConfig, RewardComponent
from training.errors import ConfigError
from training.memory.devices import DEVICES

FOLDER = Path(__file__).parent
WORD_PROBLEMS = "problems"
Size = Literal["demo", "full", "test"]
SIZES: tuple[Size, ...] = get_args(Size)
Name = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Text(_Part):
    """A text in both languages of the interface."""

    en: str = Field(min_length=1)
    zh: str = Field(min_length=1)


class EnvironmentNeed(_Part):
    """A built-in environment server (a folder of ``envs/``) and the options that it is started with."""

    program: str = Name
    arguments: dict[str, Any] = Field(default_factory=dict)


class DatasetNeed(_Part):
    """Rows that a command of the environment writes; with ``problems`` our own word problems, which need none."""

    command: str = Name
    arguments: dict[str, Any] = Field(default_factory=dict)
    program: Literal["", "problems"] = ""


class RewardNeed(_Part):
    """A reward spec to save."""

    name: str = Name
    components: list[RewardComponent] = Field(min_length=1)


class StartNeed(_Part):
    """The run whose final model is trained on: the newest one of ``after`` (a preset), else one of ``preset``.

    Runs belong to a preset by their name, ``<preset>-<number>``. Without ``preset`` none has to be made: the config's
    own model is used where no run of ``after`` has succeeded.
    """

    preset: str = ""
    after: str = ""


class Needs(_Part):
    """The needs of a preset before a run of it can be launched."""

    environment: EnvironmentNeed | None = None
    dataset: DatasetNeed | None = None
    reward: RewardNeed | None = None
    start: StartNeed | None = None


class Change(_Part):
    """The changes of a size; mappings are merged, ``null`` takes a need away."""

    needs: dict[str, Any] = Field(default_factory=dict)
    config: dict[str, Any] = Field(default_factory=dict)


class Demo(Change):
    """The demo size. ``minutes`` is what it takes on two processors from the click to the end, its warm-up included."""

    minutes: int = Field(ge=1, le=10)


class Preset(_Part):
    """One file. ``values`` says where an option's value comes from; ``notes`` what was decided and what is left out.

    ``device`` is a key of ``training.memory.devices`` that the full size fits; a starter needs none.
    """

    id: str = Name
    title: Text
    about: Text
    system: Literal["toolbench", "bfcl", "tools", "reasoning", "webshop", "demo"]
    order: int
    role: Literal["main", "warm-up"] = "main"
    source: str = Field(min_length=1)
    device: str = ""
    needs: dict[str, Any] = Field(default_factory=dict)
    config: dict[str, Any]
    demo: Demo | None = None
    test: Change | None = None
    values: dict[str, str] = Field(default_factory=dict)
    notes: list[Text] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_sizes(self) -> Preset:
        for size in self.sizes:
            config, needs = self.config_for(size), self.needs_for(size)
            if needs.reward is not None and not config.method.plays:
                raise ValueError(f"{self.id}: only a method that plays is rewarded")
        for path in self.values:
            group, _dot, option = path.partition(".")
            if option not in getattr(type(getattr(self.config_for("full"), group)), "model_fields", {}):
                raise ValueError(f"{self.id}: there is no option {path}")
        return self

    @property
    def device_title(self) -> str:
        """The device that the full size fits, with the number of them where it is not one; empty for a starter."""
        if not self.device:
            return ""
        count, title = self.config_for("full").devices, DEVICES[self.device].title
        return title if count == 1 else f"{count} × {title}"

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Its sizes, the one to begin with first; a preset with nothing but *full* is small by itself."""
        return tuple(size for size in SIZES if size == "full" or self._size_change(size))

    def size_named(self, name: str) -> Size | None:
        """The size of this name, if the preset has it."""
        return next((size for size in self.sizes if size == name), None)

    def config_for(self, size: Size) -> JobConfig:
        """The job; what it needs is named only once it is found."""
        return JobConfig.model_validate(merged(self.config, self._change(size).config))

    def job_for(self, size: Size) -> JobConfig:
        """The job with its rewards in it, for a trainer without the web; data and servers are still to be named."""
        config, needs = self.config_for(size), self.needs_for(size)
        if needs.reward is not None:
            config.rewards.components = list(needs.reward.components)
        return config

    def needs_for(self, size: Size) -> Needs:
        """The needs of the size."""
        return Needs.model_validate(merged(self.needs, self._change(size).needs))

    def run_name(self, size: Size) -> str:
        """The beginning of its runs' names."""
        return f"{self.id}-{size}" if self._size_change(size) else self.id

    def _change(self, size: Size) -> Change:
        return self._size_change(size) or Change()

    def _size_change(self, size: Size) -> Change | None:
        """The change that the file gives for the size; a warm-up that has no such size is made as it is."""
        return {"demo": self.demo, "full": None, "test": self.test}[size]


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``base`` with ``over`` laid on it, mappings key by key."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def preset_read(path: Path) -> Preset:
    """A preset file. Raises ``ConfigError``."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Preset.model_validate({"id": path.stem, **raw})
    except (OSError, yaml.YAMLError, ValidationError, TypeError) as exc:
        raise ConfigError(f"The preset {path.name} cannot be read: {exc}") from exc


@lru_cache(maxsize=1)
def presets() -> dict[str, Preset]:
    """All presets by id, in the order in which they are shown. Read once: they come with the code."""
    found = sorted((preset_read(path) for path in FOLDER.glob("*.yaml")), key=lambda item: (item.order, item.id))
    return {item.id: item for item in found}
