"""What was found is kept: as a named view, as demonstrations, as tasks; always with where it comes from."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.markup import dense
from tests.training.exports.test_pairs import journal, rollout, scored
from tests.webapp.reading.inspector.conftest import Played
from tests.working import done
from training.journal import GroupScored
from webapp.common.storage import attempt_dir
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.operations import lineage_of
from webapp.people.teams.models import AuditEntry, User
from webapp.reading.inspector import finding
from webapp.reading.inspector.models import SavedView
from webapp.reading.inspector.saving import cases_from
from webapp.rewards.models import RewardCase, RolloutSet
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn, rollout_id

pytestmark = pytest.mark.usefixtures("no_broker")
ClientFor = Callable[..., Client]
TOOL = {"type": "function", "function": {"name": "calculator", "description": "", "parameters": {"type": "object"}}}


def save(client: Client, run: Run, query: str = "", **fields: str) -> Any:
    return client.post(f"{reverse('run-rollouts-save', args=[run.project.slug, run.pk])}?{query}", fields)


def test_a_named_view_keeps_its_address(played: Played, bob: User, rita: User, client_for: ClientFor) -> None:
    client = client_for(bob)
    query = "q=9+%2A+5&outcome=failed&reward_to=0.5&sort=-surprise"
    answer = save(client, played.run, query, kind="view", name="wrong sums")
    view = SavedView.objects.get()
    assert answer["Location"] == reverse("rollout-view", args=["joust", view.pk])
    opened = client_for(rita).get(answer["Location"])
    assert opened["Location"] == f"{reverse('run-rollouts', args=['joust', played.run.pk])}?{query}"
    page = client_for(rita).get(opened["Location"]).content.decode()
    assert "wrong sums" in page and page.count('class="found-row"') == 1 and "Delete the view" not in page
    again = save(client, played.run, "", kind="view", name="wrong sums")
    assert again.status_code == 422 and "exists already" in again.content.decode()
    gone = client.post(reverse("rollout-view-delete", args=["joust", view.pk]))
    assert gone.status_code == 302 and not SavedView.objects.exists()
    assert set(AuditEntry.objects.values_list("action", flat=True)) == {"view_saved", "view_deleted"}


def test_demonstrations_have_their_conversation_tools_and_origin(
    played: Played, bob: User, client_for: ClientFor
) -> None:
    run, row = played.run, played.rows["right"]
    fresh = rollout_id(run.pk, 1, "r1")
    Turn.objects.filter(rollout=row).delete()
    Rollout.objects.filter(pk=row.pk).update(id=fresh)
    for number, (role, text) in enumerate((("user", "9 * 5?"), ("assistant", "45"))):
        message = {"role": role, "content": text}
        Turn.objects.create(rollout_id=fresh, run=run, number=number, messages=[message], seq=1)
    journal(
        attempt_dir(run.pk, 1),
        [
            GroupScored(
                step=1, group=0, rollouts=["r1"], advantages=[0.0], reward_mean=1.0, reward_std=0.0,
                zero_variance=True, tools_digest="d", tools=[TOOL],
            )
        ],
    )  # fmt: skip
    answer = save(client_for(bob), run, "outcome=solved&outcome=excluded", kind="demonstrations", name="good")
    made = Dataset.objects.get()
    assert answer["Location"] == reverse("dataset-detail", args=["joust", made.pk])
    done(made)
    made.refresh_from_db()
    assert (made.state, made.rows) == (DatasetState.READY, 1), made.report
    kept = json.loads(made.rows_path.read_text())
    assert [message["content"] for message in kept["messages"]] == ["9 * 5?", "45"] and kept["tools"] == [TOOL]
    origin = {"source": "rollout", "run": str(run.pk), "run_name": "night", "rollout": str(fresh), "step": 1}
    assert kept["provenance"] == {**origin, "outcome": "solved", "reward": 1.0}
    words = lineage_of(made).words
    assert "2 rollouts of night" in words and "Outcome: solved, excluded" in words
    assert made.lineage["options"]["chosen"] == 2 and made.created_by == bob


def test_tasks_are_the_rows_that_were_played_each_once(
    played: Played, bob: User, client_for: ClientFor, make_dataset: Callable[..., Dataset]
) -> None:
    source = make_dataset()
    source.rows_path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"messages": [{"role": "user", "content": f"task {number}"}]} for number in range(8)]
    source.rows_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    played.run.config["data"]["train"] = str(source.rows_path)
    played.run.save(update_fields=["config"])
    Rollout.objects.filter(pk=played.rows["cut"].pk).update(row=1)  # the same task as `wrong`
    save(client_for(bob), played.run, "outcome=failed&outcome=solved", kind="tasks", name="hard")
    made = Dataset.objects.exclude(pk=source.pk).get()
    done(made)
    made.refresh_from_db()
    questions = [json.loads(line)["messages"][0]["content"] for line in made.rows_path.read_text().splitlines()]
    assert questions == ["task 0", "task 1"]  # the held-out one is not among them
    assert made.lineage["parents"] == [
        {"id": str(source.pk), "reference": source.reference, "sha256": source.sha256, "rows": source.rows, "taken": 2}
    ]
    assert str(source) in client_for(bob).get(reverse("dataset-detail", args=["joust", made.pk])).content.decode()


def test_pairs_are_of_the_groups_of_which_a_rollout_was_found(played: Played, bob: User, client_for: ClientFor) -> None:
    run = played.run
    events: list[Any] = []
    for step, low, high in ((1, "wrong", "right"), (2, "worse", "better")):
        events += [*rollout(low, 0.1), *rollout(high, 1.0), scored(low, high, step=step)]
    journal(attempt_dir(run.pk, 1), events)
    answer = save(client_for(bob), run, "outcome=solved", kind="pairs", name="better")
    made = Dataset.objects.get()
    assert answer["Location"] == reverse("dataset-detail", args=["joust", made.pk])
    done(made)
    made.refresh_from_db()
    assert (made.state, made.rows) == (DatasetState.READY, 1), made.report
    assert json.loads(made.rows_path.read_text())["rollouts"] == ["right", "wrong"]
    assert "Of 1 group. Found by: Outcome: solved" in lineage_of(made).words


def test_a_set_for_the_lab_has_whole_groups(played: Played, bob: User, client_for: ClientFor) -> None:
    answer = save(client_for(bob), played.run, "outcome=solved", kind="lab", name="odd")
    made = RolloutSet.objects.get()
    assert answer["Location"] == reverse("lab-set", args=["joust", made.pk])
    done(made)
    assert (made.state, made.rollouts, made.groups, made.first_step, made.last_step) == ("ready", 4, 1, 1, 1)
    assert made.found_by == "Outcome: solved" and made.run == played.run
    assert "Outcome: solved" in client_for(bob).get(answer["Location"]).content.decode()


def test_cases_expect_the_reward_that_was_given(
    played: Played, bob: User, client_for: ClientFor, make_reward_spec: Callable[..., Any]
) -> None:
    answer = save(client_for(bob), played.run, "outcome=failed&outcome=excluded", kind="cases", name="odd")
    assert answer["Location"] == reverse("reward-list", args=["joust"])
    cases = list(RewardCase.objects.order_by("name"))
    assert [case.name for case in cases] == ["odd-1", "odd-2", "odd-3"]
    wrong = cases[0]
    assert wrong.total == pytest.approx([0.2, 0.2], abs=1e-5) and wrong.total[0] < 0.2 < wrong.total[1]
    assert [message["role"] for message in wrong.messages] == ["system", "user", "assistant"]
    assert (wrong.prompt_length, wrong.truncated, cases[1].truncated) == (2, False, True)
    place = {"run": str(played.run.pk), "run_name": "night", "step": 1, "group": 0, "index": 1}
    source = {"rollout": str(played.rows["wrong"].pk), "view": "Outcome: failed, excluded"}
    assert wrong.origin == place | source
    spec = make_reward_spec()
    address = reverse("reward-detail", args=["joust", spec.pk])
    page = dense(client_for(bob).get(address).content.decode())
    link = reverse("rollout-detail", args=["joust", played.rows["wrong"].pk])
    assert f'<a href="{link}">rollout 1.0.1 of night</a>· found by: Outcome: failed, excluded' in page
    listed = client_for(bob).get("/api/v1/projects/joust/reward-cases").json()["items"]
    assert listed[0]["origin"] == wrong.origin
    Turn.objects.filter(rollout=played.rows["wrong"]).delete()
    assert cases_from([played.rows["wrong"], played.rows["half"]], "odd", "")[0].name == "odd-2", "one has no words"
    Rollout.objects.filter(pk=played.rows["wrong"].pk).delete()
    page = client_for(bob).get(address).content.decode()
    assert link not in page and "rollout 1.0.1 of night" in page and "(deleted)" in page
    twice = save(client_for(bob), played.run, "outcome=failed", kind="cases", name="odd")
    assert twice.status_code == 422 and RewardCase.objects.count() == 3  # all or none


@pytest.mark.parametrize(("most", "status", "count"), [(2, 422, 0), (3, 302, 3)])
def test_as_many_rollouts_as_the_limit_become_cases(
    most: int, status: int, count: int, played: Played, bob: User, client_for: ClientFor, monkeypatch: Any
) -> None:
    monkeypatch.setattr("webapp.reading.inspector.saving.CASES_MOST", most)
    client, query = client_for(bob), "outcome=failed&outcome=excluded"
    offered = client.get(f"/api/v1/runs/{played.run.pk}/rollouts/save?{query}").json()["items"]
    assert bool(next(item for item in offered if item["kind"] == "cases")["problem"]) is (status == 422)
    answer = save(client, played.run, query, kind="cases", name="odd")
    assert (answer.status_code, RewardCase.objects.count()) == (status, count)


def test_what_cannot_be_saved_is_reported(
    played: Played, bob: User, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_for(bob)

    def refused(query: str = "", **fields: str) -> str:
        answer = save(client, played.run, query, **fields)
        assert answer.status_code == 422 and not Dataset.objects.exists()
        return str(answer.content.decode())

    assert "not rows of a dataset that is here" in refused(kind="tasks", name="a")
    assert "Between 1 and 10000" in refused("tool=none", kind="demonstrations", name="a")
    assert "This field is required" in refused(kind="view", name="")
    assert "not one of the available choices" in refused(kind="poem", name="a")
    monkeypatch.setattr(finding, "COUNT_MOST", 3)
    assert "Narrow the view" in refused(kind="demonstrations", name="a")


def test_readers_save_nothing_and_see_no_button(played: Played, rita: User, client_for: ClientFor) -> None:
    assert save(client_for(rita), played.run, kind="view", name="a").status_code == 403
    page = client_for(rita).get(reverse("run-rollouts", args=["joust", played.run.pk])).content.decode()
    assert "rollouts/save/" not in page


def test_the_api_saves_lists_and_deletes(played: Played, bob: User, client_for: ClientFor) -> None:
    client = client_for(bob)

    def post(url: str, **body: str) -> Any:
        return client.post(f"/api/v1/{url}", json.dumps(body), "application/json")

    made = post(f"runs/{played.run.pk}/rollouts/save", kind="view", name="a", query="outcome=failed")
    assert made.status_code == 201 and made.json()["kind"] == "view"
    assert post("projects/joust/rollouts/save", kind="view", name="b", query="q=x").status_code == 201
    listed = client.get("/api/v1/projects/joust/rollout-views").json()["items"]
    assert [(item["name"], item["query"], item["run"]) for item in listed] == [
        ("a", "outcome=failed", str(played.run.pk)),
        ("b", "q=x", None),
    ]
    assert client.delete(f"/api/v1/rollout-views/{listed[0]['id']}").json() == {"deleted": "a"}
    refused = post("projects/joust/rollouts/save", kind="view", name="c", query="outcome=won")
    assert refused.status_code == 422 and "won" in refused.json()["message"]
    assert post("projects/joust/rollouts/save", kind="poem", name="c").status_code == 422


def test_each_rollout_is_left_out_once_and_each_task_kept_once(
    played: Played, rita: User, client_for: ClientFor
) -> None:
    """A held-out one with an unreadable call is left out as held out; two rollouts of a row are one task."""
    Rollout.objects.filter(pk=played.rows["held"].pk).update(parse_errors=1)
    Rollout.objects.filter(pk=played.rows["wrong"].pk).update(row=played.rows["right"].row)
    items = client_for(rita).get(f"/api/v1/runs/{played.run.pk}/rollouts/save").json()["items"]
    by_kind = {item["kind"]: item for item in items}
    assert (by_kind["demonstrations"]["keeps"], by_kind["demonstrations"]["left_out"]) == (
        5,
        ["excluded or in flight: 2", "on held-out tasks: 1"],
    )
    assert by_kind["tasks"]["keeps"] == 6


def test_before_saving_it_says_what_is_kept_and_what_is_left_out(
    played: Played, bob: User, rita: User, charlie: User, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, client = played.run, client_for(rita)
    journal(attempt_dir(run.pk, 1), [*rollout("low", 0.1), *rollout("high", 1.0), scored("low", "high", step=1)])
    Rollout.objects.filter(pk=played.rows["half"].pk).update(parse_errors=1)

    def offers(query: str = "", place: str = f"runs/{run.pk}") -> dict[str, Any]:
        items = client.get(f"/api/v1/{place}/rollouts/save?{query}").json()["items"]
        return {item["kind"]: item for item in items}

    whole = offers()
    assert (whole["demonstrations"]["keeps"], whole["demonstrations"]["left_out"]) == (
        4,
        ["excluded or in flight: 2", "on held-out tasks: 1", "with unreadable calls: 1"],
    )
    assert (whole["tasks"]["keeps"], whole["tasks"]["left_out"]) == (7, ["rollouts on held-out tasks: 1"])
    assert (whole["cases"]["says"], whole["cases"]["left_out"]) == ("6 test cases", ["without a reward: 2"])
    assert whole["pairs"]["says"] == "at most 1 pair (≥ 0.05: 1, ≥ 0.1: 1, ≥ 0.25: 1, ≥ 0.5: 1, ≥ 1: 1)"
    assert whole["pairs"]["left_out"] == ["groups without two rewards that count: 2", "on held-out tasks: 1"]
    assert whole["lab"]["says"] == "6 rollouts (groups: 3)"
    assert offers("outcome=solved")["lab"]["says"] == "4 rollouts (groups: 1)", "each group is taken whole"
    assert offers("", "projects/joust")["cases"]["keeps"] == 6
    page = client_for(bob).get(reverse("run-rollouts-save", args=["joust", run.pk])).content.decode()
    assert "at most 4 conversations" in page and "with unreadable calls: 1" in page and "at most 1 pair" in page
    Rollout.objects.filter(run=run, reward__isnull=False).update(reward=0.5)
    assert (offers()["pairs"]["keeps"], offers()["pairs"]["left_out"][0]) == (0, "groups whose rewards are equal: 1")
    Run.objects.filter(pk=run.pk).update(state="running")
    assert "has not ended yet" in offers()["pairs"]["problem"] and not offers()["lab"]["problem"]
    assert "Choose the rollouts of one run" in offers("outcome=failed&held_out=yes")["lab"]["problem"]
    monkeypatch.setattr("webapp.reading.inspector.saving.CASES_MOST", 5)
    assert "6 rollouts have a reward, and 5" in offers()["cases"]["problem"]
    monkeypatch.setattr(finding, "COUNT_MOST", 3)
    assert {item["problem"] for item in offers().values()} == {
        "More than 3 rollouts match. Narrow the view, then save it."
    }
    address = f"/api/v1/runs/{run.pk}/rollouts/save"
    assert client_for(charlie).get(address).status_code == 404 and Client().get(address).status_code == 401
    assert client.get(f"{address}?outcome=won").status_code == 422


def test_pairs_keep_the_minimum_gap_that_was_asked_for(played: Played, bob: User, client_for: ClientFor) -> None:
    run = played.run
    events: list[Any] = []
    for step, low, high in ((1, 0.5, 1.0), (2, 0.9, 1.0)):
        names = f"low{step}", f"high{step}"
        events += [*rollout(names[0], low), *rollout(names[1], high), scored(*names, step=step)]
    journal(attempt_dir(run.pk, 1), events)
    assert save(client_for(bob), run, "held_out=no", kind="pairs", name="far", min_gap="0.25").status_code == 302
    made = Dataset.objects.get()
    done(made)
    made.refresh_from_db()
    assert (made.rows, made.lineage["options"]["min_gap"]) == (1, 0.25)
    assert json.loads(made.rows_path.read_text())["rollouts"] == ["high1", "low1"]
    again = client_for(bob).post(
        f"/api/v1/runs/{run.pk}/rollouts/save",
        json.dumps({"kind": "pairs", "name": "near", "query": "held_out=no"}),
        "application/json",
    )
    near = Dataset.objects.get(pk=again.json()["id"])
    done(near)
    near.refresh_from_db()
    assert near.rows == 2
    refused = save(client_for(bob), run, kind="pairs", name="x", min_gap="-1")
    assert refused.status_code == 422
