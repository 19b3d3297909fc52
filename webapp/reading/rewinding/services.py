"""Keeping branches, making data of them, and having a contestant or a scripted policy continue from a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404
from django.utils.translation import gettext as _

from training.config import EvaluateConfig, JobConfig, Policy, Reference, RewardComponent
from training.data import CHOSEN, REJECTED
from training.errors import EnvironmentTimeout
from training.rewards.base import verdict_of
from training.rewards.combining import factor
from training.rollout.players import scripted_turn
from training.rollout.rewinding import Past, Taken, write_past
from webapp.common import objects
from webapp.common.storage import rewind_file
from webapp.common.text import clean_json
from webapp.common.words import outcome_of
from webapp.datasets.models import Dataset
from webapp.datasets.recorded import tools_of
from webapp.datasets.versions import dataset_append
from webapp.engine.services import run_create
from webapp.environments.playground.play import Play, Played, PlayRefused
from webapp.evaluation.suites.services import may_play, with_contestant
from webapp.launch.forms import suggested_name
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Role, User
from webapp.reading.groups import dataset_of
from webapp.reading.parts import config_for
from webapp.reading.rewinding import scene as scenes
from webapp.reading.rewinding.models import Branch, Continuation
from webapp.reading.selectors import rollout_for
from webapp.runs.config import of_step
from webapp.runs.models import Run
from webapp.runs.rollouts.figures import judge_functions
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import TERMINAL

# --- Branches -------------------------------------------------------------------------------------------------------

MAX_BRANCHES = 40
"""Branches kept for one rollout; older ones are deleted."""


class Took(NamedTuple):
    """The turn at which a branch began, how many messages came before it, and whether they were the recorded ones."""

    turn: int
    start: int
    same: bool


def branch_keep(
    *, rollout: Rollout, user: User | None, episode: Played, took: Took, score: scenes.Scored, player: str = ""
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
    behind = scenes.first_other(rollout, branch.start)
    if Turn.objects.filter(rollout=rollout, number__gte=behind, wrote="").exclude(parse_error="").exists():
        raise ValidationError(_("The recorded rollout has a call that could not be read: its text is not known."))
    recorded = scenes.recorded_messages(rollout)
    ours, theirs = branch.messages[branch.start :], recorded[branch.start :]
    if ours == theirs:
        raise ValidationError(_("Both are the same."))
    better, worse = (ours, theirs) if branch.reward > rollout.reward else (theirs, ours)
    row: dict[str, Any] = {"prompt": recorded[: branch.start], CHOSEN: better, REJECTED: worse}
    return row | ({"tools": branch.tools} if branch.tools else {})


# --- Reading --------------------------------------------------------------------------------------------------------
# Reading branches.


def branches_of(rollout: Rollout) -> list[Branch]:
    """Its branches, the newest first: those that were kept, and those that runs played which continued it."""
    kept = Branch.objects.filter(rollout=rollout).select_related("created_by")
    return sorted([*kept, *scenes.played_of(rollout)], key=lambda branch: branch.created_at, reverse=True)


def branch_count(rollout: Rollout) -> int:
    """How many there are, without reading their texts."""
    return Branch.objects.filter(rollout=rollout).count() + scenes.played_count(rollout)


def branch_of(rollout: Rollout, pk: UUID) -> Branch | None:
    """The branch of this rollout with this id."""
    return Branch.objects.filter(rollout=rollout, pk=pk).first() or next(iter(scenes.played_of(rollout, pk)), None)


def branch_for(user: User, pk: Any, *, need: Role = Role.VIEWER) -> Branch:
    """The branch with this id, if the person's role in its project is at least ``need``."""
    branch = Branch.objects.filter(pk=pk).first() or scenes.played_branch(pk)
    if branch is None:
        raise Http404
    branch.rollout = rollout_for(user, branch.rollout_id, need=need)
    return branch


# --- Contestants ----------------------------------------------------------------------------------------------------
# A contestant continues from a turn of a rollout, several times: rollouts of a run of kind `evaluate` are branches.
#
# A model needs a device, an endpoint has a budget, and both take time: a run handles all of that already, and each
# branch is a rollout with its tokens and reasons. Judges and reward models are asked, as in every run.

MAX_TIMES = 16
USUAL_TIMES = 4


def continuation_create(
    *, rollout: Rollout, user: User | None, turn: int, contestant: str, times: int, temperature: float | None = None
) -> Run:
    """Queue a run that continues from the policy's ``turn``; without a ``temperature`` at that of the recorded run.

    Raises ``ValidationError`` by field or with a sentence, and ``ConfigError`` with the option.
    """
    if not may_play(contestant):
        raise ValidationError({"contestant": _("Choose who plays.")})
    if not 1 <= times <= MAX_TIMES:
        raise ValidationError({"times": _("Choose 1 to %(n)s times.") % {"n": MAX_TIMES}})
    scene = scenes.scene_of(rollout)
    kept = scene.kept(turn)
    config = _continuation_job(rollout, scene, turn, times, temperature)
    file = rewind_file(rollout.run_id, rollout.pk, turn)
    write_past(file, _past_until(rollout, scene, kept))
    if objects.enabled():
        objects.publish(file)
    project = rollout.run.project
    stem = f"branch-{rollout.step}.{rollout.group}.{rollout.index}-turn-{turn}"
    with transaction.atomic():
        name = suggested_name(project, config, stem=stem)
        run = run_create(project=project, user=user, name=name, config=with_contestant(config, contestant))
        Continuation.objects.create(run=run, rollout=rollout, turn=turn, contestant=contestant[:200])
    return run


def _past_until(rollout: Rollout, scene: scenes.Scene, kept: int) -> Past:
    answered = Turn.objects.filter(rollout=rollout, messages__0__role="assistant").order_by("number")
    tokens = list(answered.values_list("tokens", flat=True)[:kept])
    recording = replace(scene.recording, turns=scene.recording.turns[:kept], reward=None)
    return Past(rollout.row or 0, recording, tokens)


def _continuation_job(
    rollout: Rollout, scene: scenes.Scene, turn: int, times: int, temperature: float | None
) -> JobConfig:
    """The run's job at the rollout's step, as an evaluation of its one task."""
    run, resolved = rollout.run, config_for(rollout)
    assert resolved is not None  # noqa: S101 - a scene was made of it
    meant = of_step(run, JobConfig.model_validate(run.config), rollout.step, rollout.part)
    dataset = dataset_of(rollout, resolved)
    sampling = {"num_generations": times, "prompts_per_step": 1}
    asked = {} if temperature is None else {"temperature": temperature}
    spec = {"spec": "", "components": [_with_weight_at(part, scene.step) for part in scene.components]}
    # Another draw each time: the same seed would give the same answer again.
    seed = (meant.run.seed + Continuation.objects.filter(rollout=rollout).count()) % 2**31
    groups = {
        "kind": "evaluate",
        "environment": meant.environment,
        "vllm": meant.vllm,
        "data": meant.data.model_copy(update={"train": dataset.reference if dataset is not None else ""}),
        "rewards": resolved.rewards.model_copy(update=spec),
        "rollout": meant.rollout.model_copy(update=sampling | asked),
        "evaluate": EvaluateConfig(continue_from=str(Reference("rollout", f"{rollout.pk}@{turn}"))),
        "run": meant.run.model_copy(update={"seed": seed}),
    }
    return JobConfig.model_validate(JobConfig().model_copy(update=groups).model_dump())


def _with_weight_at(part: RewardComponent, step: int) -> RewardComponent:
    """A component with the weight that it had at a step: an evaluation weighs as schedules end."""
    return part.model_copy(update={"weight": part.weight * factor(part.schedule, step), "schedule": None})


# --- Scripted policies ----------------------------------------------------------------------------------------------
# Scripted policies continue from a turn of a rollout: the reward that a contestant that knows nothing would get.


def rollout_continue(*, rollout: Rollout, user: User, turn: int, policies: Sequence[Policy]) -> list[Branch]:
    """A branch of each policy, kept and scored. Raises ``ValidationError``, environment errors."""
    config = config_for(rollout)
    if not policies or config is None:
        raise ValidationError({"policies": _("Choose who continues.")})
    scene = scenes.scene_of(rollout)
    kept = scene.kept(turn)
    with scenes.seated(scene.environment, user) as reach:
        made = asyncio.run(
            _in_time([_Going(Play(reach, scene.environment.name), config, name) for name in policies], scene, kept)
        )
    branches = []
    for name, (episode, same, start) in zip(policies, made, strict=True):
        score = scenes.scored(episode.scored_as(), scene.components, scene.step, user.pk)
        took = Took(turn, start, same)
        branches.append(branch_keep(rollout=rollout, user=user, episode=episode, took=took, score=score, player=name))
    return branches


Gone = tuple[Played, bool, int]


class _Going:
    """One policy that continues."""

    def __init__(self, play: Play, config: JobConfig, policy: Policy) -> None:
        self.play, self._config, self._policy = play, config, policy

    async def run(self, scene: scenes.Scene, kept: int, *, again: bool) -> Gone:
        """Rewind, and play to the end or to the run's limit of turns; then the environment is asked for its verdict."""
        found = await self.play.rewind(scene.recording, kept, tools=scene.tools, origin=scene.origin, again=again)
        episode = self.play.episode
        assert episode is not None  # noqa: S101 - a replay that came to an end made one
        start = len(episode.messages)
        if found.over:
            raise ValidationError({"turn": _("The episode is over here; choose an earlier turn to continue from.")})
        for _number in range(max(1, self._config.rollout.max_turns - kept)):
            await self.play.take(episode, self._scripted_turn(episode))
            if not self.play.is_open:
                break
        await self.play.give_up()
        return episode, found.difference is None and found.checked, start

    def _scripted_turn(self, episode: Played) -> Taken:
        turn = scripted_turn(
            self._config,
            self._policy,
            episode.messages,
            episode.prompt_length,
            episode.tools,
            prefix=f"call_{episode.turns}_",
        )
        return Taken(turn.message(), [], turn.parse_error)


async def _in_time(going: Sequence[_Going], scene: scenes.Scene, kept: int) -> list[Gone]:
    """One after another: together they take one slot."""
    found: list[Gone] = []
    try:
        async with asyncio.timeout(scenes.REPLAY_LIMIT_S):
            for number, each in enumerate(going):
                found.append(await each.run(scene, kept, again=number > 0))
    except TimeoutError as exc:
        raise EnvironmentTimeout(f"The policies were not finished within {scenes.REPLAY_LIMIT_S:g} s.") from exc
    except PlayRefused as refused:
        raise ValidationError(str(refused)) from refused
    finally:
        for each in going:
            await each.play.end()
    return found
