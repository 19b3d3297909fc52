"""The findings of the checks before a launch."""

from __future__ import annotations

from typing import NamedTuple

from training.config import JobConfig
from webapp.common.text import translated


class Offer(NamedTuple):
    """What a person may do about a finding: start ``more`` more replicas of this environment."""

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
