"""Branches: kept with their score, next to the recorded rollout, and made into data."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.webapp.live.conftest import in_db
from tests.webapp.reading.rewinding.conftest import TALK
from webapp.datasets.models import Dataset
from webapp.people.teams.models import AuditEntry, User
from webapp.reading.rewinding import services
from webapp.reading.rewinding.models import Branch
from webapp.reading.rewinding.views import beside
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = pytest.mark.django_db(transaction=True)
Make = Callable[..., Any]
SAID = {"role": "assistant", "content": "It is 21."}


@pytest.fixture
def branch(played: Make, bob: User) -> Branch:
    """From the third turn of a rollout with the reward 0.8, and worse."""
    rollout = played()
    messages = [
        message for turn in Turn.objects.filter(rollout=rollout).order_by("number")[:5] for message in turn.messages
    ]
    return Branch.objects.create(
        rollout=rollout,
        turn=3,
        messages=[*messages, SAID],
        prompt_length=1,
        start=5,
        done=True,
        env_reward=0.0,
        parts={"task_success": 0.0, "tool_necessity": 0.5},
        reward=0.2,
        outcome="failed",
        same=True,
        created_by=bob,
    )


async def test_what_was_played_by_hand_is_kept_with_its_score(played: Make, bob: Any, sit: Make) -> None:
    rollout = await in_db(played)()
    tab = await sit(rollout, bob)
    await tab.rewind(3)
    await tab.step("It is 21.")
    scored = await tab.frame()
    made = await in_db(lambda: Branch.objects.select_related("created_by").get())()
    assert scored["branch"] == {"id": str(made.pk), "outcome": "failed", "outcome_title": "failed"}
    assert (made.rollout_id, made.turn, made.start, made.prompt_length, made.turns) == (rollout.pk, 3, 5, 1, 1)
    assert (made.done, made.same, made.outcome, made.created_by) == (True, True, "failed", bob)
    assert made.messages[5] == SAID and made.reward == scored["reward"] and made.parts == scored["parts"]
    await in_db(lambda: Turn.objects.filter(rollout=rollout, number=2).update(messages=[]))()
    await tab.rewind(2)
    await tab.step("Hm.")
    await tab.frame()
    assert not (await in_db(lambda: Branch.objects.get(turn=2))()).same  # it was answered otherwise


async def test_a_tab_that_closes_keeps_what_was_played(played: Make, bob: Any, sit: Make) -> None:
    rollout = await in_db(played)()
    tab = await sit(rollout, bob)
    await tab.rewind(1)
    await tab.disconnect()
    assert await in_db(Branch.objects.count)() == 0
    again = await sit(rollout, bob)
    await again.rewind(1)
    await again.step("", ("calculator", {"expression": "1 + 1"}))
    await again.disconnect()
    made = await in_db(Branch.objects.get)()
    assert (made.turns, made.done, made.outcome) == (1, False, "failed")


async def test_another_turn_keeps_what_was_played(played: Make, bob: Any, sit: Make) -> None:
    tab = await sit(await in_db(played)(), bob)
    await tab.rewind(3)
    await tab.step("", ("calculator", {"expression": "1 + 1"}))
    assert (await tab.rewind(1))["type"] == "opened"
    made = await in_db(Branch.objects.get)()
    assert (made.turn, made.start, made.turns, made.done) == (3, 5, 1, False)


async def test_the_newest_branches_are_kept(played: Make, bob: Any, sit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_BRANCHES", 2)
    tab = await sit(await in_db(played)(), bob)
    for text in ("one", "two", "three"):
        await tab.rewind(1)
        await tab.step(text)
        await tab.frame()
    kept = await in_db(lambda: [item.messages[-1]["content"] for item in Branch.objects.all()])()
    assert kept == ["three", "two"]


def test_branches_are_those_of_one_rollout(
    trained: Make, play: Make, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit for one rollout deletes none of another's."""
    monkeypatch.setattr(services, "MAX_BRANCHES", 2)
    run = trained()
    one, two = play(run, index=0), play(run, index=1)
    episode: Any = SimpleNamespace(parts={}, messages=[], prompt_length=0, tools=None, done=True, reward=None)
    score: Any = SimpleNamespace(parts={}, missing={}, reward=0.5)

    def keep(rollout: Rollout) -> Branch:
        took = services.Took(1, 0, True)
        return services.branch_keep(rollout=rollout, user=bob, episode=episode, took=took, score=score)

    theirs, _oldest, older, newest = keep(two), keep(one), keep(one), keep(one)
    assert (services.branches_of(one), services.branches_of(two)) == ([newest, older], [theirs])
    assert (services.branch_count(one), services.branch_count(two)) == (2, 1)
    assert (services.branch_of(one, older.pk), services.branch_of(one, theirs.pk)) == (older, None)


def test_it_is_shown_next_to_the_recorded_rollout(branch: Branch) -> None:
    found = beside(branch.rollout, [branch])
    assert [len(column.messages) for column in found.columns] == [8, 6]
    assert (found.skipped, found.left) == (4, 0) and [row.same for row in found.rows] == [True, False, False, False]
    assert [row.first for row in found.rows] == [False, True, False, False]
    assert [[message.text for message in cell.messages] for cell in found.rows[1].cells] == [["Again."], ["It is 21."]]
    assert found.rows[2].cells[1].messages == [] and [cell.branch for cell in found.rows[2].cells] == [None, branch]
    alone = beside(branch.rollout, [])
    assert alone.skipped == 7 and [row.first for row in alone.rows] == [False]


def page(client: Any, rollout: Rollout, query: str = "", status: int = 200) -> str:
    answer = client.get(f"/p/joust/rollouts/{rollout.pk}/branches/{query}")
    assert answer.status_code == status
    return str(answer.content.decode())


def test_the_page_has_both_and_who_played(branch: Branch, rita: User, charlie: User, client_for: Make) -> None:
    rollout = branch.rollout
    text = page(client_for(rita), rollout)
    assert "bob" in text and "It is 21." in text and "−0.600" in text and 'id="first-difference"' in text
    assert "Add as a pair" not in text and f"?show={branch.pk}" not in text  # rita reads; it is shown already
    assert "1 branch" in client_for(rita).get(f"/p/joust/rollouts/{rollout.pk}/").content.decode()
    page(client_for(charlie), rollout, status=404)
    assert client_for(None).get(f"/p/joust/rollouts/{rollout.pk}/branches/").status_code == 302
    Branch.objects.all().delete()
    assert "No branch continues" in page(client_for(rita), rollout)


def save(client: Any, branch: Branch, **form: str) -> Any:
    return client.post(f"/p/joust/rollouts/{branch.rollout_id}/branches/{branch.pk}/save/", form)


def test_it_becomes_a_demonstration_or_a_pair(branch: Branch, played: Make, bob: User, client_for: Make) -> None:
    client, other = client_for(bob), played(TALK[:1], index=1)
    Turn.objects.create(rollout=other, run=other.run, number=7, messages=[SAID], parse_error="no JSON", seq=0)
    assert save(client, branch, kind="row", name="rows").status_code == 302
    row = json.loads(Dataset.objects.get(name="rows").upload_path.read_text())
    assert row["messages"] == branch.messages
    assert row["provenance"] == {
        "source": "rewind",
        "rollout": str(branch.rollout_id),
        "turn": 3,
        "reward": 0.2,
        "done": True,
    }
    assert save(client, branch, kind="pair", name="pairs").status_code == 302
    pair = json.loads(Dataset.objects.get(name="pairs").upload_path.read_text())
    assert pair["prompt"] == branch.messages[:5] and pair["rejected"] == [SAID]
    assert [message["content"] for message in pair["chosen"]] == ["Again.", "20", "It is 20."]
    Branch.objects.update(reward=0.9)
    assert save(client, branch, kind="pair", name="others").status_code == 302
    assert json.loads(Dataset.objects.get(name="others").upload_path.read_text())["chosen"] == [SAID]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": None}, "one of them is missing"),
        ({"reward": 0.8}, "the same reward"),
        ({"same": False}, "differently from the recording"),
    ],
)
def test_what_is_no_pair_says_why(
    change: dict[str, Any], message: str, branch: Branch, bob: User, client_for: Make
) -> None:
    Branch.objects.update(**change)
    answer = save(client_for(bob), branch, kind="pair", name="pairs")
    assert answer.status_code == 422 and message in answer.content.decode() and not Dataset.objects.filter(name="pairs")


def test_a_branch_that_says_the_same_is_no_pair(branch: Branch, bob: User, client_for: Make) -> None:
    whole = [m for turn in Turn.objects.filter(rollout=branch.rollout).order_by("number") for m in turn.messages]
    Branch.objects.update(messages=whole)
    assert "Both are the same" in save(client_for(bob), branch, kind="pair", name="pairs").content.decode()


def test_a_recorded_turn_that_could_not_be_read_is_no_half_of_a_pair(
    branch: Branch, bob: User, client_for: Make
) -> None:
    assert Turn.objects.filter(rollout=branch.rollout, number=3).exclude(parse_error="").exists()  # before the branch
    Turn.objects.filter(rollout=branch.rollout, number=5).update(parse_error="no JSON")
    answer = save(client_for(bob), branch, kind="pair", name="pairs")
    assert answer.status_code == 422 and "could not be read" in answer.content.decode()
    assert save(client_for(bob), branch, kind="row", name="rows").status_code == 302


def test_broken_calls_that_were_recorded_whole_are_shown_and_paired_as_they_were_written(
    branch: Branch, bob: User, client_for: Make
) -> None:
    turns = Turn.objects.filter(rollout=branch.rollout)
    turns.filter(number=3).update(wrote="Let me see. <tool_call>{")  # both were given this, before the branch
    turns.filter(number=5).update(wrote="<tool_call>4 *", parse_error="no JSON")
    assert save(client_for(bob), branch, kind="pair", name="pairs").status_code == 302
    pair = json.loads(Dataset.objects.get(name="pairs").upload_path.read_text())
    assert pair["prompt"][3] == {"role": "assistant", "content": "Let me see. <tool_call>{"}
    assert pair["chosen"][0] == {"role": "assistant", "content": "<tool_call>4 *"} and pair["rejected"] == [SAID]
    found = beside(branch.rollout, [branch])
    assert (found.skipped, found.rows[1].first) == (4, True), "the past of both is the same"
    assert [cell.messages[0].text for cell in found.rows[1].cells] == ["<tool_call>4 *", "It is 21."]
    branch.same = False  # it was given something else: then its own past is shown
    found = beside(branch.rollout, [branch])
    texts = [cell.messages[0].text for row in found.rows if row.first for cell in row.cells]
    assert texts == ["Let me see. <tool_call>{", "Let me see."]


def test_bad_input_and_roles(
    branch: Branch, played: Make, bob: User, rita: User, charlie: User, client_for: Make
) -> None:
    assert save(client_for(bob), branch, kind="other", name="x").status_code == 422
    assert save(client_for(bob), branch, kind="row", name="a/b").status_code == 422
    assert save(client_for(rita), branch, kind="row", name="x").status_code == 403
    assert save(client_for(charlie), branch, kind="row", name="x").status_code == 404
    other = played(TALK[:1], index=2)
    wrong = client_for(bob).post(f"/p/joust/rollouts/{other.pk}/branches/{branch.pk}/save/", {"kind": "row"})
    assert wrong.status_code == 404  # it is a branch of another rollout


def test_the_api_lists_and_saves(branch: Branch, bob: User, rita: User, charlie: User, client_for: Make) -> None:
    address, kept = f"/api/v1/rollouts/{branch.rollout_id}/branches", f"/api/v1/branches/{branch.pk}/save"
    (item,) = client_for(rita).get(address).json()["items"]
    assert (item["turn"], item["turns"], item["start"], item["outcome"], item["by"]) == (3, 1, 5, "failed", "bob")
    assert (item["reward"], item["parts"]["tool_necessity"], item["messages"][-1]) == (0.2, 0.5, SAID)
    body = {"kind": "pair", "name": "pairs"}
    made = client_for(bob).post(kept, body, content_type="application/json")
    assert made.status_code == 201 and made.json()["name"] == "pairs"
    for user, status in ((rita, 403), (charlie, 404), (None, 401)):
        assert client_for(user).post(kept, body, content_type="application/json").status_code == status
    assert client_for(bob).post(kept, {"kind": "x"}, content_type="application/json").status_code == 422
    assert client_for(charlie).get(address).status_code == 404 and client_for(rita).get(kept).status_code == 405


def test_a_branch_is_deleted_and_what_was_made_of_it_stays(
    branch: Branch, bob: User, rita: User, charlie: User, client_for: Make
) -> None:
    page = f"/p/joust/rollouts/{branch.rollout_id}/branches/"
    services.branch_save(branch=branch, user=bob, kind="row", name="kept")
    shown = f"{page}?show={branch.pk}"
    assert f"{branch.pk}/delete/" in client_for(bob).get(shown).content.decode()
    assert f"{branch.pk}/delete/" not in client_for(rita).get(shown).content.decode()
    for user, status in ((rita, 403), (charlie, 404), (None, 302)):
        assert client_for(user).post(f"{page}{branch.pk}/delete/").status_code == status
    assert client_for(bob).get(f"{page}{branch.pk}/delete/").status_code == 405
    assert client_for(bob).post(f"{page}{branch.rollout_id}/delete/").status_code == 404, "no branch's id"
    assert Branch.objects.count() == 1
    gone = client_for(bob).post(f"{page}{branch.pk}/delete/", follow=True)
    assert gone.redirect_chain == [(page, 302)] and "The branch is deleted." in gone.content.decode()
    assert not Branch.objects.exists() and Rollout.objects.filter(pk=branch.rollout_id).exists()
    row = json.loads(Dataset.objects.get(name="kept").upload_path.read_text())
    assert row["messages"] == branch.messages
    entry = AuditEntry.objects.get(action="branch_deleted")
    assert (entry.username, entry.project_name, entry.object_id) == ("bob", "Joust", str(branch.pk))


def test_a_turn_in_which_nothing_was_written_says_so(branch: Branch, rita: User, client_for: Make) -> None:
    page = f"/p/joust/rollouts/{branch.rollout_id}/branches/?show={branch.pk}"
    assert "(empty)" not in client_for(rita).get(page).content.decode()
    Branch.objects.update(messages=[*branch.messages[:-1], {"role": "assistant", "content": ""}])
    assert client_for(rita).get(page).content.decode().count("(empty)") == 1


def test_the_api_deletes_a_branch(branch: Branch, bob: User, rita: User, charlie: User, client_for: Make) -> None:
    address = f"/api/v1/branches/{branch.pk}"
    for user, status in ((rita, 403), (charlie, 404), (None, 401)):
        assert client_for(user).delete(address).status_code == status
    assert client_for(bob).put(address).status_code == 405
    gone = client_for(bob).delete(address)
    assert gone.status_code == 200 and gone.json() == {"deleted": str(branch.pk)}
    assert not Branch.objects.exists() and client_for(bob).delete(address).status_code == 404
