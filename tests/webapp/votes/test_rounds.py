"""Making a round and voting in it: what is drawn, who may vote, what counts, and that nobody learns who plays."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.evaluations import play
from webapp.comparison.contestants import contestants_of
from webapp.comparison.rewards import evaluations
from webapp.rollouts.models import Rollout
from webapp.runs.models import Run
from webapp.teams.models import Project, User
from webapp.votes.models import Ballot, Vote, VoteRound
from webapp.votes.selectors import next_ballot, open_rounds, progress_of, round_rows, standing_of
from webapp.votes.services import answer_of, first_left, round_create, side_of, vote_cast, vote_undo

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
    """Task 0 has no try that counts for one, task 1 only its second try counts for both, task 3 was played by one."""
    runs = [
        evaluation("alpha-7b", {0: [None, None], 1: [None, 1.0], 2: [1.0, 1.0], 3: [1.0, 1.0]}),
        evaluation("beta-7b", {0: [1.0, 1.0], 1: [1.0, 0.0], 2: [0.0, 0.0]}),
    ]
    made = make_vote_round(runs, [alice], ballots=20)
    assert {item.task for item in made.ballots.all()} == {1, 2}
    assert made.ballots.get(task=1).attempt == 1 and made.ballots.get(task=1).kind == "first"


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
    with pytest.raises(ValidationError, match="No two of these evaluations have played the same task"):
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


def test_nobody_votes_after_a_look_at_the_results(
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
    # A round that was closed has shown its results to whoever looked; opened again it goes on with the others.
    owner = client_for(alice)
    assert owner.post(address + "close/").status_code == 302
    assert 'id="scores"' in owner.get(address).content.decode()
    owner.post(address + "reopen/")
    assert standing_of(made, alice).may_look and not standing_of(made, alice).may_vote
    with pytest.raises(ValidationError, match="your votes are final"):
        vote_cast(ballot=first, user=alice, side="tie")


# --- Pages -----------------------------------------------------------------------------------------------------------
def test_nothing_on_a_ballot_says_who_plays(
    two: list[Run], make_vote_round: Maker, alice: User, client_for: Callable[..., Client]
) -> None:
    made = make_vote_round(two, [alice], ballots=4, instructions="Which one finishes?")
    client, address = client_for(alice), reverse("vote", args=[made.project.slug, made.pk])
    secrets = [text for run in two for text in (run.name, str(run.pk))]
    secrets += [str(pk) for pk in Rollout.objects.values_list("pk", flat=True)]
    secrets += ["data-curve", "1.5 s", "10 tokens", "1.000", "task_success", "reward"]
    api = f"/api/v1/vote-rounds/{made.pk}/next"
    for number in range(1, 5):
        page = client.get(address).content.decode()
        assert f"Ballot {number} of 4" in page and "Which one finishes?" in page
        main = page[page.index('id="ballot"') : page.index('id="toasts"')]
        assert not [text for text in secrets[:-1] if text in page] and "reward" not in main.lower()
        plain = client.get(api).content.decode()
        assert not [text for text in secrets if text in plain]
        ballot = re.findall(r'name="ballot" value="([^"]+)"', page)[0]
        answer = client.post(address, {"ballot": ballot, "answer": "tie"}, headers={"HX-Request": "true"})
        assert answer.status_code == 200 and not [text for text in secrets[:-1] if text in answer.content.decode()]
    assert "That was the last ballot" in client.get(address).content.decode()


def test_the_two_sides_show_the_right_episodes(
    two: list[Run], make_vote_round: Maker, alice: User, bob: User, client_for: Callable[..., Client]
) -> None:
    """Of task 1 the second contestant said "solved", the first "given up"."""
    made = make_vote_round(two, [alice, bob])
    ballot = made.ballots.get(task=1)
    for user in (alice, bob):
        query = f"?ballot={ballot.pk}"
        page = client_for(user).get(reverse("vote", args=[made.project.slug, made.pk]) + query).content.decode()
        left, right = (page.index(f'class="ballot-turn" data-side="{side}"') for side in ("left", "right"))
        said = {"left": page[left:right], "right": page[right:]}
        first = "left" if first_left(made, ballot, user) else "right"
        assert "given up" in said[first] and "solved" not in said[first].split("ballot-bar")[0]
        assert page.count("task 1") == 2, "what both were told is shown once, and as the summary"


def test_votes_come_in_through_the_page(
    two: list[Run], make_vote_round: Maker, alice: User, client_for: Callable[..., Client]
) -> None:
    made = make_vote_round(two, [alice], ballots=2)
    address = reverse("vote", args=[made.project.slug, made.pk])
    client = client_for(alice)
    ballots = list(made.ballots.all())
    plain = client.post(address, {"ballot": ballots[0].pk, "answer": "both_bad"})
    assert plain.status_code == 302 and plain["Location"] == address
    again = client.post(address, {"ballot": ballots[0].pk, "answer": "tie"}, headers={"HX-Request": "true"})
    assert "Your earlier answer to that ballot was replaced." in again.content.decode()
    for body, text in (
        ({"ballot": ballots[1].pk, "answer": "maybe"}, "Answer with left, right, tie or both_bad."),
        ({"ballot": uuid.uuid4(), "answer": "tie"}, "This ballot is not in this round (any more)."),
        ({"ballot": "nonsense", "answer": "tie"}, "This ballot is not in this round (any more)."),
        ({}, "This ballot is not in this round (any more)."),
    ):
        answer = client.post(address, body)
        assert answer.status_code == 422 and text in answer.content.decode()
        assert f'value="{ballots[1].pk}"' in answer.content.decode(), "the ballot has to stay"
    assert [vote.answer for vote in Vote.objects.all()] == ["tie"]
    undo = client.post(reverse("vote-undo", args=[made.project.slug, made.pk]))
    assert undo["Location"] == f"{address}?ballot={ballots[0].pk}" and not Vote.objects.exists()


def test_a_ballot_of_another_round_or_project_is_no_ballot_here(
    two: list[Run], make_vote_round: Maker, alice: User, charlie: User, client_for: Callable[..., Client]
) -> None:
    here, there = make_vote_round(two, [alice]), make_vote_round(two, [alice])
    foreign = there.ballots.get(number=1)
    client = client_for(alice)
    answer = client.post(reverse("vote", args=["joust", here.pk]), {"ballot": foreign.pk, "answer": "tie"})
    assert answer.status_code == 422 and not Vote.objects.exists()
    api = client.post(
        f"/api/v1/vote-rounds/{here.pk}/ballots/{foreign.pk}/vote", {"answer": "tie"}, content_type="application/json"
    )
    assert api.status_code == 404
    stranger = client_for(charlie)
    assert stranger.get(reverse("vote", args=["elsewhere", here.pk])).status_code == 404
    assert stranger.post(reverse("vote", args=["joust", here.pk]), {"answer": "tie"}).status_code == 404


def test_a_contestant_that_was_deleted_takes_its_ballots_along_and_leaves_its_votes(
    evaluation: Evaluation,
    make_vote_round: Maker,
    alice: User,
    bob: User,
    rita: User,
    client_for: Callable[..., Client],
) -> None:
    runs = [evaluation(name, {n: [float(n % 2)] for n in range(4)}) for name in ("alpha-7b", "beta-7b", "gamma-7b")]
    made = make_vote_round(runs, [alice, bob], ballots=6)
    on_gamma = made.ballots.filter(second__name="gamma-7b")
    ballot, count = on_gamma[0], on_gamma.count()
    vote_cast(ballot=ballot, user=alice, side="tie")
    for gone in ("hidden", "deleted"):
        if gone == "hidden":
            Run.objects.filter(pk=runs[2].pk).update(removed_at=timezone.now())
        else:
            Run.all_objects.get(pk=runs[2].pk).delete()
        assert progress_of(made, alice) == (1, 7 - count) and progress_of(made, bob) == (0, 6 - count)
        with pytest.raises(ValidationError, match="A contestant of this ballot was deleted"):
            vote_cast(ballot=ballot, user=bob, side="tie")
        page = client_for(rita).get(reverse("vote-round", args=["joust", made.pk])).content.decode()
        assert f"{count} ballots are left out because a contestant was deleted" in page
        assert re.search(r"gamma-7b\s*<span\s+class=\"muted\">\(deleted\)", page) and "votes: 1 · people: 1" in page
    Run.objects.all().delete()
    assert next_ballot(made, bob) is None
    page = client_for(bob).get(reverse("vote", args=["joust", made.pk])).content.decode()
    assert "There is nothing left to vote on" in page


def test_the_form_opens_a_round(
    two: list[Run], alice: User, bob: User, rita: User, client_for: Callable[..., Client], make_run: Any
) -> None:
    train = make_run(name="training")
    client = client_for(bob)
    compare = reverse("compare", args=["joust"]) + f"?c={two[0].pk}&c={two[1].pk}&c={train.pk}"
    address = reverse("vote-round-new", args=["joust"])
    assert f'href="{address}?c={two[0].pk}&amp;c={two[1].pk}' in client.get(compare).content.decode()
    assert address not in client_for(rita).get(compare).content.decode()
    page = client.get(address + compare[compare.index("?") :]).content.decode()
    assert page.count('name="c"') == 3 and 'value="Vote round 1"' in page and page.count(" checked") == 3
    assert re.search(r"not in this round:\s+training", page)
    assert re.findall(r'<td class="num">(\d+)</td>', page) == ["1", "1", "1", "1", "0"]
    body = {
        "c": [run.pk for run in two],
        "name": "taste",
        "ballots": "3",
        "instructions": " be strict ",
        "voters": [rita.pk],
    }
    assert client.post(address, body | {"voters": []}).status_code == 422
    assert client.post(address, body | {"voters": [uuid.uuid4()]}).status_code == 422
    assert client.post(address, body | {"c": [two[0].pk]}).status_code == 422
    made = client.post(address, body)
    found = VoteRound.objects.get()
    assert made["Location"] == reverse("vote-round", args=["joust", found.pk])
    assert (found.name, found.instructions, found.created_by, found.ballots.count()) == ("taste", "be strict", bob, 3)
    assert [voter.user for voter in found.voters.all()] == [rita] and 0 <= found.seed < 2**31
    for place in (reverse("compare", args=["joust"]), reverse("project-page", args=["joust"])):
        page = client_for(rita).get(place).content.decode()
        assert "You are asked to vote in taste: you have 3 ballots left." in page
        assert "You are asked" not in client.get(place).content.decode()


def test_who_made_a_round_may_end_it_and_so_may_owners(
    two: list[Run], make_vote_round: Maker, alice: User, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    made = make_vote_round(two, [bob, alice])
    other = make_vote_round(two, [alice])
    acts = ("close/", "reopen/", "delete/")
    for act in acts:
        assert client_for(bob).post(reverse("vote-round", args=["joust", other.pk]) + act).status_code == 403
        assert client_for(rita).post(reverse("vote-round", args=["joust", made.pk]) + act).status_code == 403
    bob.memberships.update(role="viewer")
    assert client_for(bob).post(reverse("vote-round", args=["joust", made.pk]) + "close/").status_code == 403
    bob.memberships.update(role="editor")
    for act in acts:
        assert client_for(bob).post(reverse("vote-round", args=["joust", made.pk]) + act).status_code == 302
    assert list(VoteRound.objects.all()) == [other]
    assert client_for(alice).post(reverse("vote-round", args=["joust", other.pk]) + "delete/").status_code == 302
    assert not VoteRound.objects.exists() and not Vote.objects.exists() and Run.objects.count() == 2


def test_the_list_and_its_empty_state(
    two: list[Run],
    make_vote_round: Maker,
    alice: User,
    bob: User,
    client_for: Callable[..., Client],
    project: Project,
    django_assert_max_num_queries: Any,
) -> None:
    address = reverse("vote-rounds", args=["joust"])
    assert "No vote rounds yet" in client_for(alice).get(address).content.decode()
    for _ in range(3):
        made = make_vote_round(two, [alice, bob], ballots=4)
    vote_cast(ballot=made.ballots.get(number=1), user=bob, side="tie")
    (newest,) = (row for row in round_rows(project, bob) if row["round"] == made)
    assert (newest["votes"], newest["wanted"], newest["asked"], newest["left"]) == (1, 8, True, 3)
    client = client_for(bob)
    with django_assert_max_num_queries(15):
        page = client.get(address).content.decode()
    assert "1 of 8" in page and "Vote: 3 ballots left" in page
    for place in ("vote-round", "vote"):
        with django_assert_max_num_queries(18):
            client.get(reverse(place, args=["joust", made.pk]))
