"""Making a round and voting in it: what is drawn, who may vote, and what counts."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.evaluations import play
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.rewards import evaluations
from webapp.evaluation.votes.models import Ballot, RoundVoter, Vote, VoteRound
from webapp.evaluation.votes.selectors import next_ballot, open_rounds, progress_of, standing_of
from webapp.evaluation.votes.services import (
    Try,
    _ballot_kind,
    answer_of,
    first_left,
    may_manage,
    results_seen,
    round_close,
    round_create,
    round_reopen,
    side_of,
    vote_cast,
    vote_undo,
)
from webapp.people.notifications.models import Event
from webapp.people.notifications.words import path_of, words_of
from webapp.people.teams.models import AuditEntry, Project, Role, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

pytestmark = pytest.mark.django_db
Evaluation = Callable[..., Run]
Maker = Callable[..., VoteRound]
GATED = [{"name": "env_success", "weight": 0.8, "params": {}}, {"name": "format", "weight": 0.2, "params": {}}]


@pytest.fixture
def two(evaluation: Evaluation) -> list[Run]:
    """Task 0 both solve, 1 only the second, 2 only the first, 3 neither."""
    return [
        evaluation("alpha-7b", {0: [1.0], 1: [0.0], 2: [1.0], 3: [0.0]}),
        evaluation("beta-7b", {0: [1.0], 1: [1.0], 2: [0.0], 3: [0.0]}),
    ]


def test_everyone_who_is_asked_is_notified_except_the_one_who_asks(
    two: list[Run], make_vote_round: Maker, alice: User, bob: User
) -> None:
    made = make_vote_round(two, [alice, bob], ballots=4, name="taste")
    event = Event.objects.get()
    assert (event.kind, event.people, event.subject) == ("vote_asked", [str(bob.pk)], "taste")
    assert path_of(event) == f"/p/joust/votes/{made.pk}/"
    assert words_of(event) == ("Votes are asked for: taste", ["alice asks which answers are better."])
    make_vote_round(two, [alice], ballots=4)
    assert Event.objects.count() == 1  # no one else was asked


# --- Making ----------------------------------------------------------------------------------------------------------
def test_a_round_has_each_kind_of_task_with_what_it_was_worth(
    two: list[Run], make_vote_round: Maker, alice: User
) -> None:
    made = make_vote_round(two, [alice], ballots=4)
    ballots = {item.task: item for item in made.ballots.select_related("first", "second")}
    assert {task: item.kind for task, item in ballots.items()} == {0: "both", 1: "second", 2: "first", 3: "neither"}
    assert sorted(item.number for item in ballots.values()) == [1, 2, 3, 4]
    one = ballots[1]
    assert (one.first.name, one.second.name, one.text, one.attempt) == ("alpha-7b", "beta-7b", "task 1", 0)
    assert (one.first_reward, one.second_reward, one.first_success, one.second_success) == (0.0, 1.0, 0.0, 1.0)
    for ballot in ballots.values():
        played = Rollout.objects.in_bulk([ballot.first_rollout, ballot.second_rollout])
        assert [played[pk].run_id for pk in (ballot.first_rollout, ballot.second_rollout)] == [run.pk for run in two]
        assert {rollout.row for rollout in played.values()} == {ballot.task}


def test_only_tries_that_both_have_are_drawn(evaluation: Evaluation, make_vote_round: Maker, alice: User) -> None:
    """Of tasks 0 and 3 one has no try that counts; of 1 and 2 only the second try counts for both."""
    runs = [
        evaluation("alpha-7b", {0: [None, None], 1: [None, 1.0], 2: [1.0, 1.0], 3: [1.0, 1.0]}),
        evaluation("beta-7b", {0: [1.0, 1.0], 1: [1.0, 0.0], 2: [None, 0.0], 3: [None, None]}),
    ]
    made = make_vote_round(runs, [alice], ballots=20)
    assert {item.task for item in made.ballots.all()} == {1, 2}
    assert {(item.attempt, item.kind) for item in made.ballots.all()} == {(1, "first")}


def test_the_newest_attempt_counts(two: list[Run], make_vote_round: Maker, alice: User) -> None:
    again = play(two[0], 3, 0, 1.0, lambda success: {"env_success": success})
    Rollout.objects.filter(pk=again.pk).update(attempt=2)
    made = make_vote_round(two, [alice])
    assert made.ballots.get(task=3).first_rollout == again.pk and made.ballots.get(task=3).kind == "first"


def test_rewards_of_different_specs_are_kept_only_by_one_of_them(
    evaluation: Evaluation, make_vote_round: Maker, alice: User
) -> None:
    tries = {0: [1.0], 1: [0.0]}
    parts: Callable[[float], dict[str, float]] = lambda success: {"env_success": success, "format": 1.0}  # noqa: E731
    runs = [evaluation("alpha-7b", tries), evaluation("beta-7b", tries, components=GATED, parts=parts)]
    plain = make_vote_round(runs, [alice])
    assert {item.second_reward for item in plain.ballots.all()} == {None} and plain.weighed_by == ""
    weighed = make_vote_round(runs, [alice], spec=str(runs[0].pk))
    assert {item.task: item.second_reward for item in weighed.ballots.all()} == {0: 1.0, 1: 0.0}
    assert weighed.weighed_by == "alpha-7b"


def test_the_expected_answer_is_there_only_if_asked_for(
    evaluation: Evaluation, make_dataset: Any, make_vote_round: Maker, alice: User
) -> None:
    row = {"messages": [{"role": "user", "content": "2 + 3?"}]}
    data = make_dataset(name="sums", lines=[row | {"ground_truth": "five"}, row | {"extra_info": {"answer": [5]}}, row])
    runs = [evaluation(name, {n: [1.0] for n in range(3)}, dataset=data) for name in ("alpha-7b", "beta-7b")]
    assert {item.expected for item in make_vote_round(runs, [alice]).ballots.all()} == {""}
    made = make_vote_round(runs, [alice], show_expected=True)
    assert {item.task: item.expected for item in made.ballots.all()} == {0: "five", 1: "[\n  5\n]", 2: ""}


@pytest.mark.parametrize(
    ("fields", "field", "text"),
    [
        ({"ballots": 1}, "ballots", "Between 2 and 200 ballots."),
        ({"ballots": 201}, "ballots", "Between 2 and 200 ballots."),
        ({"name": "<b>"}, "name", "Use letters, digits"),
        ({"voters": []}, "voters", "Ask at least one person."),
    ],
)
def test_what_cannot_be_a_round(
    project: Project, two: list[Run], alice: User, fields: dict[str, Any], field: str, text: str
) -> None:
    read = evaluations(project, contestants_of(project, [str(run.pk) for run in two])[0], "")
    with pytest.raises(ValidationError) as caught:
        round_create(**{"project": project, "user": alice, "read": read, "name": "r", "voters": [alice]} | fields)
    assert text in caught.value.message_dict[field][0] and not VoteRound.objects.exists()


def test_no_common_task_and_a_name_twice_are_refused(
    project: Project, two: list[Run], evaluation: Evaluation, make_dataset: Any, make_vote_round: Maker, alice: User
) -> None:
    other = evaluation("other", {0: [1.0]}, dataset=make_dataset(name="else"))
    with pytest.raises(ValidationError, match="No two of these have played the same task"):
        make_vote_round([two[0], other], [alice])
    with pytest.raises(ValidationError, match="Choose at least two evaluations"):
        make_vote_round([two[0]], [alice])
    make_vote_round(two, [alice], name="same")
    with pytest.raises(ValidationError, match="A vote round with this name exists already"):
        make_vote_round(two, [alice], name="same")


# --- Voting ----------------------------------------------------------------------------------------------------------
def test_sides_are_tossed_for_each_person_and_ballot_and_stay(
    two: list[Run], make_vote_round: Maker, alice: User, bob: User
) -> None:
    made = make_vote_round(two, [alice, bob])
    ballots = [Ballot(round=made, number=number) for number in range(400)]
    sides = [[first_left(made, ballot, user) for ballot in ballots] for user in (alice, bob)]
    assert sides == [[first_left(made, ballot, user) for ballot in ballots] for user in (alice, bob)]
    assert all(160 < sum(of) < 240 for of in sides)  # 200 ± 4 standard deviations
    assert 160 < sum(a == b for a, b in zip(*sides, strict=True)) < 240
    assert [answer_of("left", True), answer_of("left", False), answer_of("right", True)] == [
        "first",
        "second",
        "second",
    ]
    for side in ("left", "right", "tie", "both_bad"):
        assert all(side_of(answer_of(side, left), left) == side for left in (True, False))


def test_a_vote_sent_twice_is_one_vote_and_another_answer_replaces_it(
    two: list[Run], make_vote_round: Maker, alice: User, bob: User
) -> None:
    made = make_vote_round(two, [alice, bob])
    ballot = made.ballots.get(task=1)
    side = "left" if first_left(made, ballot, alice) else "right"
    assert [vote_cast(ballot=ballot, user=alice, side=side).before for _ in range(2)] == ["", ""]
    assert [vote.answer for vote in Vote.objects.all()] == ["first"]
    assert vote_cast(ballot=ballot, user=alice, side="both_bad").before == "first"
    vote_cast(ballot=ballot, user=bob, side="tie")
    assert sorted(Vote.objects.values_list("voter__username", "answer")) == [("alice", "both_bad"), ("bob", "tie")]
    with pytest.raises(ValidationError, match="Answer with left, right, tie or both_bad"):
        vote_cast(ballot=ballot, user=alice, side="first")


def test_the_next_ballot_is_where_one_stopped_and_undo_goes_back(
    two: list[Run], make_vote_round: Maker, alice: User, project: Project
) -> None:
    made = make_vote_round(two, [alice], ballots=4)
    seen = []
    for _ in range(3):
        ballot = next_ballot(made, alice)
        assert ballot is not None
        seen.append(ballot.number)
        vote_cast(ballot=ballot, user=alice, side="tie")
    assert seen == [1, 2, 3] and progress_of(made, alice) == (3, 4)
    assert [(item.name, item.left) for item in open_rounds(project, alice)] == [(made.name, 1)]
    undone = vote_undo(made=made, user=alice)
    assert undone is not None and undone.number == 3 and next_ballot(made, alice) == undone
    assert progress_of(made, alice) == (2, 4)


def test_who_may_vote_and_until_when(
    two: list[Run], make_vote_round: Maker, alice: User, bob: User, rita: User, project: Project
) -> None:
    made = make_vote_round(two, [alice, rita])
    ballot = made.ballots.get(number=1)
    with pytest.raises(PermissionDenied, match="You were not asked"):
        vote_cast(ballot=ballot, user=bob, side="tie")
    with pytest.raises(PermissionDenied):
        vote_undo(made=made, user=bob)
    vote_cast(ballot=ballot, user=rita, side="tie")  # a viewer may
    assert open_rounds(project, bob) == []
    VoteRound.objects.update(closed_at=timezone.now())
    for act in (lambda: vote_cast(ballot=ballot, user=alice, side="tie"), lambda: vote_undo(made=made, user=rita)):
        with pytest.raises(ValidationError, match="This round is closed"):
            act()
    assert open_rounds(project, alice) == [] and Vote.objects.count() == 1


def test_one_persons_last_vote_of_one_round_is_taken_back(
    two: list[Run], make_vote_round: Maker, alice: User, bob: User
) -> None:
    made, other = (make_vote_round(two, [alice, bob], ballots=2) for _n in range(2))
    first, second = made.ballots.order_by("number")
    for ballot, user in ((second, alice), (first, alice), (first, bob), (other.ballots.get(number=1), alice)):
        vote_cast(ballot=ballot, user=user, side="tie")
    assert [vote_undo(made=made, user=alice) for _n in range(3)] == [first, second, None]
    assert sorted(Vote.objects.values_list("ballot__round__name", "voter__username")) == [
        (made.name, "bob"),
        (other.name, "alice"),
    ]


def test_what_is_known_of_a_voter_is_of_one_round_and_one_person(
    two: list[Run], make_vote_round: Maker, alice: User, bob: User
) -> None:
    made, other = make_vote_round(two, [alice, bob]), make_vote_round(two, [alice])
    with pytest.raises(PermissionDenied, match="You were not asked"):
        vote_cast(ballot=other.ballots.get(number=1), user=bob, side="tie")
    results_seen(made=made, user=alice)
    unseen = RoundVoter.objects.filter(seen_at=None).values_list("round", "user")
    assert set(unseen) == {(made.pk, bob.pk), (other.pk, alice.pk)}
    assert [round_close(made=made, user=alice) for _twice in range(2)] == [True, False]
    assert list(VoteRound.objects.filter(closed_at=None)) == [other]
    round_close(made=other, user=alice)
    assert [round_reopen(made=made, user=alice) for _twice in range(2)] == [True, False]
    assert list(VoteRound.objects.filter(closed_at=None)) == [made]
    acts = list(AuditEntry.objects.filter(subject=made.name).order_by("id").values_list("action", flat=True))
    assert acts == ["round_made", "round_closed", "round_reopened"]


@pytest.mark.parametrize(
    ("role", "author", "may"),
    [
        (Role.OWNER, False, True),
        (Role.EDITOR, True, True),
        (Role.EDITOR, False, False),
        (Role.VIEWER, True, False),
        (None, True, False),
    ],
)
def test_authors_who_may_edit_and_owners_manage_a_round(role: Role | None, author: bool, may: bool) -> None:
    user, project = User(), Project()
    if role is not None:
        project.role = role  # type: ignore[attr-defined]
    assert may_manage(VoteRound(project=project, created_by=user if author else User()), user) is may


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [(0.5, 0.5, "neither"), (0.51, 0.5, "first"), (0.5, 0.51, "second"), (1.0, 0.51, "both"), (None, 1.0, "unknown")],
)
def test_more_than_half_of_the_success_is_a_solved_task(first: float | None, second: float, kind: str) -> None:
    tries = (Try(uuid.uuid4(), True, None, success) for success in (first, second))
    assert _ballot_kind(*tries) == kind


def test_no_member_votes_after_a_look_at_the_results(
    two: list[Run], make_vote_round: Maker, alice: User, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    """Not before the last ballot, and after it no vote changes; who is not asked may look at any time."""
    made = make_vote_round(two, [alice, bob], ballots=2)
    address = reverse("vote-round", args=[made.project.slug, made.pk])
    client = client_for(bob)
    first = next_ballot(made, bob)
    assert first is not None
    vote_cast(ballot=first, user=bob, side="tie")
    page = client.get(address).content.decode()
    assert 'id="hidden-results"' in page and 'id="scores"' not in page and "You have 1 ballot left." in page
    assert 'id="scores"' in client_for(rita).get(address).content.decode()
    second = next_ballot(made, bob)
    assert second is not None
    vote_cast(ballot=second, user=bob, side="tie")
    vote_cast(ballot=second, user=bob, side="left")  # a slip is put right before the results are opened
    assert 'id="scores"' in client.get(address).content.decode()
    with pytest.raises(ValidationError, match="your votes are final"):
        vote_cast(ballot=second, user=bob, side="tie")
    with pytest.raises(ValidationError, match="your votes are final"):
        vote_undo(made=made, user=bob)
    # A round that was closed has shown its results to those who looked; opened again it continues with the others.
    owner = client_for(alice)
    assert owner.post(address + "close/").status_code == 302
    assert 'id="scores"' in owner.get(address).content.decode()
    owner.post(address + "reopen/")
    assert standing_of(made, alice).may_look and not standing_of(made, alice).may_vote
    with pytest.raises(ValidationError, match="your votes are final"):
        vote_cast(ballot=first, user=alice, side="tie")
