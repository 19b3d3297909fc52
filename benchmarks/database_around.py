"""What a team makes around its runs, for ``benchmarks/database.py``: a suite and its evaluations, a saved comparison, a
vote round, chats, notifications, an endpoint. Written once; found again in a folder that is kept.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from webapp.chat.models import Answer, Chat, Turn
from webapp.endpoints.models import Endpoint
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.rewards import evaluations
from webapp.evaluation.sharing.models import Comment, SavedComparison
from webapp.evaluation.sharing.services import Query, comparison_save
from webapp.evaluation.suites.models import Suite, SuiteEvaluation, SuiteRun
from webapp.evaluation.suites.services import suite_create
from webapp.evaluation.votes.models import Ballot, Vote, VoteRound
from webapp.evaluation.votes.services import round_create
from webapp.people.notifications.models import Event, Notification
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

CHATS, TURNS, NOTIFICATIONS, COMMENTS, BALLOTS, VOTERS = 300, 40, 5_000, 200, 200, 5


def around(project: Project, user: User, compared: list[str]) -> dict[str, Any]:
    """Objects by the part of an address that comes before an id."""
    suite, saved, votes = _suite(project), _saved(project, user, compared), _round(project, user, compared)
    chat, endpoint = _chat(project, user), _endpoint(project)
    return {
        "suites": [suite.pk],
        "suite_id": [suite.pk],
        "saved": [saved.pk],
        "comparison_id": [saved.pk],
        "votes": [votes.pk],
        "round_id": [votes.pk],
        "chats": [chat.pk],
        "chat_id": [chat.pk],
        "endpoints": [endpoint.pk],
        "endpoint_id": [endpoint.pk],
        "notifications": [_notification(project, user)],
        "model_name": [project.models.values_list("name", flat=True)[0]],  # type: ignore[attr-defined]
    }


def _suite(project: Project) -> Suite:
    found = Suite.objects.filter(project=project).first()
    if found is not None:
        return found
    config = {"data": {"train": "dataset:compared@1"}, "environment": {"name": "none"}}
    version = suite_create(
        project=project, user=None, name="exam", parts=[{"title": "all", "weight": 1.0, "config": config}]
    )
    for run in Run.objects.filter(project=project, kind="evaluate", state="succeeded"):
        evaluation = SuiteEvaluation.objects.create(
            version=version, contestant=f"model:{run.name}", environments=[{}], created_by=run.created_by
        )
        SuiteRun.objects.create(evaluation=evaluation, part=0, run=run)
    return version.suite


def _saved(project: Project, user: User, compared: list[str]) -> SavedComparison:
    found = SavedComparison.objects.filter(project=project).first()
    if found is None:
        found = comparison_save(project=project, user=user, name="all eight", query=Query([str(pk) for pk in compared]))
        Comment.objects.bulk_create(
            Comment(comparison=found, text=f"What was seen here, part {number}.", created_by=user)
            for number in range(COMMENTS)
        )
    return found


def _round(project: Project, user: User, compared: list[str]) -> VoteRound:
    found = VoteRound.objects.filter(project=project).first()
    if found is not None:
        return found
    contestants, _notes = contestants_of(project, [str(pk) for pk in compared])
    voters = [user, *User.objects.filter(teams=project.team_id).exclude(pk=user.pk)[: VOTERS - 1]]
    read = evaluations(project, contestants, "")
    found = round_create(project=project, user=user, read=read, name="round", voters=voters, ballots=BALLOTS)
    answers = ("first", "second", "tie", "both_bad")
    Vote.objects.bulk_create(
        Vote(
            ballot=ballot,
            voter=voter,
            answer=answers[(place + ballot.number) % 4],
            first_left=True,
            cast_at=timezone.now(),
        )
        for ballot in Ballot.objects.filter(round=found)
        for place, voter in enumerate(voters[1:])
    )
    return found


def _chat(project: Project, user: User) -> Chat:
    if not Chat.objects.filter(project=project).exists():
        who = [{"source": "starter", "title": "starter"}]
        chats = Chat.objects.bulk_create(
            Chat(project=project, title=f"chat {number}", contestants=who, created_by=user) for number in range(CHATS)
        )
        turns = Turn.objects.bulk_create(
            Turn(chat=chats[-1], number=number, text="What is 9 * 5?", said_by=user) for number in range(TURNS)
        )
        reply = [{"role": "assistant", "content": "Let me look at this step by step. " * 20}]
        Answer.objects.bulk_create(Answer(turn=turn, contestant=0, state="done", messages=reply) for turn in turns)
    return Chat.objects.filter(project=project, turns__number=TURNS - 1).order_by("pk")[0]


def _endpoint(project: Project) -> Endpoint:
    fields = {"url": "http://127.0.0.1:1/v1", "model": "gpt"}
    return Endpoint.objects.get_or_create(project=project, name="gpt", defaults=fields)[0]


def _notification(project: Project, user: User) -> int:
    """Notifications of every kind of run; one of them."""
    if not Notification.objects.filter(user=user).exists():
        runs = list(Run.objects.filter(project=project).values_list("pk", "name")[:NOTIFICATIONS])
        events = Event.objects.bulk_create(
            Event(
                project=project, kind="run_failed", key=f"bench:{number}", object_kind="runs.run", state="done",
                object_id=str(runs[number % len(runs)][0]), subject=runs[number % len(runs)][1],
            )
            for number in range(NOTIFICATIONS)
        )  # fmt: skip
        Notification.objects.bulk_create(Notification(event=event, user=user) for event in events)
    return Notification.objects.filter(user=user).order_by("pk").values_list("pk", flat=True)[0]
