"""Keeping branches, and making data of them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404
from django.utils.translation import gettext as _

from training.data import CHOSEN, REJECTED
from training.rewards.base import verdict_of
from webapp.common.text import clean_json, finite
from webapp.common.words import outcome_of
from webapp.datasets.appending import dataset_append
from webapp.datasets.models import Dataset
from webapp.datasets.recorded import tools_of
from webapp.environments.playground.episode import Played
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Role, User
from webapp.reading.access import rollout_for
from webapp.reading.rewinding.models import Branch
from webapp.reading.rewinding.played import played_branch, played_count, played_of
from webapp.reading.rewinding.scene import Scored, first_other, recorded_messages
from webapp.runs.rollouts.figures import judge_functions
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import TERMINAL

MAX_BRANCHES = 40
"""Branches kept for one rollout; older ones are deleted."""


class Took(NamedTuple):
    """The turn at which a branch began, how many messages came before it, and whether they were the recorded ones."""

    turn: int
    start: int
    same: bool


def branch_keep(
    *, rollout: Rollout, user: User | None, episode: Played, took: Took, score: Scored, player: str = ""
) -> Branch:
    """Keep an episode that continued from a turn of a rollout; ``player`` is the policy that played it."""
    verdict = verdict_of(episode.parts, score.parts, judge_functions(rollout.run))
    branch = Branch(
        rollout=rollout,
        turn=took.turn,
        player=player,
        messages=[message.model_dump(mode="json", exclude_none=True) for message in episode.messages],
        prompt_length=episode.prompt_length,
        start=took.start,
        tools=clean_json(episode.tools),
        done=episode.done,
        env_reward=episode.reward,
        env_parts=dict(episode.parts),
        parts=score.parts,
        missing=score.missing,
        reward=score.reward,
        outcome=outcome_of(verdict.value if verdict else None),
        same=took.same,
        created_by=user,
    )
    with transaction.atomic():
        branch.save(force_insert=True)
        kept = (
            Branch.objects.filter(rollout=rollout).order_by("-created_at").values_list("pk", flat=True)[:MAX_BRANCHES]
        )
        Branch.objects.filter(rollout=rollout).exclude(pk__in=list(kept)).delete()
    return branch


def branch_delete(*, branch: Branch) -> None:
    """Delete a branch; data made from it stays. Raises ``ValidationError`` where it is a run's rollout."""
    if branch.played is not None:
        raise ValidationError(_("A run played this branch: it goes with its run."))
    with transaction.atomic():
        audit(AuditAction.BRANCH_DELETED, branch, project=branch.rollout.run.project)
        branch.delete()


def branch_save(*, branch: Branch, user: User | None, kind: Literal["row", "pair"], name: str) -> Dataset:
    """Add a branch to a dataset: as a demonstration, or against the recorded rollout. Raises ``ValidationError``."""
    if branch.played is not None:
        branch.tools = _prompt_tools(branch.played)
    row = _conversation_row(branch) if kind == "row" else _preference_pair(branch)
    row["provenance"] = {"source": "rewind", "rollout": str(branch.rollout_id), "turn": branch.turn}
    row["provenance"] |= {"reward": branch.reward, "done": branch.done}
    project = branch.rollout.run.project
    return dataset_append(project=project, user=user, name=name, rows=[row], file_name="branches.jsonl")


def _prompt_tools(played: Rollout) -> list[dict[str, Any]] | None:
    """The tools that its prompt had: the run's journal has them once its last rollout is over."""
    if played.run.state not in TERMINAL:
        raise ValidationError(_("Wait until the run that plays it has ended: its tools are not known until then."))
    return tools_of([played.run], {played.pk}).get(played.pk)


def _conversation_row(branch: Branch) -> dict[str, Any]:
    row: dict[str, Any] = {"messages": branch.messages}
    return row | ({"tools": branch.tools} if branch.tools else {})


def _preference_pair(branch: Branch) -> dict[str, Any]:
    """A preference pair: the better of the branch and the recorded rollout against the other, after their common
    prompt."""
    rollout = branch.rollout
    if branch.reward is None or rollout.reward is None:
        raise ValidationError(_("A pair needs the rewards of both; one of them is missing."))
    if branch.reward == rollout.reward:
        raise ValidationError(_("Both have the same reward, so neither is preferred."))
    if not branch.same:
        raise ValidationError(
            _("The environment answered differently from the recording, so the two saw different answers.")
        )
    behind = first_other(rollout, branch.start)
    if Turn.objects.filter(rollout=rollout, number__gte=behind, wrote="").exclude(parse_error="").exists():
        raise ValidationError(_("The recorded rollout has a call that could not be read: its text is not known."))
    recorded = recorded_messages(rollout)
    ours, theirs = branch.messages[branch.start :], recorded[branch.start :]
    if ours == theirs:
        raise ValidationError(_("Both are the same."))
    better, worse = (ours, theirs) if branch.reward > rollout.reward else (theirs, ours)
    row: dict[str, Any] = {"prompt": recorded[: branch.start], CHOSEN: better, REJECTED: worse}
    return row | ({"tools": branch.tools} if branch.tools else {})


# --- Selectors ------------------------------------------------------------------------------------------------------
# Reading branches.


def branches_of(rollout: Rollout) -> list[Branch]:
    """Its branches, the newest first: those that were kept, and those that runs played which continued it."""
    kept = Branch.objects.filter(rollout=rollout).select_related("created_by")
    return sorted([*kept, *played_of(rollout)], key=lambda branch: branch.created_at, reverse=True)


def branch_count(rollout: Rollout) -> int:
    """How many there are, without reading what they say."""
    return Branch.objects.filter(rollout=rollout).count() + played_count(rollout)


def branch_of(rollout: Rollout, pk: UUID) -> Branch | None:
    """The branch of this rollout with this id."""
    return Branch.objects.filter(rollout=rollout, pk=pk).first() or next(iter(played_of(rollout, pk)), None)


def branch_for(user: User, pk: Any, *, need: Role = Role.VIEWER) -> Branch:
    """The branch with this id, if the person's role in its project is at least ``need``."""
    branch = Branch.objects.filter(pk=pk).first() or played_branch(pk)
    if branch is None:
        raise Http404
    branch.rollout = rollout_for(user, branch.rollout_id, need=need)
    return branch


def branch_view(branch: Branch) -> dict[str, Any]:
    """A branch as the API returns it."""
    return {
        "id": str(branch.pk),
        "rollout": str(branch.rollout_id),
        "turn": branch.turn,
        "turns": branch.turns,
        "start": branch.start,
        "same": branch.same,
        "done": branch.done,
        "outcome": branch.outcome,
        "reward": finite(branch.reward),
        "parts": {name: finite(value) for name, value in branch.parts.items()},
        "missing": branch.missing,
        "env_reward": finite(branch.env_reward),
        "player": branch.player,
        "played": str(branch.played.pk) if branch.played is not None else None,
        "by": branch.created_by.username if branch.created_by else None,
        "created_at": branch.created_at.isoformat(),
        "messages": branch.messages,
    }
