"""Launching a sweep: all of its runs or none, once, each checked as any other; the fold of the form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.markup import dense
from tests.webapp.launch.test_checked import Trainer, checked, data_of
from training.config import Axis, JobConfig
from training.errors import ConfigError
from webapp.launch import preflight
from webapp.launch.findings import Check
from webapp.launch.models import LaunchCheck, Sweep
from webapp.launch.sweeps import plan_of, run_names, sweep_create, sweeps_of
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.removal.services import remove

pytestmark = pytest.mark.django_db
Clients = Callable[..., Client]
RATE, SEED = "optim.learning_rate", "run.seed"
AXES = [Axis(RATE, ["1e-5", "3e-5"]), Axis(SEED, ["1", "2"])]


@pytest.fixture
def config(make_dataset: Any, make_environment: Any, settings: Any) -> JobConfig:
    settings.OUTBOUND_ALLOW = ["127.0.0.1/32"]
    environment = make_environment(url="http://127.0.0.1:65001")
    return JobConfig.model_validate(
        {"data": {"train": make_dataset().reference}, "environment": {"name": environment.reference}}
    )


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    made = Trainer()
    monkeypatch.setattr(preflight, "_trainer_checks", made)
    monkeypatch.setattr(preflight, "_check_room", lambda config, environment, room: Check("Environment server", True))
    return made


def of_fold(*axes: tuple[str, str], mode: str = "product") -> dict[str, str]:
    """What a browser sends of the fold."""
    found = {"sweep-mode": mode}
    for number, (option, values) in enumerate(axes):
        found |= {f"sweep-{number}-option": option, f"sweep-{number}-values": values}
    return found


def test_all_runs_are_made_with_their_values_and_checked(
    project: Project, bob: User, config: JobConfig, trainer: Trainer
) -> None:
    sweep = sweep_create(project=project, user=bob, name=" rates ", config=config, axes=AXES)
    assert (sweep.name, sweep.mode, sweep.created_by) == ("rates", "product", bob)
    assert sweep.axes == [{"option": RATE, "values": [1e-5, 3e-5]}, {"option": SEED, "values": [1, 2]}]
    assert sweep.base == {RATE: 1e-5} and sweep.points[3] == {RATE: 3e-5, SEED: 2}
    rows = list(sweep.runs.select_related("run"))
    assert [row.run.name for row in rows] == [
        "lr-1e-5.seed-1.rates", "lr-1e-5.seed-2.rates", "lr-3e-5.seed-1.rates", "lr-3e-5.seed-2.rates",
    ]  # fmt: skip
    assert [(r.run.config["optim"]["learning_rate"], r.run.config["run"]["seed"]) for r in rows][1:3] == [
        (1e-5, 2), (3e-5, 1),
    ]  # fmt: skip
    assert {row.run.state for row in rows} == {"draft"} and LaunchCheck.objects.filter(state="open").count() == 4
    assert [checked(row.run).state for row in rows] == ["queued"] * 4


def test_one_key_is_one_sweep(project: Project, bob: User, config: JobConfig) -> None:
    first = sweep_create(project=project, user=bob, name="a", config=config, axes=AXES, idempotency_key="k")
    again = sweep_create(project=project, user=bob, name="a", config=config, axes=AXES, idempotency_key="k")
    assert first == again and Run.objects.count() == 4
    for name in ("b", "c"):
        sweep_create(project=project, user=bob, name=name, config=config, axes=AXES[1:], idempotency_key="")
    assert Sweep.objects.count() == 3, "an empty key is none"


def test_a_key_of_another_project_is_another_sweep(
    project: Project, bob: User, config: JobConfig, charlie: User
) -> None:
    elsewhere = Project.objects.get(slug="elsewhere")
    theirs = Sweep.objects.create(
        project=elsewhere, name="a", config={}, axes=[], base={}, points=[], idempotency_key="k", created_by=charlie
    )
    mine = sweep_create(project=project, user=bob, name="a", config=config, axes=AXES, idempotency_key="k")
    assert mine != theirs and mine.project == project and mine.runs.count() == 4


def test_of_a_sweep_that_cannot_be_launched_whole_nothing_is(
    project: Project, bob: User, config: JobConfig, make_run: Callable[..., Run]
) -> None:
    make_run(name="lr-3e-5.seed-2.rates")
    with pytest.raises(ConfigError) as taken:
        sweep_create(project=project, user=bob, name="rates", config=config, axes=AXES)
    assert taken.value.option == "name" and Run.objects.count() == 1 and not Sweep.objects.exists()
    axes = [Axis(SEED, [1, 2]), Axis("rewards.spec", ["", "reward:gone@1"])]
    with pytest.raises(ConfigError) as gone:
        sweep_create(project=project, user=bob, name="rates", config=config, axes=axes)
    assert gone.value.option == "axes.1.values" and Run.objects.count() == 1 and not LaunchCheck.objects.exists()


def test_a_name_is_taken_once(project: Project, bob: User, config: JobConfig) -> None:
    sweep_create(project=project, user=bob, name="rates", config=config, axes=AXES)
    with pytest.raises(ConfigError) as raised:
        sweep_create(project=project, user=bob, name="rates", config=config, axes=[Axis(SEED, [7, 8])])
    assert raised.value.option == "name" and Sweep.objects.count() == 1
    with pytest.raises(ValidationError):
        sweep_create(project=project, user=bob, name="?", config=config, axes=AXES)


def test_the_name_of_a_sweep_whose_runs_were_all_deleted_is_free_again(
    project: Project, elsewhere: Project, bob: User, config: JobConfig
) -> None:
    old = sweep_create(project=project, user=bob, name="rates", config=config, axes=[Axis(SEED, [1, 2])])
    first, second = (row.run for row in old.runs.select_related("run__project"))
    remove(first)
    with pytest.raises(ConfigError, match="a sweep named 'rates' already"):
        sweep_create(project=project, user=bob, name="rates", config=config, axes=[Axis(SEED, [7, 8])])
    remove(second)
    assert not sweeps_of(project).exists()
    empty = {"mode": "product", "config": {}, "axes": [], "base": {}, "points": []}
    others = {
        Sweep.objects.create(project=where, name=name, **empty)
        for where, name in ((project, "other"), (elsewhere, "rates"))
    }
    new = sweep_create(project=project, user=bob, name="rates", config=config, axes=[Axis(SEED, [7, 8])])
    assert list(sweeps_of(project)) == [new] and set(Sweep.objects.all()) == {new, *others}


@pytest.mark.parametrize("name", ["n" * 80, "训练 مهمة"])
def test_names_of_runs_are_valid_and_differ_at_their_beginning(name: str) -> None:
    values = [
        {"rewards.spec": spec, "data.train": "dataset:很长的名字" + "x" * 40 + "@2", SEED: 1}
        for spec in ("", "reward:a b@2")
    ]
    others = f"data-{'x' * 22}-2.seed-1."  # the last 24 characters of the dataset
    assert run_names(name, values) == [
        f"reward-none.{others}{name[:31]}", f"reward-a-b-2.{others}{name[:30]}",
    ]  # fmt: skip


def test_values_that_are_cut_alike_still_have_names_of_their_own() -> None:
    long = "reward:" + "a" * 60
    names = run_names("x", [{"rewards.spec": f"{end}{long}"} for end in "bcd"])
    assert names == [f"{number}reward-{'a' * 24}.x" for number in ("", "2.", "3.")]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"model.source": "/data/a:b/org:c"}, "model-org-c.x"),
        ({"model.source": "model:org/c"}, "model-c.x"),
        ({"environment.name": "environment:maze"}, "env-maze.x"),
        ({"grpo.loss_type": "?"}, "loss_type-none.x"),
        (
            {"data.train": "a" * 30, "environment.name": "b" * 30, "model.source": "c"},
            f"data-{'a' * 24}.env-{'b' * 24}.m.x",  # 60 characters of what differs
        ),
    ],
)
def test_a_name_has_the_end_of_each_value(values: dict[str, str], name: str) -> None:
    assert run_names("x", [values]) == [name]


def test_the_plan_counts_runs_steps_and_bytes(project: Project, config: JobConfig) -> None:
    plan = plan_of(project, config, [*AXES, Axis("run.max_steps", [10, 20])], "product")
    assert (len(plan.points), plan.steps) == (8, 4 * 10 + 4 * 20) and plan.bytes and plan.bytes > 0
    assert plan.words.startswith("Learning rate (2) × Seed (2) × Steps (2) = 8 runs · 120 steps in all · about ")
    single = plan_of(project, config, [Axis(RATE, [1e-5, 3e-5])], "single")
    assert single.counts == "3 runs: the setting of the form, and one for each change"


def test_an_evaluation_makes_no_steps(project: Project, config: JobConfig) -> None:
    plan = plan_of(project, config, [Axis("kind", ["evaluate", "grpo"]), Axis("run.max_steps", [10, 20])], "product")
    assert plan.steps == 10 + 20
    played = plan_of(project, config.model_copy(update={"kind": "evaluate"}), [Axis(SEED, [1, 2])], "product")
    assert played.steps == 0 and "step" not in played.words


@pytest.mark.parametrize("sources", [["org/nameless", "starter"], ["starter", "org/nameless"]])
def test_where_the_size_of_one_model_is_not_known_no_sum_is_shown(
    project: Project, config: JobConfig, sources: list[str]
) -> None:
    plan = plan_of(project, config, [Axis("model.source", sources)], "product")
    assert plan.bytes is None and plan.words.endswith("bytes on the disk: not known, as the size of the model is not")


def test_the_form_launches_a_sweep_and_opens_its_page(
    project: Project, bob: User, config: JobConfig, client_for: Clients
) -> None:
    client, new = client_for(bob), reverse("sweep-new", args=[project.slug])
    data = data_of(project, config, "rates") | of_fold((RATE, "1e-5,\n3e-5"), (SEED, "1, 2"))
    answer = client.post(new, data)
    sweep = Sweep.objects.get()
    assert answer["Location"] == reverse("sweep-detail", args=[project.slug, sweep.pk]) and sweep.runs.count() == 4
    assert client.post(new, data)["Location"] == answer["Location"]
    assert Sweep.objects.count() == 1 and Run.objects.count() == 4
    assert [check.anyway for check in LaunchCheck.objects.all()] == [False] * 4
    taken = client.post(new, data | {"idempotency_key": "another"})
    assert taken.status_code == 422 and Run.objects.count() == 4
    assert taken.context["form"].errors["name"] == ["there is a sweep named 'rates' already"]
    page = dense(client.get(answer["Location"]).content.decode())
    assert "Still running: 0 of 4 runs have ended." in page and "not ended" in page


@pytest.mark.parametrize(
    ("fold", "sentence"),
    [
        ({}, "A sweep varies 1 to 4 options."),
        (of_fold(("", " "), (SEED, "1")), "Give at least two values"),
        (of_fold(("", "1, 2")), "Choose the option that these values are of."),
        (of_fold((SEED, "")), "An option takes 1 to 8 values."),
        (of_fold((RATE, "1e-5")), "Give at least two values"),
        (of_fold((SEED, "1,2"), ("optim.lr", "1")), "optim.lr is no option with one value."),
        (of_fold((RATE, "1e-5, x")), "x is no value of optim.learning_rate: It must be a number."),
        (of_fold((RATE, "1e-5, 1e-5")), "1e-5 is listed twice."),
        (of_fold((SEED, "1,2,3,4,5,6,7,8,9")), "An option takes 1 to 8 values."),
    ],
)
def test_what_cannot_be_a_sweep_is_said_in_the_fold(
    project: Project, bob: User, config: JobConfig, client_for: Clients, fold: dict[str, str], sentence: str
) -> None:
    answer = client_for(bob).post(reverse("sweep-new", args=[project.slug]), data_of(project, config) | fold)
    page = dense(answer.content.decode())
    assert answer.status_code == 422 and sentence in page and 'id="sweep-fold" open' in page
    assert not Run.objects.exists() and not Sweep.objects.exists()


def test_the_plan_is_shown_while_it_is_written(
    project: Project, bob: User, config: JobConfig, client_for: Clients
) -> None:
    client, address = client_for(bob), reverse("sweep-plan", args=[project.slug])
    data = data_of(project, config)
    shown = dense(client.post(address, data | of_fold((RATE, "1e-5, 3e-5, 1e-4"), (SEED, "1,2"))).content.decode())
    assert "Learning rate (3) × Seed (2) = 6 runs" in shown and "Launch 6 runs" in shown and "now 1e-6" in shown
    wrong = dense(client.post(address, data | of_fold((RATE, "-1,2"))).content.decode())
    assert "-1 is no value of optim.learning_rate: It must be at least 0." in wrong and "disabled" in wrong
    empty = dense(client.post(address, data).content.decode())
    assert "Launch the sweep" in empty and "disabled" not in empty and "A sweep varies" not in empty
    gone = client.post(address, data | {"data.train": "dataset:gone@1"} | of_fold((SEED, "1,2")))
    assert gone.context["sweep"].general == "data.train: there is no dataset “gone@1” in this project."
    broken = dense(client.post(address, data | {"run.max_steps": "x"} | of_fold((SEED, "1,2"))).content.decode())
    assert "Some options of the form need a change first." in broken
    assert not Run.objects.exists()


def test_the_fold_names_the_values_that_there_are(
    project: Project, bob: User, config: JobConfig, client_for: Clients, make_reward_spec: Any
) -> None:
    specs = [make_reward_spec(name=f"spec-{number:02}") for number in range(14)]
    client, address, data = client_for(bob), reverse("sweep-plan", args=[project.slug]), data_of(project, config)
    shown = dense(client.post(address, data | of_fold(("rewards.spec", "shaped"))).content.decode())
    assert specs[0].reference in shown and specs[11].reference in shown and specs[12].reference not in shown
    assert "and 2 more" in shown and "Give at least two values" in shown
    losses = dense(client.post(address, data | of_fold(("grpo.loss_type", "dapo, x"))).content.decode())
    assert "<code>dr_grpo</code>" in losses and "x is no value of grpo.loss_type" in losses
    assert "<code>" not in client.post(address, data | of_fold((SEED, "1,2"))).content.decode()


def test_a_problem_is_shown_at_its_row(project: Project, bob: User, config: JobConfig, client_for: Clients) -> None:
    data = data_of(project, config) | of_fold(("", ""), (SEED, "1,2"), (RATE, "x"))
    for name in ("sweep-plan", "sweep-new"):
        part = client_for(bob).post(reverse(name, args=[project.slug]), data).context["sweep"]
        assert [row.problem for row in part.rows] == [
            "", "", "x is no value of optim.learning_rate: It must be a number.", "",
        ]  # fmt: skip
        assert part.general == "" and [row.now for row in part.rows] == ["", "42", "1e-6", ""]


def test_the_form_launches_one_change_at_a_time_in_its_class_and_past_soft_problems(
    project: Project, alice: User, config: JobConfig, client_for: Clients
) -> None:
    data = data_of(project, config, "rates", launch_anyway="yes", priority="low") | of_fold(
        (SEED, "1, 2"), mode="single"
    )
    assert client_for(alice).post(reverse("sweep-new", args=[project.slug]), data).status_code == 302
    sweep = Sweep.objects.get()
    assert (sweep.mode, sweep.points) == ("single", [{SEED: 1}, {SEED: 2}])
    assert [(row.run.priority, row.run.launch_checks.get().anyway) for row in sweep.runs.all()] == [("low", True)] * 2


def test_characters_that_cannot_be_stored_are_no_fault(
    project: Project, bob: User, config: JobConfig, client_for: Clients
) -> None:
    data = data_of(project, config) | of_fold(("run.seed\x00", "1,\x002"))
    answer = client_for(bob).post(reverse("sweep-new", args=[project.slug]), data)
    assert answer.status_code == 302 and Sweep.objects.get().points == [{SEED: 1}, {SEED: 2}]


def test_a_run_that_continues_another_is_no_sweep(
    project: Project, bob: User, config: JobConfig, client_for: Clients, make_run: Callable[..., Run]
) -> None:
    run = make_run(name="draft", config=config)
    kept = Checkpoint.objects.create(
        project=project, run=run, attempt=1, step=5, path="1/checkpoint-5", bytes=1, seq=1, created_at=timezone.now()
    )
    for begun in ({"draft": run.pk}, {"checkpoint": kept.pk}):
        data = data_of(project, config) | begun | of_fold((SEED, "1,2"))
        answer = client_for(bob).post(reverse("sweep-new", args=[project.slug]), data)
        assert answer.status_code == 422 and not Sweep.objects.exists()
        assert answer.context["sweep"].general == ("A run that continues another one, or a draft, cannot be a sweep.")


def test_viewers_see_the_fold_and_cannot_launch(
    project: Project, rita: User, config: JobConfig, client_for: Clients
) -> None:
    page = client_for(rita).get(reverse("run-new", args=[project.slug])).content.decode()
    assert 'id="sweep-options"' in page and "sweep-new" not in page and reverse("sweep-new", args=["joust"]) not in page
    for name in ("sweep-new", "sweep-plan"):
        assert client_for(rita).post(reverse(name, args=[project.slug]), of_fold((SEED, "1,2"))).status_code == 403


def test_runs_of_a_sweep_are_marked_and_found_in_the_list(
    project: Project, bob: User, config: JobConfig, client_for: Clients, make_run: Callable[..., Run]
) -> None:
    sweep = sweep_create(project=project, user=bob, name="rates", config=config, axes=AXES)
    make_run(name="alone")
    client, address = client_for(bob), reverse("run-list", args=[project.slug])
    page = client.get(address).content.decode()
    assert page.count(f'href="{reverse("sweep-detail", args=[project.slug, sweep.pk])}"') == 4 and "alone" in page
    of_sweep = client.get(address, {"sweep": str(sweep.pk)}).content.decode()
    assert "lr-3e-5.seed-2.rates" in of_sweep and ">alone<" not in of_sweep
    assert "No run matches" in client.get(address, {"sweep": "x"}).content.decode()
    overview = client.get(reverse("project-page", args=[project.slug])).content.decode()
    assert reverse("sweep-detail", args=[project.slug, sweep.pk]) in overview


def test_a_sweep_stays_when_a_run_goes_and_goes_with_its_project(
    project: Project, bob: User, config: JobConfig
) -> None:
    sweep = sweep_create(project=project, user=bob, name="rates", config=config, axes=AXES)
    runs = [row.run for row in sweep.runs.select_related("run__project")]
    remove(runs[0])
    from tests.working import done
    from webapp.runs.removal.models import Removal

    done(Removal.objects.get())
    assert sweep.runs.count() == 3
    Run.objects.filter(project=project).update(state="cancelled")
    remove(project)
    done(Removal.objects.exclude(state="done").get())
    assert not Sweep.objects.exists() and not Project.all_objects.exists()
