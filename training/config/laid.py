"""Options of a part of a run, laid over those of the whole run: of a stage, or of a part of a mix."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from training.words import OptionError, sentence


class Laid(BaseModel):
    """Groups of options that are laid over a run's.

    ``GROUPS`` are those that it may have, ``KEPT`` those of their options that stay the whole run's; ``NOT_ITS_OWN``
    says so.
    """

    model_config = ConfigDict(extra="forbid")

    GROUPS: ClassVar[tuple[str, ...]] = ()
    KEPT: ClassVar[dict[str, frozenset[str]]] = {}
    NOT_ITS_OWN: ClassVar[str] = ""

    @model_validator(mode="after")
    def _check_kept(self) -> Laid:
        for group, names in self.KEPT.items():
            for name in sorted(names & getattr(self, group).keys()):
                raise OptionError(f"{group}.{name}", sentence(self.NOT_ITS_OWN))
        return self

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """The options of its own, by group."""
        found: dict[str, dict[str, Any]] = {group: getattr(self, group) for group in self.GROUPS}
        return {group: values for group, values in found.items() if values}

    def laid_over(self, config: dict[str, Any]) -> dict[str, Any]:
        """A config, as plain values, with the options of this part.

        A reward spec and a list of components stand for one another, so one that is given replaces the other.
        """
        merged = dict(config)
        for group, values in self.options.items():
            merged[group] = {**config.get(group, {}), **values}
        given = self.options.get("rewards", {}).keys() & {"spec", "components"}
        if given == {"spec"}:
            merged["rewards"]["components"] = []
        elif given == {"components"}:
            merged["rewards"]["spec"] = ""
        return merged


def names_differ(names: list[str], path: str, text: str) -> None:
    """Raise ``OptionError`` where two of the names are equal."""
    if len(set(names)) != len(names):
        raise OptionError(path, sentence(text))
