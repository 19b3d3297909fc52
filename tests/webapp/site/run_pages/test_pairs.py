"""Preference pairs of a run: the page, the API, and the dataset that a worker makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.training.exports.test_pairs import TOOLS, journal, rollout, scored
from tests.training.helpers import job_config
from tests.working import at_once, done
from training.data.learned import pair_of
from training.data.reader import load_rows
from webapp.common.storage import attempt_dir
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.operations import lineage_of
from webapp.datasets.rollouts import counts, gaps_of, pairs_problem
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus

Builder = Callable[..., Any]
ClientFor = Callable[..., Client]
REWARDS = {"a": 0.1, "b": 1.0, "c": None, "d": 0.9}


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)


@pytest.fixture
def played(make_run: Builder) -> Run:
    """An ended run of one group of four, one of them excluded."""
    run: Run = make_run(name="night", state="succeeded", attempt=1, step=1, config=job_config())
    events = [event for name, reward in REWARDS.items() for event in rollout(name, reward)]
    journal(attempt_dir(run.pk, 1), [*events, scored(*REWARDS, tools=TOOLS)])
    for number, (name, reward) in enumerate(REWARDS.items()):
        status = RolloutStatus.EXCLUDED if reward is None else RolloutStatus.COMPLETED
        values = {"reward": reward, "status": status, "task": name, "seq": number, "started_at": timezone.now()}
        Rollout.objects.create(run=run, attempt=1, step=1, group=0, index=number, **values)
    return run


def address(run: Run) -> str:
    return reverse("run-pairs", args=[run.project.slug, run.pk])


def test_the_page_makes_a_dataset_that_dpo_can_read(played: Run, bob: User, client_for: ClientFor) -> None:
    client = client_for(bob)
    page = client.get(address(played)).content.decode()
    assert 'value="night-pairs"' in page and "1 / 1" in page
    answer = client.post(address(played), {"name": "better", "min_gap": "0.5"})
    made = Dataset.objects.get()
    assert answer["Location"] == reverse("dataset-detail", args=[played.project.slug, made.pk])
    done(made)
    assert (made.state, made.rows, made.created_by) == (DatasetState.READY, 1, bob)
    row = json.loads(made.rows_path.read_text())
    assert row["rollouts"] == ["b", "a"] and row["rewards"] == [1.0, 0.1] and row["tools"] == TOOLS
    pair = pair_of(load_rows(made.rows_path)[0])
    assert pair is not None and pair.chosen[-1].content == "b says it."
    page = client.get(answer["Location"]).content.decode()
    assert "&amp;kind=dpo" in page and "night, at least 0.5 apart" in page
    words = lineage_of(made).words
    assert "night" in words and "0.5" in words
    assert AuditEntry.objects.filter(action="dataset_added").count() == 1


def test_the_api_does_the_same(played: Run, bob: User, client_for: ClientFor) -> None:
    def ask(**body: Any) -> Any:
        return client_for(bob).post(f"/api/v1/runs/{played.pk}/pairs", json.dumps(body), "application/json")

    answer = ask(name="better", min_gap=0.2)
    assert answer.status_code == 201, answer.content
    made = Dataset.objects.get(pk=answer.json()["id"])
    assert made.lineage["options"] == {"run": "night", "run_id": str(played.pk), "min_gap": 0.2}
    assert ask(name="better", min_gap=0).status_code == 422


def test_a_gap_that_no_group_has_rejects_the_dataset_with_a_reason(
    played: Run, bob: User, client_for: ClientFor
) -> None:
    client_for(bob).post(address(played), {"name": "better", "min_gap": "3"})
    made = done(Dataset.objects.get())
    assert made.state == DatasetState.REJECTED and "differ so much" in json.dumps(made.report)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"state": "running"}, "has not ended yet"),
        ({"attempt": 0}, "were not recorded here"),
        ({"config": job_config(kind="sft").model_dump(mode="json"), "kind": "sft"}, "played no rollouts"),
        ({"config": job_config(rollout={"dialect": "toolbench"}).model_dump(mode="json")}, "dialect toolbench"),
    ],
)
def test_runs_of_which_none_can_be_made_say_why(
    played: Run, bob: User, client_for: ClientFor, over: dict[str, Any], words: str
) -> None:
    Run.objects.update(**over)
    client = client_for(bob)
    assert words in client.get(address(played)).content.decode()
    answer = client.post(address(played), {"name": "better", "min_gap": "0.5"})
    assert answer.status_code == 422 and words in answer.content.decode() and not Dataset.objects.exists()


def test_a_run_that_is_deleted_meanwhile_leaves_a_reason(played: Run, bob: User, client_for: ClientFor) -> None:
    client_for(bob).post(address(played), {"name": "better", "min_gap": "0.5"})
    played.delete()
    assert "was deleted" in json.dumps(done(Dataset.objects.get()).report)


@pytest.mark.parametrize("data", [{"name": "", "min_gap": "1"}, {"name": "x", "min_gap": "-1"}, {"name": "x"}])
def test_bad_input_is_reported_at_its_field(
    played: Run, bob: User, client_for: ClientFor, data: dict[str, str]
) -> None:
    answer = client_for(bob).post(address(played), data)
    assert answer.status_code == 422 and not Dataset.objects.exists()


def test_only_editors_make_pairs(played: Run, rita: User, client_for: ClientFor, charlie: User, client: Client) -> None:
    assert client_for(rita).get(address(played)).status_code == 403
    assert client_for(charlie).get(address(played)).status_code == 404
    assert "/login/" in client.get(address(played))["Location"]
    assert client_for(rita).get(reverse("run-detail", args=[played.project.slug, played.pk])).status_code == 200


def test_gaps_are_of_rollouts_that_count(played: Run) -> None:
    assert gaps_of(played) == pytest.approx([0.9])
    Rollout.objects.filter(task="a").update(parse_errors=1)
    assert gaps_of(played) == pytest.approx([0.1])
    assert counts([0.1, 0.9], (0.1, 0.5, 1.0)) == [
        {"gap": 0.1, "groups": 2},
        {"gap": 0.5, "groups": 1},
        {"gap": 1.0, "groups": 0},
    ]
    assert pairs_problem(played) == ""


def test_the_runs_page_leads_there(played: Run, bob: User, project: Project, client_for: ClientFor) -> None:
    page = client_for(bob).get(reverse("run-detail", args=[project.slug, played.pk])).content.decode()
    assert address(played) in page
