"""What the check before a launch says of the reward: whether it can be scored, and what it pays for."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from training.config import JobConfig
from training.rewards.lab.worth import worth_of
from training.rewards.registry import default_components
from training.rewards.scoring import validate_components
from webapp.launch.findings import Check
from webapp.text import in_words


def check_rewards(config: JobConfig) -> Check:
    """Whether the components of a job can be scored."""
    problems = validate_components(config.rewards.components) if config.rewards.components else []
    if problems:
        sentence, detail = _("These reward components cannot be scored."), " ".join(map(in_words, problems))
        return Check(_("Rewards"), False, sentence, "", True, "rewards.components", detail)
    message = _("%(count)s components can be scored.") % {"count": len(config.rewards.components)}
    return Check(_("Rewards"), True, message, "", True)


def check_paid(config: JobConfig) -> Iterator[Check]:
    """Whether the reward pays for solving the task, and more for it than for all else."""
    found = worth_of(config.rewards.components or default_components())
    hint = _("Give a component that judges the task, such as Task success, the largest weight.")
    if found.unpaid:
        said = _("Nothing here pays for solving the task.")
    elif found.outranked:
        said = _(
            "A failed task can earn more than a solved one: all else is worth up to %(others)s, solving it %(outcome)s."
        ) % {"others": f"{found.others:.3g}", "outcome": f"{found.outcome:.3g}"}
    else:
        return
    yield Check(_("What is paid for"), False, said, hint, path="rewards.components", remark=True)
