"""What the votes of a round say: planted preferences are found, and every figure has its n, on the page and over the
API."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from webapp.evaluation.votes.models import Answer, Ballot, RoundContestant, Vote, VoteRound
from webapp.evaluation.votes.selectors import _disputed_ballots, results_of
from webapp.evaluation.votes.services import first_left, side_of, vote_cast
from webapp.people.teams.models import AuditEntry, Membership, Project, User
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
Evaluation = Callable[..., Run]
Maker = Callable[..., VoteRound]


def say(made: VoteRound, user: User, answers: dict[int, str]) -> None:
    """A person's answers by task, of the first and the second contestant."""
    for task, answer in answers.items():
        ballot = made.ballots.get(task=task)
        ballot.round = made
        vote_cast(ballot=ballot, user=user, side=side_of(answer, first_left(made, ballot, user)))


@pytest.fixture
def voted(evaluation: Evaluation, make_vote_round: Maker, alice: User, bob: User, rita: User) -> VoteRound:
    """Of six tasks the first solves 0 to 2 and the second 2 to 4; none solves 5. Three people vote."""
    runs = [
        evaluation("alpha", {n: [float(n in (0, 1, 2))] for n in range(6)}),
        evaluation("beta", {n: [float(n in (2, 3, 4))] for n in range(6)}),
    ]
    made = make_vote_round(runs, [alice, bob, rita], ballots=6)
    say(made, alice, {0: "first", 1: "second", 2: "tie", 3: "second", 4: "second", 5: "both_bad"})
    say(made, bob, {0: "first", 1: "second", 2: "first", 3: "second", 4: "first", 5: "both_bad"})
    say(made, rita, {0: "first", 1: "second", 4: "tie"})
    return made


def test_the_figures_of_a_small_round_by_hand(voted: VoteRound) -> None:
    found = results_of(voted)
    assert (found.votes, found.decided, found.ties, found.both_bad, found.ballots) == (15, 11, 2, 2, 6)
    assert found.bad_share == pytest.approx(2 / 15) and found.tie_share == pytest.approx(2 / 15)
    assert [(person.user.username, person.done, person.total) for person in found.people] == [
        ("alice", 6, 6), ("bob", 6, 6), ("rita", 3, 6),
    ]  # fmt: skip
    cells = [[cell and tuple(cell) for cell in row] for _item, row in found.matrix]
    assert cells == [[None, (5, 15)], [(6, 15), None]]
    assert [(line.contestant.name, line.score.votes, line.ties, line.both_bad) for line in found.lines] == [
        ("beta", 15, 2, 2), ("alpha", 15, 2, 2),
    ]  # fmt: skip
    # Task 0 and 3 follow the reward; 1 goes against it; 4 and 5 have no majority, 2 has equal rewards.
    for ranked in (found.reward, found.verdict):
        assert (ranked.share.value, ranked.share.tasks) == (pytest.approx(2 / 3), 3)
        assert (ranked.undecided, ranked.equal, ranked.unknown) == (2, 1, 0)
    (disputed,) = found.disputed
    assert (disputed.ballot.task, disputed.preferred.name, disputed.votes, disputed.against) == (1, "beta", 3, 0)
    assert (disputed.reward, disputed.other_reward) == (0.0, 1.0)
    assert found.agreement.questions == 6
    # Answers that agree within a ballot: 3 + 3 + 0 + 1 + 0 + 1 of 3 + 3 + 1 + 1 + 3 + 1 pairs.
    assert found.agreement.share == pytest.approx(8 / 12)


def test_the_side_is_counted_as_it_was_shown(voted: VoteRound) -> None:
    left = 0
    for vote in Vote.objects.filter(answer__in=["first", "second"]).select_related("ballot", "voter"):
        left += (vote.answer == "first") == first_left(voted, vote.ballot, vote.voter)
    found = results_of(voted).left
    assert found.tasks == 11 and found.value == pytest.approx(left / 11)


def test_a_ballot_counts_by_its_weight(evaluation: Evaluation, make_vote_round: Maker, alice: User) -> None:
    runs = [evaluation(name, {0: [1.0], 1: [1.0]}) for name in ("alpha", "beta")]
    made = make_vote_round(runs, [alice])
    made.ballots.filter(task=0).update(weight=3.0)
    say(made, alice, {0: "first", 1: "second"})
    chance = results_of(made).lines[0].score.chance
    assert (chance / (1 - chance)) ** 2 == pytest.approx((3 + 0.25) / (1 + 0.25))  # each has a quarter of a win before


def test_simulated_voters_give_back_what_was_planted(
    evaluation: Evaluation, make_vote_round: Maker, make_dataset: Any, project: Project, team: Any
) -> None:
    """Three contestants of known strength, eight people who now and then see a tie, a reward that is right in 80%."""
    rng, strengths = np.random.default_rng(4), {"low": 0.4, "middle": 1.0, "high": 2.5}
    data = make_dataset(name="many", lines=[{"messages": [{"role": "user", "content": str(n)}]} for n in range(80)])
    runs = [evaluation(name, {n: [1.0] for n in range(80)}, dataset=data) for name in strengths]
    people = [User.objects.create_user(f"voter-{n}") for n in range(8)]
    Membership.objects.bulk_create(Membership(team=team, user=user, role="viewer") for user in people)
    made = make_vote_round(runs, people, ballots=150)
    ballots = list(made.ballots.select_related("first", "second"))
    votes = []
    for ballot in ballots:
        a, b = strengths[ballot.first.name], strengths[ballot.second.name]
        for user in people:
            answer = "tie" if rng.random() < 0.1 else "first" if rng.random() < a / (a + b) else "second"
            votes.append(Vote(ballot=ballot, voter=user, answer=answer, first_left=True, cast_at=timezone.now()))
        right = (a > b) == (rng.random() < 0.8)
        Ballot.objects.filter(pk=ballot.pk).update(first_reward=float(right), second_reward=float(not right))
    Vote.objects.bulk_create(votes)
    found = results_of(made)
    assert [line.contestant.name for line in found.lines] == ["high", "middle", "low"]
    for line in found.lines:  # ties pull towards the middle: strengths are those of 90% of the votes
        truth = strengths[line.contestant.name] / (strengths[line.contestant.name] + 1.0)
        assert abs(line.score.chance - (0.9 * truth + 0.05)) < 0.05 and line.score.votes > 500
        assert line.score.low < line.score.chance < line.score.high
    agreed = found.reward.share
    assert agreed.low is not None and agreed.high is not None and agreed.tasks > 100
    assert agreed.low < 0.8 * 0.9 + 0.2 * 0.1 + 0.06 and agreed.high > 0.66
    assert found.agreement.questions == 150 and found.agreement.alpha is not None and 0 < found.agreement.alpha < 0.5
    assert len(found.disputed) == 10


def test_the_clearest_votes_against_the_reward_come_first() -> None:
    names = {1: RoundContestant(name="alpha"), 2: RoundContestant(name="beta")}
    rewards = {1: (1.0, 0.0), 2: (1.0, 0.5), 3: (0.0, 1.0), 4: (0.5, 0.5), 5: (0.0, 1.0), 6: (1.0, 0.0)}
    ballots = [
        Ballot(pk=number, number=number, first_id=1, second_id=2, first_reward=first, second_reward=second)
        for number, (first, second) in rewards.items()
    ]
    votes = {1: (0, 1), 2: (1, 3), 3: (2, 0), 4: (0, 3), 5: (0, 3), 6: (1, 1)}
    tallies = {number: Counter({Answer.FIRST: a, Answer.SECOND: b}) for number, (a, b) in votes.items()}
    found = _disputed_ballots(ballots, tallies, names)
    assert [(item.ballot.pk, item.preferred.name, item.votes, item.against) for item in found] == [
        (3, "alpha", 2, 0),
        (2, "beta", 3, 1),
        (1, "beta", 1, 0),
    ]
    assert [(item.reward, item.other_reward) for item in found] == [(0.0, 1.0), (0.5, 1.0), (0.0, 1.0)]


def test_the_page_says_every_figure_with_its_n(
    voted: VoteRound, client_for: Callable[..., Client], alice: User, evaluation: Evaluation
) -> None:
    page = client_for(alice).get(reverse("vote-round", args=["joust", voted.pk])).content.decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    for sentence in (
        "votes: 15 · people: 3 · ballots: 6",
        "Of all votes 13.3% are ties and 13.3% are “both bad”.",
        "of 11 decided votes",
        "no majority: 2, equal figures: 1, figure missing: 0",
        "over 6 ballots with at least two votes; two people gave the same answer in 66.7% of the cases.",
        "rita 3 of 6",
    ):
        assert sentence in text, sentence
    row = re.search(r'<tr id="agrees-reward">.*?</tr>', page, re.S)
    assert row and "66.7%" in row[0] and ">3<" in re.sub(r"\s", "", row[0])
    runs = [item.run_id for item in voted.contestants.all()]
    task = reverse("compare-task", args=["joust", 1])
    assert f'href="{task}?c={runs[1]}&amp;c={runs[0]}&amp;try=1"' in page
    assert client_for(alice).get(f"{task}?c={runs[1]}&c={runs[0]}&try=1").status_code == 200


def test_without_votes_there_are_no_figures(
    evaluation: Evaluation, make_vote_round: Maker, alice: User, bob: User, client_for: Callable[..., Client]
) -> None:
    runs = [evaluation(name, {0: [1.0], 1: [0.0]}) for name in ("alpha", "beta")]
    made = make_vote_round(runs, [alice])
    page = client_for(bob).get(reverse("vote-round", args=["joust", made.pk])).content.decode()
    assert 'id="no-votes"' in page and "No votes yet" in page and "1 person is asked." in page
    assert not re.search(r'id="(scores|matrix|agreement|reward-agreement)"', page) and "50%" not in page
    say(made, alice, {0: "tie"})
    page = client_for(bob).get(reverse("vote-round", args=["joust", made.pk])).content.decode()
    assert "Not enough overlap: no ballot has votes of two people yet." in page
    assert re.search(r'data-label="Agrees with people">\s*–', page)


# --- Over the API ----------------------------------------------------------------------------------------------------
def test_a_round_from_a_script(
    evaluation: Evaluation, alice: User, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    runs = [evaluation(name, {n: [value] for n in range(3)}) for name, value in (("alpha", 1.0), ("beta", 0.0))]
    owner, reader = client_for(alice), client_for(rita)

    def post(client: Client, path: str, body: Any = None) -> Any:
        return client.post(f"/api/v1/{path}", body or {}, content_type="application/json")

    body = {"name": "r", "runs": [str(run.pk) for run in runs], "ballots": 2, "voters": ["rita", "bob"], "seed": 9}
    assert post(owner, "projects/joust/vote-rounds", body | {"voters": ["charlie"]}).json()["detail"][0] == {
        "path": "voters", "message": "Not in this team: charlie.",
    }  # fmt: skip
    assert post(owner, "projects/joust/vote-rounds", body | {"runs": body["runs"] + ["x"]}).status_code == 422
    assert post(owner, "projects/joust/vote-rounds", body | {"ballots": 201}).status_code == 422
    made = post(owner, "projects/joust/vote-rounds", body)
    assert made.status_code == 201
    pk = made.json()["id"]
    assert (made.json()["asked"], made.json()["seed"], made.json()["open"]) == (False, 9, True)
    assert post(owner, "projects/joust/vote-rounds", body).status_code == 422  # the name is taken
    listed = reader.get("/api/v1/projects/joust/vote-rounds").json()
    assert [(item["id"], item["asked"], item["left"]) for item in listed["items"]] == [(pk, True, 2)]
    assert reader.get(f"/api/v1/vote-rounds/{pk}/results").status_code == 403
    for left in (1, 0):
        ballot = reader.get(f"/api/v1/vote-rounds/{pk}/next").json()["ballot"]
        (turn,) = ballot["turns"]
        assert {turn["left"][0]["content"], turn["right"][0]["content"]} == {"solved", "given up"}
        assert [message["role"] for message in ballot["told"]] == ["user"] and ballot["expected"] is None
        side = "left" if turn["left"][0]["content"] == "solved" else "right"
        path = f"vote-rounds/{pk}/ballots/{ballot['id']}/vote"
        assert post(reader, path, {"answer": "tie"}).json()["replaced"] is False
        assert post(reader, path, {"answer": side}).json()["replaced"] is True
        assert post(reader, path, {"answer": "maybe"}).status_code == 422
        assert reader.get(f"/api/v1/vote-rounds/{pk}").json()["left"] == left
    assert reader.get(f"/api/v1/vote-rounds/{pk}/next").json()["ballot"] is None
    assert post(reader, f"vote-rounds/{pk}/undo").json()["undone"] == ballot["id"]
    assert post(reader, path, {"answer": side}).status_code == 200
    found = reader.get(f"/api/v1/vote-rounds/{pk}/results").json()
    assert (found["votes"], found["decided"], found["both_bad"]) == (2, 2, 0)
    assert [(item["name"], item["votes"]) for item in found["contestants"]] == [("alpha", 2), ("beta", 2)]
    assert found["wins"] == [[None, {"wins": 2, "votes": 2}], [{"wins": 0, "votes": 2}, None]]
    assert found["agrees_with_reward"]["share"]["value"] == 1.0 and found["agrees_with_reward"]["share"]["tasks"] == 2
    assert found["agreement"] == {"alpha": None, "share": None, "questions": 0}
    answer = post(reader, path, {"answer": "tie"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert post(client_for(bob), f"vote-rounds/{pk}/close").status_code == 403
    assert post(owner, f"vote-rounds/{pk}/close").json()["open"] is False
    assert post(client_for(bob), path, {"answer": "tie"}).status_code == 409
    assert post(owner, f"vote-rounds/{pk}/reopen").json()["open"] is True
    assert owner.delete(f"/api/v1/vote-rounds/{pk}").json() == {"deleted": "r"}
    assert owner.get(f"/api/v1/vote-rounds/{pk}").status_code == 404
    acts = AuditEntry.objects.order_by("pk").values_list("action", "subject")
    assert list(acts) == [("round_made", "r"), ("round_closed", "r"), ("round_reopened", "r"), ("round_deleted", "r")]
