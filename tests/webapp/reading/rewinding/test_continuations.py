"""A contestant continues from a turn of a recorded rollout: the real trainer plays, and its rollouts are branches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.chat_stub import Stub, says
from tests.markup import dense
from tests.training.helpers import write_weights
from tests.webapp.endpoints.conftest import make_endpoint, stub
from training.config import JobConfig
from training.errors import ConfigError
from training.rollout.rewinding import read_past
from webapp.common.storage import rewind_file
from webapp.common.workers.models import Worker
from webapp.datasets.models import Dataset
from webapp.engine.resolve import resolve
from webapp.engine.services import run_create
from webapp.engine.supervisor import supervise
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.people.notifications.models import Event
from webapp.people.teams.models import Project, User
from webapp.reading.parts import config_for
from webapp.reading.rewinding.models import Branch, Continuation
from webapp.reading.rewinding.scene import continuing, scene_of
from webapp.reading.rewinding.services import branches_of, continuation_create
from webapp.reading.selectors import seeds_of
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import RunState

__all__ = ["make_endpoint", "stub"]
pytestmark = pytest.mark.django_db(transaction=True)
Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs wait until a test has them played."""
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)


@pytest.fixture
def gpt(make_endpoint: Make, stub: Stub) -> Stub:
    """The endpoint `gpt`, which says that it is 20."""
    make_endpoint()
    stub.replies = [says("The answer is 20.")]
    return stub


def ask(client: Any, rollout: Rollout, **body: Any) -> Any:
    return client.post(f"/api/v1/rollouts/{rollout.pk}/continue", body, content_type="application/json")


def seen_through(run: Run) -> Run:
    supervise(run.pk, run.pool)
    run.refresh_from_db()
    assert run.state == RunState.SUCCEEDED, run.error
    return run


def test_a_small_model_continues_next_to_a_run(
    played: Make, make_run: Make, bob: User, client_for: Make, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = timezone.now()
    for queue in ("train", "endpoint"):
        Worker.objects.create(name=f"{queue}@a", queues=[queue], started_at=at, beat_at=at)
    rollout = played()
    folder = Path(settings.MODELS_DIR) / "six"
    write_weights(folder / "model.safetensors", 6)
    (folder / "config.json").write_text("{}")
    RegisteredModel.objects.create(project=rollout.run.project, name="six", kind="folder", source="six")

    def pool_with(**options: Any) -> str:
        Run.objects.filter(pk=rollout.run_id).update(config=rollout.run.config | options)
        made = ask(client_for(bob), rollout, contestant="model:six", turn=3, times=1)
        assert made.status_code == 201, made.json()
        run = Run.objects.get(pk=made.json()["id"])
        Run.objects.filter(pk=run.pk).update(state=RunState.CANCELLED)
        return run.pool

    assert pool_with() == "train", "a device is free"
    Run.objects.filter(pk=make_run(name="long", state=RunState.RUNNING).pk).update(lease_worker="train@a")
    assert pool_with() == "endpoint"
    assert pool_with(run=rollout.run.config["run"] | {"device": "cuda"}) == "train", "it asks for the device"
    settings.CPU_SAMPLER_PARAMETERS = 5
    assert pool_with() == "train", "it is too large"


def test_an_endpoint_continues_where_the_recorded_policy_was(
    played: Make, gpt: Stub, bob: User, client_for: Make
) -> None:
    rollout = played()
    Turn.objects.filter(rollout=rollout, messages__0__role="assistant").update(tokens=5)
    made = ask(client_for(bob), rollout, contestant="endpoint:gpt", turn=3, times=2, temperature=0.5)
    assert made.status_code == 201 and made.json()["kind"] == "evaluate"
    run = Run.objects.get(pk=made.json()["id"])
    assert run.name == "branch-3.1.0-turn-3-1" and run.created_by == bob
    assert run.config["rollout"]["num_generations"] == 2 and run.config["rollout"]["temperature"] == 0.5
    seen_through(run)
    # It says nothing of how good the contestant is: it is in no table, and no page takes it for an evaluation.
    assert not run.measures and run.evaluation is None
    assert list(Event.objects.values_list("kind", flat=True)) == ["run_succeeded"]
    assert not contestants_of(run.project, [str(run.pk)])[0][0].evaluates
    # What it was asked is what the recorded policy had before its third turn, environment's answers included.
    recorded = [message for turn in rollout.turn_set.order_by("number") for message in turn.messages]
    for body in gpt.asked:
        assert [(m["role"], m["content"]) for m in body["messages"]] == [
            (m["role"], m["content"]) for m in recorded[:5]
        ]
        assert body["temperature"] == 0.5
    assert len(gpt.asked) == 2 and gpt.asked[0]["seed"] != gpt.asked[1]["seed"]
    branches = branches_of(rollout)
    assert [(b.turn, b.start, b.turns, b.done, b.same, b.player) for b in branches] == [
        (3, 5, 1, True, True, "gpt (endpoint)")
    ] * 2
    assert branches[0].messages[:5] == recorded[:5]
    assert branches[0].messages[5]["content"] == "The answer is 20."
    assert [b.outcome for b in branches] == ["solved"] * 2
    # Scored by the recorded run's spec over the whole episode: its call is one of the episode's.
    own = Rollout.objects.filter(run=run).order_by("index")
    assert {each.turns for each in own} == {3} and {each.tokens for each in own} == {17}  # 2 × 5, and 7 of its own
    assert {each.parse_errors for each in own} == {1} and {each.calls for each in own} == {1}
    assert {frozenset(each.parts) for each in own} == {frozenset({"task_success", "tool_necessity"})}
    assert branches[0].reward == own[0].reward == pytest.approx(0.6 + 0.4 * own[0].parts["tool_necessity"])


def test_a_broken_call_is_recorded_again_as_it_was_written(played: Make, gpt: Stub, bob: User) -> None:
    rollout = played()
    Turn.objects.filter(rollout=rollout, number=3).update(wrote="Let me see. <tool_call>{")
    seen_through(continuation_create(rollout=rollout, user=bob, contestant="endpoint:gpt", turn=3, times=1))
    assert scene_of(rollout).recording.turns[1].wrote == "Let me see. <tool_call>{"
    (branch,) = branches_of(rollout)
    assert branch.same and branch.messages[3] == {"role": "assistant", "content": "Let me see. <tool_call>{"}


def test_what_is_still_played_and_what_an_earlier_attempt_played_is_no_branch(
    played: Make, gpt: Stub, bob: User
) -> None:
    rollout = played()
    run = seen_through(continuation_create(rollout=rollout, user=bob, turn=3, contestant="endpoint:gpt", times=2))
    first, second = Rollout.objects.filter(run=run).order_by("index")
    Rollout.objects.filter(pk=first.pk).update(status="running")
    assert [branch.pk for branch in branches_of(rollout)] == [second.pk]
    Run.objects.filter(pk=run.pk).update(attempt=2)
    assert branches_of(rollout) == []


def test_its_rollouts_can_be_rewound_and_gone_on_from_again(played: Make, gpt: Stub, bob: User) -> None:
    rollout = played()
    seen_through(continuation_create(rollout=rollout, user=bob, turn=2, contestant="endpoint:gpt", times=1))
    branch = branches_of(rollout)[0].played
    assert branch is not None
    mine, theirs = seeds_of(branch, config_for(branch)), seeds_of(rollout, config_for(rollout))
    assert mine is not None and theirs is not None and mine.episode == theirs.episode
    assert scene_of(branch).recording.reset.task == scene_of(rollout).recording.reset.task
    again = continuation_create(rollout=branch, user=bob, turn=2, contestant="endpoint:gpt", times=1)
    seen_through(again)
    assert [(b.turn, b.same, b.outcome) for b in branches_of(branch)] == [(2, True, "solved")]


def test_another_time_is_another_draw(played: Make, gpt: Stub, bob: User) -> None:
    rollout = played()
    runs = [
        continuation_create(rollout=rollout, user=bob, turn=1, contestant="endpoint:gpt", times=16) for _ in range(2)
    ]
    assert [run.config["run"]["seed"] for run in runs] == [7, 8]
    assert [run.name for run in runs] == ["branch-3.1.0-turn-1-1", "branch-3.1.0-turn-1-2"]


def test_components_weigh_as_they_did_at_the_recorded_step(played: Make, gpt: Stub, run: Run, bob: User) -> None:
    """At step 3 a weight that falls from whole at step 1 to half at step 5 is at three quarters."""
    falls = {"kind": "linear", "begin": 1, "end": 5, "first": 1.0, "last": 0.5}
    run.resolved["rewards"]["components"][1]["schedule"] = falls
    run.save(update_fields=["resolved"])
    made = continuation_create(rollout=played(), user=bob, turn=1, contestant="endpoint:gpt", times=1)
    parts = made.config["rewards"]["components"]
    assert [(part["name"], part["schedule"]) for part in parts] == [("task_success", None), ("tool_necessity", None)]
    assert [part["weight"] for part in parts] == [0.6, pytest.approx(0.3)]


def test_an_environment_that_answers_otherwise_is_reported(played: Make, gpt: Stub, bob: User) -> None:
    rollout = played()
    Turn.objects.filter(rollout=rollout, number=2).update(
        messages=[{"role": "tool", "content": "17", "tool_call_id": "call_0_0", "name": "calculator"}]
    )
    seen_through(continuation_create(rollout=rollout, user=bob, turn=2, contestant="endpoint:gpt", times=1))
    branch = branches_of(rollout)[0]
    assert not branch.same and branch.messages[2]["content"] == "16"


def test_an_episode_that_is_over_by_now_is_excluded_with_the_reason(played: Make, gpt: Stub, bob: User) -> None:
    """The environment ends the episode at a turn at which it did not end when it was recorded."""
    rollout = played()
    texts = Turn.objects.filter(rollout=rollout, messages__0__content="Let me see.")
    # With no parse error a text ends the episode on this server.
    texts.update(parse_error="")
    run = continuation_create(rollout=rollout, user=bob, turn=4, contestant="endpoint:gpt", times=1)
    supervise(run.pk, run.pool)
    branch = branches_of(rollout)[0]
    assert (branch.outcome, branch.reward, gpt.asked) == ("excluded", None, [])
    assert "over" in " ".join(branch.missing.values())


def test_a_branch_of_a_run_becomes_data(played: Make, gpt: Stub, project: Project, bob: User, client_for: Make) -> None:
    rollout, client = played(), client_for(bob)
    run = seen_through(continuation_create(rollout=rollout, user=bob, turn=3, contestant="endpoint:gpt", times=1))
    branch = branches_of(rollout)[0]
    saved = client.post(
        f"/api/v1/branches/{branch.pk}/save", {"kind": "row", "name": "good"}, content_type="application/json"
    )
    assert saved.status_code == 201, saved.json()
    row = json.loads(Dataset.objects.get(name="good").upload_path.read_text())
    assert row["messages"] == branch.messages and row["tools"][0]["function"]["name"] == "calculator"
    assert row["provenance"] | {"reward": None} == {
        "source": "rewind", "rollout": str(rollout.pk), "turn": 3, "reward": None, "done": True,
    }  # fmt: skip
    Run.objects.filter(pk=run.pk).update(state=RunState.RUNNING)
    early = client.post(
        f"/api/v1/branches/{branch.pk}/save", {"kind": "row", "name": "good"}, content_type="application/json"
    )
    assert early.status_code == 422 and "Wait until the run" in early.json()["message"]
    kept = client.delete(f"/api/v1/branches/{branch.pk}")
    assert kept.status_code == 422 and "goes with its run" in kept.json()["message"]
    refused = client.post(f"/p/joust/rollouts/{rollout.pk}/branches/{branch.pk}/delete/")
    assert refused.status_code == 422 and "goes with its run" in refused.content.decode()
    assert Rollout.objects.filter(pk=branch.pk).exists()


def test_only_the_newest_attempt_counts_as_over(played: Make, gpt: Stub, bob: User, client_for: Make) -> None:
    rollout = played()
    ask(client_for(bob), rollout, contestant="endpoint:gpt", turn=3, times=2)
    run = Run.objects.get(continuation__rollout=rollout)
    over = {"step": 1, "status": "completed", "task": "2 + 3", "started_at": timezone.now(), "seq": 1}
    Rollout.objects.create(run=run, attempt=1, group=0, index=0, **over)
    Rollout.objects.create(run=run, attempt=1, group=0, index=1, **over)
    Run.objects.filter(pk=run.pk).update(state=RunState.RUNNING, attempt=1)
    assert [each.done for each in continuing(rollout)] == [2]
    Run.objects.filter(pk=run.pk).update(attempt=2)
    Rollout.objects.create(run=run, attempt=2, group=0, index=1, **over)
    assert [each.done for each in continuing(rollout)] == [1]


def test_the_page_shows_what_is_running_and_what_came_of_it(
    played: Make, gpt: Stub, bob: User, rita: User, charlie: User, client_for: Make
) -> None:
    rollout = played()
    page, address = f"/p/joust/rollouts/{rollout.pk}/branches/", f"/p/joust/rollouts/{rollout.pk}/branches/continue/"
    form = {"contestant": "endpoint:gpt", "turn": "3", "times": "2", "temperature": ""}
    assert client_for(bob).post(address, form)["Location"] == f"{page}?turn=3"
    run = Run.objects.get(continuation__rollout=rollout)
    assert run.config["rollout"]["temperature"] == 1.0  # the recorded run's
    waiting = client_for(rita).get(page).content.decode()
    assert "Continuing now" in waiting and run.name in waiting and "0 of 2 over" in waiting
    assert 'hx-trigger="live-tick from:document"' in waiting
    seen_through(run)
    shown = client_for(rita).get(page).content.decode()
    branch = branches_of(rollout)[0]
    assert branch.played is not None
    assert "Continuing now" not in shown and "live-tick" not in shown.split('id="branches"')[1][:300]
    assert f"/p/joust/rollouts/{branch.played.pk}/" in shown and "gpt (endpoint)" in shown
    assert "Continue with a model" in client_for(bob).get(page).content.decode()
    assert "Continue with a model" not in shown
    for user, status in ((rita, 403), (charlie, 404), (None, 302)):
        assert client_for(user).post(address, form).status_code == status
    assert client_for(bob).get(address).status_code == 405
    assert Continuation.objects.count() == 1 and not Branch.objects.exists()


def test_the_model_of_the_run_is_the_default_choice(
    played: Make, project: Project, run: Run, bob: User, client_for: Make
) -> None:
    rollout = played()
    page, client = f"/p/joust/rollouts/{rollout.pk}/branches/", client_for(bob)
    assert "no model of its own yet" in client.get(page).content.decode()
    final = Checkpoint.objects.create(
        project=project, run=run, attempt=1, path="model", step=9, bytes=1, final=True, created_at=timezone.now(), seq=1
    )
    assert '<option value="run:first-grpo" selected>' in dense(client.get(page).content.decode())
    RegisteredModel.objects.create(project=project, name="knight", kind="run", checkpoint=final)
    shown = dense(client.get(f"{page}?turn=3").content.decode())
    assert '<option value="model:knight" selected>' in shown and "run:first-grpo" not in shown
    assert 'value="starter"' not in shown and 'value="policy:' not in shown
    assert shown.count('name="turn" min="1" value="3"') == 2


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"contestant": ""}, "contestant"),
        ({"contestant": "nobody"}, "Choose who plays"),
        ({"contestant": "endpoint:none"}, "no endpoint “none”"),
        ({"turn": "9"}, "turns 1 to 4"),
        ({"turn": "x"}, "turn"),
        ({"times": "17"}, "times"),
        ({"temperature": "0"}, "temperature"),
    ],
)
def test_a_wrong_form_says_why_and_makes_nothing(
    form: dict[str, str], message: str, played: Make, gpt: Stub, bob: User, client_for: Make
) -> None:
    whole = {"contestant": "endpoint:gpt", "turn": "1", "times": "1", "temperature": ""} | form
    answer = client_for(bob).post(f"/p/joust/rollouts/{played().pk}/branches/continue/", whole)
    assert answer.status_code == 422 and message in answer.content.decode()
    assert not Continuation.objects.exists() and not Run.objects.filter(kind="evaluate").exists()


def test_the_api_refuses_with_a_sentence(
    played: Make, gpt: Stub, bob: User, rita: User, charlie: User, client_for: Make
) -> None:
    rollout, client = played(), client_for(bob)
    good = {"contestant": "endpoint:gpt", "turn": 1}
    for body in ({}, good | {"times": 17}, good | {"times": 0}, good | {"turn": 0}, good | {"temperature": 6}):
        assert ask(client, rollout, **body).status_code == 422
    assert "Choose who plays" in ask(client, rollout, turn=1, contestant="x").json()["message"]
    for user, status in ((rita, 403), (charlie, 404), (None, 401)):
        assert ask(client_for(user), rollout, **good).status_code == status
    assert not Continuation.objects.exists()


def test_a_reference_means_the_recorded_turns_or_is_refused(
    played: Make, gpt: Stub, project: Project, bob: User
) -> None:
    rollout = played()
    run = continuation_create(rollout=rollout, user=bob, turn=3, contestant="endpoint:gpt", times=1)
    config = JobConfig.model_validate(run.config)
    file = rewind_file(rollout.run_id, rollout.pk, 3)
    assert resolve(project, config).config.evaluate.continue_from == str(file)
    past = read_past(file)
    assert (past.row, len(past.recording.turns), past.recording.reward) == (4, 2, None)
    trains = {"kind": "grpo", "model": {"source": "starter"}, "rollout": {"num_generations": 8, "prompts_per_step": 2}}
    other = JobConfig.model_validate(run.config | trains)
    assert resolve(project, other).config.evaluate.continue_from == ""  # nothing else reads it
    for wrong in (f"rollout:{rollout.pk}@2", f"rollout:{run.pk}@3", "rollout:x@3", f"rollout:{rollout.pk}", str(file)):
        config.evaluate.continue_from = wrong
        with pytest.raises(ConfigError, match="on its page") as refused:
            resolve(project, config)
        assert refused.value.option == "evaluate.continue_from"


def test_a_rollout_of_another_project_is_not_gone_on_from(played: Make, gpt: Stub, bob: User, project: Project) -> None:
    rollout = played()
    run = continuation_create(rollout=rollout, user=bob, turn=3, contestant="endpoint:gpt", times=1)
    other = Project.objects.create(team=project.team, name="Other", slug="other")
    Run.objects.filter(pk=rollout.run_id).update(project=other)
    with pytest.raises(ConfigError, match="gone"):
        resolve(project, JobConfig.model_validate(run.config))


def test_a_clone_of_such_a_run_is_a_run_like_it(played: Make, gpt: Stub, bob: User, project: Project) -> None:
    rollout = played()
    run = continuation_create(rollout=rollout, user=bob, turn=3, contestant="endpoint:gpt", times=1)
    clone = run_create(project=project, user=bob, name="clone", config=JobConfig.model_validate(run.config))
    Run.objects.filter(pk=run.pk).update(state="cancelled")  # else it is claimed first
    seen_through(clone)
    found = Rollout.objects.get(run=clone)
    assert found.turns == 3 and branches_of(rollout) == []  # it is no person's branch
