"""Pages of vote rounds: no voter learns who plays, votes come in, rounds end, contestants go."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.markup import dense
from tests.webapp.evaluation.votes.test_rounds import two
from webapp.evaluation.votes.models import Vote, VoteRound
from webapp.evaluation.votes.selectors import next_ballot, progress_of, results_of, round_rows, shown
from webapp.evaluation.votes.services import first_left, vote_cast
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

__all__ = ["two"]
pytestmark = pytest.mark.django_db
Evaluation = Callable[..., Run]
Maker = Callable[..., VoteRound]


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
        page = dense(client_for(user).get(reverse("vote", args=["joust", made.pk]) + query).content.decode())
        left, right = (page.index(f'class="ballot-turn" data-side="{side}"') for side in ("left", "right"))
        sides = {"left": page[left:right], "right": page[right:]}
        first = "left" if first_left(made, ballot, user) else "right"
        assert "given up" in sides[first] and "solved" not in sides[first].split("ballot-bar")[0]
        assert page.count("task 1") == 2, "what both were given is shown once, and as the summary"
    for left_first, sides in ((True, ["given up", "solved"]), (False, ["solved", "given up"])):
        ((messages, same),) = shown(ballot, left_first=left_first).rows
        assert [side[0]["content"] for side in messages] == sides and not same


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


def test_votes_are_final_once_their_voter_has_read_the_results_over_the_api(
    two: list[Run], make_vote_round: Maker, alice: User, bob: User, client_for: Callable[..., Client]
) -> None:
    made = make_vote_round(two, [alice, bob], ballots=2)
    results = f"/api/v1/vote-rounds/{made.pk}/results"
    client, address = client_for(alice), reverse("vote", args=["joust", made.pk])
    ballots = list(made.ballots.values_list("pk", flat=True))
    assert client.get(results).status_code == 403, "there are ballots left"
    for ballot in ballots:
        assert client.post(address, {"ballot": ballot, "answer": "tie"}).status_code == 302
    assert client.post(address, {"ballot": ballots[0], "answer": "left"}).status_code == 302, "not looked yet"
    assert client.get(results).status_code == 200
    before = list(Vote.objects.order_by("pk").values())
    refused = client.post(address, {"ballot": ballots[0], "answer": "tie"})
    undone = client.post(reverse("vote-undo", args=["joust", made.pk]))
    assert refused.status_code == undone.status_code == 422
    assert "You have seen the results, so your votes are final" in refused.content.decode()
    assert list(Vote.objects.order_by("pk").values()) == before
    assert client_for(bob).post(address, {"ballot": ballots[0], "answer": "tie"}).status_code == 302


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
        people = [(person.user, person.done, person.total) for person in results_of(made).people]
        assert people == [(alice, 1, 7 - count), (bob, 0, 6 - count)]
        with pytest.raises(ValidationError, match="A contestant of this ballot was deleted"):
            vote_cast(ballot=ballot, user=bob, side="tie")
        page = dense(client_for(rita).get(reverse("vote-round", args=["joust", made.pk])).content.decode())
        assert f"{count} ballots are left out because a contestant was deleted" in page
        assert 'gamma-7b<span class="muted">(deleted)' in page and "votes: 1 · people: 1" in page
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
    assert re.findall(r'<td class="num">(\d+)</td>', page) == ["1", "1", "1", "1"]
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


def test_the_form_says_of_each_pair_how_many_tasks_have_no_verdict(
    two: list[Run], evaluation: Evaluation, bob: User, client_for: Callable[..., Client]
) -> None:
    gamma = evaluation("gamma-7b", {task: [0.0] for task in range(4)})
    address = f"{reverse('vote-round-new', args=['joust'])}?c={two[0].pk}&c={two[1].pk}&c={gamma.pk}"
    known = client_for(bob).get(address)
    assert (known.context["unknown"], [pile["counts"] for pile in known.context["piles"]]) == (
        False, [[1, 1, 1, 1], [2, 0, 0, 2], [2, 0, 0, 2]],
    )  # fmt: skip
    Rollout.objects.filter(run=gamma, row=3).update(env_parts={}, parts={})
    some = client_for(bob).get(address)
    assert (some.context["unknown"], [pile["counts"] for pile in some.context["piles"]]) == (
        True, [[1, 1, 1, 1, 0], [2, 0, 0, 1, 1], [2, 0, 0, 1, 1]],
    )  # fmt: skip


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
