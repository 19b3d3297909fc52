"""The test-bed and sample pages of a reward spec: who may use them, what they launch, what the run page then says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.working import done
from training.config import JobConfig, RewardComponent
from training.policy.scripted import POLICIES
from webapp.common.pages import PROBES_PER_MINUTE
from webapp.launch import preflight
from webapp.launch.findings import Check
from webapp.launch.models import LaunchCheck
from webapp.launch.play_views import BedForm, SampleForm, best_reward, policy_table
from webapp.people.teams.models import Project, User
from webapp.rewards.models import RewardSpec
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

Clients = Callable[..., Client]
PAGES = ("reward-testbed", "reward-sample")
STAGE_1 = [{"name": "bfcl_stage_1", "weight": 1.0}]


@pytest.fixture
def environment(make_environment: Any, settings: Any) -> Any:
    settings.OUTBOUND_ALLOW = ["127.0.0.1/32"]
    return make_environment(url="http://127.0.0.1:65001")


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the slow checks find; a test may add to it."""
    found: list[Check] = [Check("Model", True, "fits")]
    monkeypatch.setattr(preflight, "_trainer_checks", lambda *asked: iter(found))
    monkeypatch.setattr(preflight, "_check_room", lambda config, environment, room: Check("Environment server", True))
    return found


@pytest.fixture
def spec(make_reward_spec: Any) -> RewardSpec:
    return make_reward_spec(name="tools-spec", version=3, components=STAGE_1)


def _data(place: Any, **over: Any) -> dict[str, Any]:
    base = {"environment": place.reference, "dataset": "", "tasks": 24, "turns": 30, "idempotency_key": "k"}
    return {**base, "model": "starter", "generations": 4, **over}


@pytest.mark.parametrize("page", PAGES)
def test_only_editors_launch(
    page: str,
    project: Project,
    spec: RewardSpec,
    environment: Any,
    trainer: Any,
    client_for: Clients,
    alice: User,
    bob: User,
    rita: User,
    charlie: User,
    make_dataset: Any,
) -> None:
    address, data = reverse(page, args=[project.slug, spec.pk]), _data(environment, dataset=make_dataset().reference)
    for user, status in ((rita, 403), (charlie, 404), (None, 302)):
        assert client_for(user).get(address).status_code == status
        assert client_for(user).post(address, data).status_code == status
    assert client_for(bob).put(address).status_code == 405
    assert Run.objects.count() == 0
    for user in (alice, bob):
        assert "tools-spec@3" in client_for(user).get(address).content.decode()
    answer = client_for(bob).post(address, data)
    run = Run.objects.get()
    assert (answer.status_code, answer.url) == (302, reverse("run-detail", args=[project.slug, run.pk]))  # type: ignore[attr-defined]
    assert run.name == ("test-bed of tools-spec v3-1" if page == "reward-testbed" else "sample of tools-spec v3-1")
    assert client_for(bob).post(address, data).status_code == 302 and Run.objects.count() == 1, "a second click"


def test_a_test_bed_plays_all_policies_on_exactly_the_tasks_asked_for(
    project: Project, spec: RewardSpec, environment: Any, trainer: Any, client_for: Clients, bob: User
) -> None:
    client_for(bob).post(reverse("reward-testbed", args=[project.slug, spec.pk]), _data(environment, tasks=24))
    done(LaunchCheck.objects.get())
    run = Run.objects.get()
    config, resolved = JobConfig.model_validate(run.config), JobConfig.model_validate(run.resolved)
    assert (run.kind, run.state, run.total_steps) == ("sample", RunState.QUEUED, 3)
    assert config.policies == list(POLICIES)
    assert (config.rollout.prompts_per_step, config.rollouts_per_step, config.rollout.max_turns) == (8, 96, 30)
    assert (config.rollout.max_turn_tokens, BedForm(project=project, spec=spec).fields["turns"].initial) == (256, 30)
    assert (config.data.train, config.rewards.spec) == ("", "reward:tools-spec@3")
    assert resolved.rewards.components == [RewardComponent(name="bfcl_stage_1", weight=1.0)]
    for tasks in (1, 13, 17, 256):
        form = BedForm(_data(environment, tasks=tasks), project=project, spec=spec)
        assert form.is_valid(), form.errors
        made = form.config()
        assert made.rollout.prompts_per_step * made.run.max_steps == tasks and made.rollouts_per_step <= 96
    form = SampleForm(_data(environment, tasks=6), project=project, spec=spec)
    assert form.is_valid(), form.errors
    assert (form.config().policies, form.config().rollouts_per_step) == ([], 24)
    limits = form.config().rollout
    assert (limits.max_turn_tokens, limits.max_completion_tokens, limits.max_prompt_tokens) == (256, 4096, 8192)
    assert SampleForm(project=project, spec=spec).fields["turns"].initial == 8


@pytest.mark.parametrize(
    ("over", "status", "text"),
    [
        ({"tasks": 0}, 422, "greater than or equal to 1"),
        ({"turns": "many"}, 422, "Enter a whole number"),
        ({"environment": "environment:other"}, 422, "Select a valid choice"),
        ({"environment": ""}, 422, "This field is required"),
        ({"dataset": "/etc/passwd"}, 422, "Select a valid choice"),
    ],
)
def test_bad_input_is_reported_at_its_field(
    over: dict[str, Any],
    status: int,
    text: str,
    project: Project,
    spec: RewardSpec,
    environment: Any,
    trainer: Any,
    client_for: Clients,
    bob: User,
) -> None:
    answer = client_for(bob).post(reverse("reward-testbed", args=[project.slug, spec.pk]), _data(environment, **over))
    assert answer.status_code == status and text in answer.content.decode()
    assert Run.objects.count() == 0


def test_the_preflight_stops_a_launch_until_it_is_overridden(
    project: Project, spec: RewardSpec, environment: Any, trainer: list[Check], client_for: Clients, bob: User
) -> None:
    trainer.append(Check("Slots", False, "No room at all."))
    address, client = reverse("reward-testbed", args=[project.slug, spec.pk]), client_for(bob)
    part = client.post(f"{address}?check=1", _data(environment), headers={"HX-Request": "true"})
    checked = part.content.decode()
    assert "No room at all." in checked and "<html" not in checked and not part.context["form"].errors
    assert [(item.run, item.state) for item in LaunchCheck.objects.all()] == [(None, "stopped")]
    cache.set(f"probes:{bob.pk}", PROBES_PER_MINUTE)
    late = client.post(f"{address}?check=1", _data(environment)).content.decode()
    assert "Too many checks in one minute" in late and "<html" in late and LaunchCheck.objects.count() == 1
    assert client.post(address, _data(environment)).status_code == 302
    done(LaunchCheck.objects.get(state="open"))
    assert Run.objects.get().state == "draft"
    assert client.post(address, _data(environment, launch_anyway="yes", idempotency_key="2")).status_code == 302
    assert Run.objects.filter(state="queued").count() == 1
    environment.protocol = "agentgym"
    environment.save()
    foreign = client.post(address, _data(environment, idempotency_key="other"))
    assert foreign.status_code == 422 and "does not draw tasks by itself" in foreign.content.decode()


def _played(run: Run, policy: str, reward: float | None, **over: Any) -> Rollout:
    fields = {"attempt": 1, "step": 1, "group": 0, "index": 0, "status": "completed", "turns": 12, "tokens": 288}
    return Rollout.objects.create(
        run=run,
        policy=policy,
        reward=reward,
        parts={} if reward is None else {"bfcl_stage_1": reward},
        seq=Rollout.objects.count() + 1,
        started_at=timezone.now(),
        **(fields | over),
    )


@pytest.fixture
def played(make_run: Any) -> Run:
    """A finished test-bed in which looping paid all there is; its first attempt at the step was begun again."""
    config = JobConfig.model_validate(
        {
            "kind": "sample",
            "sample": {"policies": ["empty", "one_tool", "beg"]},
            "run": {"max_steps": 1},
            "rewards": {"components": STAGE_1},
        }
    )
    run = make_run(name="bed", config=config, state=RunState.SUCCEEDED, attempt=2)
    _played(run, "one_tool", 0.0)
    for policy, reward in (("empty", 0.0), ("one_tool", 2.0), ("one_tool", 1.0), ("beg", 0.3)):
        _played(run, policy, reward, attempt=2, index=Rollout.objects.count())
    _played(run, "beg", None, attempt=2, status="excluded", turns=0, tokens=0, index=9)
    return run


def test_the_table_of_a_test_bed_says_what_was_paid_for_nothing(played: Run, client_for: Clients, rita: User) -> None:
    table = policy_table(played)
    assert table is not None and (table.best, table.why, table.paid) == (2.0, "", ["one_tool"])
    assert [(row.name, row.reward, row.share, row.level, row.rollouts, row.excluded) for row in table.rows] == [
        ("one_tool", 1.5, 75, "bad", 2, 0),
        ("beg", 0.3, 15, "warn", 2, 1),
        ("empty", 0.0, 0, "ok", 1, 0),
    ]
    assert table.rows[0].parts == [("bfcl_stage_1", 1.5)] and table.rows[0].turns == 12
    text = client_for(rita).get(reverse("run-detail", args=[played.project.slug, played.pk])).content.decode()
    assert "This reward pays for doing nothing" in text and "calls one tool without end" in text
    assert 'class="watch-curves" hidden' in text, "no empty box of charts"
    assert "Curves</a>" not in text and "Results</a>" in text and ">Pause<" not in text
    parts = client_for(rita).get(reverse("run-parts", args=[played.project.slug, played.pk])).content.decode()
    assert 'id="testbed" hx-swap-oob="true"' in parts


def test_right_answers_should_be_paid(make_run: Any, client_for: Clients, rita: User) -> None:
    """Half of the best reward is enough; a policy without an answer wrote nothing, which says nothing."""
    components = [{"name": "exact_match", "weight": 1.0}]
    names = ["paraphrase", "other_language", "negate"]
    config = JobConfig.model_validate(
        {"kind": "sample", "sample": {"policies": names}, "rewards": {"components": components}}
    )
    run = make_run(config=config, state=RunState.SUCCEEDED, attempt=1)
    for index, (policy, reward) in enumerate([("paraphrase", 1.0), ("paraphrase", 0.0), ("other_language", 0.0)]):
        _played(run, policy, reward, index=index, tokens=5)
    _played(run, "negate", 0.0, index=3, tokens=5)
    table = policy_table(run)
    assert table is not None and (table.paid, table.refused) == ([], ["other_language"])
    assert {row.name: row.level for row in table.rows} == {
        "paraphrase": "ok",
        "other_language": "refused",
        "negate": "ok",
    }
    text = client_for(rita).get(reverse("run-detail", args=[run.project.slug, run.pk])).content.decode()
    assert "This reward refuses right answers" in text and "other_language: little reward for the right answer" in text
    Rollout.objects.filter(policy="other_language").update(tokens=1)
    table = policy_table(run)
    assert table is not None and table.refused == []


@pytest.mark.parametrize(
    ("components", "reward", "level"),
    [
        ([{"name": "exact_match", "weight": 2.0}], 1.0, "ok"),
        ([{"name": "exact_match", "weight": 2.0}], 0.9, "refused"),
        ([{"name": "toolbench_token_bonus", "weight": 1.0}], 0.5, "ok"),  # without a bound a solved task is 1
        ([{"name": "toolbench_token_bonus", "weight": 1.0}], 0.4, "refused"),
    ],
)
def test_half_of_the_best_reward_is_paid(make_run: Any, components: list[Any], reward: float, level: str) -> None:
    config = JobConfig.model_validate(
        {"kind": "sample", "sample": {"policies": ["paraphrase"]}, "rewards": {"components": components}}
    )
    run = make_run(config=config, attempt=1)
    _played(run, "paraphrase", reward, tokens=2)
    table = policy_table(run)
    assert table is not None and [row.level for row in table.rows] == [level]


def test_a_bonus_without_a_bound_is_seen_by_what_it_pays(make_run: Any) -> None:
    components = [{"name": "toolbench_token_bonus", "weight": 1.0}]
    config = JobConfig.model_validate(
        {"kind": "sample", "sample": {"policies": ["repeat", "empty"]}, "rewards": {"components": components}}
    )
    run = make_run(config=config, attempt=1)
    _played(run, "repeat", 29.4)
    _played(run, "empty", 0.0, index=1)
    table = policy_table(run)
    assert table is not None and table.best is None and "always earns more" in table.why
    assert [(row.name, row.share, row.level) for row in table.rows] == [("repeat", 100, "bad"), ("empty", 0, "ok")]
    Rollout.objects.update(reward=0.0)
    table = policy_table(run)
    assert table is not None and [row.share for row in table.rows] == [0, 0]


def test_rollouts_and_runs_of_the_kind_are_named(
    played: Run, make_run: Any, client_for: Clients, rita: User, project: Project
) -> None:
    rollout = Rollout.objects.filter(run=played, policy="one_tool").latest("seq")
    client = client_for(rita)
    assert "one_tool" in client.get(reverse("rollout-detail", args=[project.slug, rollout.pk])).content.decode()
    make_run(name="trained")
    listed = client.get(reverse("run-list", args=[project.slug]), {"kind": "sample"}).content.decode()
    assert ">bed<" in listed and ">trained<" not in listed
    found = client.get(f"/api/v1/projects/{project.slug}/runs", {"kind": "sample"}).json()
    assert [item["name"] for item in found["items"]] == ["bed"]
    assert policy_table(Run.objects.get(name="trained")) is None


@pytest.mark.parametrize(
    ("components", "best", "why"),
    [
        ([{"name": "bfcl_stage_1", "weight": 0.5}, {"name": "task_success", "weight": 1}], 2.0, ""),
        ([{"name": "bfcl_stage_1", "weight": 1, "scale": [0, 2]}], 1.0, ""),
        ([{"name": "toolbench_token_bonus", "weight": 1}], None, "no upper bound"),
        ([{"name": "toolbench_token_bonus", "weight": 1, "clip": [0, 3]}], 3.0, ""),
        ([{"name": "toolbench_finish", "weight": 1, "params": {"finish_bonus": 9}}], None, "were changed"),
        ([{"name": "toolbench_finish", "weight": 2, "params": {"finish_bonus": 0.5}}], 1.0, ""),
    ],
)
def test_the_best_reward_follows_from_the_bounds(components: list[Any], best: float | None, why: str) -> None:
    found, reason = best_reward([RewardComponent.model_validate(item) for item in components])
    assert found == best and (why in reason if why else reason == "")
