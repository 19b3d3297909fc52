"""The checks of the reward before a launch: whether it can be scored, and what it pays for."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from training.config import JobConfig
from training.rewards.defaults import default_rewards
from training.rewards.registry import form_components
from training.rewards.scoring import validate_components
from webapp.common.text import in_words
from webapp.launch.findings import Check
from webapp.people.teams.models import Project
from webapp.rewards.paid import paid_for


def check_rewards(asked: JobConfig, config: JobConfig) -> Check:
    """Whether the components of a job can be scored, and where they come from when none were ``asked`` for."""
    problems = validate_components(config.rewards.components) if config.rewards.components else []
    if problems:
        sentence, detail = _("These reward components cannot be scored."), " ".join(map(in_words, problems))
        return Check(_("Rewards"), False, sentence, "", True, "rewards.components", detail)
    message = _("%(count)s components can be scored.") % {"count": len(config.rewards.components)}
    if not (asked.rewards.spec or asked.rewards.components):
        message = f"{message} {_by_default(config)}"
    return Check(_("Rewards"), True, message, "", True)


def _by_default(config: JobConfig) -> str:
    told_by = default_rewards(config).told_by
    if told_by == "environment":
        return _("No spec was chosen: the environment's verdict counts 0.6, the form of tool calling 0.4.")
    if told_by == "answers":
        return _("No spec was chosen: the right answer of each row counts 0.6, the form of tool calling 0.4.")
    return _(
        "No spec was chosen, and nothing reports whether a task was solved, so only the form of tool calls is rewarded."
    )


def check_paid(project: Project, config: JobConfig) -> Iterator[Check]:
    """Whether the reward pays for solving the task, and more for it than for all else."""
    found = paid_for(project, config.rewards.components or form_components())
    if found is not None:
        yield Check(
            _("What is rewarded"), False, found.whole, found.hint, path="rewards.components", remark=True, grave=True
        )
