"""The page of a model: where it comes from and how good it is, as runs recorded it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.urls import reverse

from tests.markup import dense
from tests.webapp.results.conftest import COMMIT, Past
from training.config import JobConfig
from webapp.evaluation.comparison.boards import boards
from webapp.launch.preflight import preflight
from webapp.people.teams.models import Project, User
from webapp.results.lineage import children, lineage, origins_of, scores
from webapp.results.views import reference_of
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.runs.registry.selectors import Weights, weights_of_run

pytestmark = pytest.mark.django_db
PLAYED = {"environment": {"name": "environment:tools"}}


def _page(client: Client, model: RegisteredModel, **query: str) -> str:
    answer = client.get(f"/p/joust/models/{model.pk}/", query)
    assert answer.status_code == 200
    return html.unescape(dense(answer.content.decode()))


def test_the_lineage_names_each_run_with_what_it_was_trained_on(past: Past) -> None:
    nodes = lineage(past.model, origins_of(past.model))
    assert [(node.kind, node.title, node.about) for node in nodes] == [
        ("base", "Qwen/Qwen3-0.6B", f"Hugging Face, revision {COMMIT[:12]}"),
        ("run", "warm-up", "SFT · step 40 of 40"),
        ("run", "first-grpo", "GRPO · step 60 of 60"),
        ("model", "tool caller", "step 60 · final"),
    ]
    assert [tuple(fact) for fact in nodes[1].facts] == [("Dataset", "chats@1", f"/p/joust/datasets/{past.chats.pk}/")]
    assert [tuple(fact) for fact in nodes[2].facts] == [
        ("Dataset", "arithmetic@3", f"/p/joust/datasets/{past.tasks.pk}/"),
        ("Reward spec", "tool-calling@2", f"/p/joust/rewards/{past.spec.pk}/"),
        ("Environment", "tools 1.4.2", f"/p/joust/environments/{past.place.pk}/"),
    ]
    assert nodes[2].url == f"/p/joust/runs/{past.grpo.pk}/"


def test_versions_that_a_config_left_open_are_those_that_it_meant(past: Past, make_dataset: Any) -> None:
    """A newer version of the dataset and of the spec came after the run; the lineage stays."""
    make_dataset(name="arithmetic", version=4)
    config = past.grpo.config
    config["data"]["train"], config["rewards"]["spec"] = "dataset:arithmetic", "reward:tool-calling"
    Run.objects.filter(pk=past.grpo.pk).update(config=config)
    past.model.refresh_from_db()
    type(past.spec).objects.create(
        project=past.model.project, name="tool-calling", version=3, components=past.spec.components[:1]
    )
    texts = [fact.text for fact in lineage(past.model, origins_of(past.model))[2].facts]
    assert texts == ["arithmetic@3", "tool-calling@2", "tools 1.4.2"]


def test_a_name_that_means_another_run_today_leads_nowhere_new(past: Past, trained: Any) -> None:
    """The config says run:warm-up; that run's name is free again and another has it now."""
    Run.objects.filter(pk=past.warm.pk).update(name="older")
    trained("warm-up", {"kind": "sft"}, {})
    titles = [node.title for node in lineage(past.model, origins_of(past.model))]
    assert titles == ["Qwen/Qwen3-0.6B", "older", "first-grpo", "tool caller"]


def test_what_was_deleted_is_not_made_up(past: Past) -> None:
    past.warm.delete()
    past.tasks.delete()
    past.model.refresh_from_db()
    nodes = lineage(past.model, origins_of(past.model))
    assert [node.title for node in nodes] == ["not recorded", "first-grpo", "tool caller"]
    assert tuple(nodes[1].facts[0]) == ("Dataset", "arithmetic@3", "")


def test_a_run_that_continued_with_changes_follows_its_parent(
    past: Past, trained: Any, saved: Any, project: Any
) -> None:
    kept = saved(past.grpo, 30, final=False)
    later = trained(
        "resumed",
        {"model": {"source": "run:warm-up"}, "data": {"train": "dataset:arithmetic@3"}},
        {"data.train": str(past.tasks.rows_path)},
        parent=past.grpo,
        resume_checkpoint=kept,
        resume_step=30,
        step=90,
    )
    made = RegisteredModel.objects.create(
        project=project, name="longer", kind=ModelKind.RUN, checkpoint=saved(later, 90)
    )
    nodes = lineage(made, origins_of(made))
    assert [(node.title, node.about.split(" · ")[1]) for node in nodes[1:4]] == [
        ("warm-up", "step 40 of 40"),
        ("first-grpo", "step 30 of 60"),
        ("resumed", "step 90 of 100"),
    ]
    point = RegisteredModel.objects.create(project=project, name="half", kind=ModelKind.RUN, checkpoint=kept)
    assert [node.title for node in children(point).nodes] == ["resumed"]
    assert children(past.model).nodes == []


def test_what_was_trained_from_a_model(past: Past, trained: Any, saved: Any, project: Project) -> None:
    warm = RegisteredModel.objects.create(
        project=project, name="warm", kind=ModelKind.RUN, checkpoint=Checkpoint.objects.get(run=past.warm)
    )
    waiting = trained("waiting", {"model": {"source": "model:warm"}}, {}, state="queued", started_at=None)
    Run.objects.filter(pk=waiting.pk).update(resolved={})
    trained("stranger", {"model": {"source": "model:other"}}, {"model.source": "/elsewhere/runs/x/1/model"})
    trained("played", {"kind": "evaluate", "model": {"source": "model:warm"}}, {"model.source": str(warm.folder)})
    assert sorted(node.title for node in children(warm).nodes) == ["first-grpo", "waiting"]
    for number in range(7):
        trained(f"more-{number}", {"model": {"source": "model:warm"}}, {"model.source": str(warm.folder)})
    found = children(warm)
    assert (len(found.nodes), found.more) == (6, 3)


def test_scores_are_those_of_these_weights_and_are_compared_with_the_base(
    past: Past, evaluation: Callable[..., Run], client_for: Any, bob: User
) -> None:
    tries = {task: [1.0, 1.0] if task < 3 else [1.0, 0.0] for task in range(4)}
    ours = evaluation("eval-ours", tries, model={"source": "model:tool caller"})
    base = evaluation("eval-base", {task: [0.0, 1.0] for task in range(4)}, model={"source": "run:warm-up"})
    root = evaluation("eval-root", {task: [0.0, 0.0] for task in range(4)}, model={"source": "Qwen/Qwen3-0.6B"})
    other = evaluation("eval-other", tries, model={"source": "model:tool caller"})
    warm = Checkpoint.objects.get(run=past.warm)
    for run, source in ((ours, past.model.folder), (base, warm.folder), (other, "/gone/runs/aa/1/model")):
        run.resolved["model"]["source"] = str(source)
        run.save(update_fields=["resolved"])
    page = _page(client_for(bob), past.model)
    assert "eval-ours" in page and "eval-other" not in page and "eval-base" not in page
    assert "87.5%" in page and "4 × 2" in page
    pair = re.search(r'href="([^"]+)">(?:<svg(?:(?!</svg>).)*</svg>)?\s*Compare with its base', page)
    everything = re.search(r'href="([^"]+)">\s*Compare all', page)
    assert pair and everything
    assert parse_qs(urlsplit(pair[1]).query)["c"] == [str(base.pk), str(ours.pk)]
    assert parse_qs(urlsplit(everything[1]).query)["c"] == [str(root.pk), str(base.pk), str(ours.pk)]
    assert client_for(bob).get(pair[1]).status_code == 200


def test_without_an_evaluation_of_its_base_there_is_a_way_to_it(
    past: Past, evaluation: Callable[..., Run], client_for: Any, bob: User, rita: User
) -> None:
    ours = evaluation("eval-ours", {task: [1.0] for task in range(4)})
    ours.resolved["model"]["source"] = str(past.model.folder)
    ours.save(update_fields=["resolved"])
    RegisteredModel.objects.create(
        project=past.model.project, name="warm", kind=ModelKind.RUN, checkpoint=Checkpoint.objects.get(run=past.warm)
    )
    page = _page(client_for(bob), past.model)
    link = re.search(r'href="([^"]+)">\s*Evaluate its base', page)
    assert link and parse_qs(urlsplit(link[1]).query) == {
        "from": [str(ours.pk)], "kind": ["evaluate"], "model": ["model:warm"]
    }  # fmt: skip
    assert client_for(bob).get(link[1]).status_code == 200
    assert "Evaluate its base" not in _page(client_for(rita), past.model)


def test_weights_are_named_by_a_model_of_the_same_project(project: Project, charlie: User) -> None:
    weights = Weights(ModelKind.HUB, "Qwen/Qwen3-0.6B", COMMIT)
    facts = {"kind": ModelKind.HUB, "source": weights.name, "revision": COMMIT}
    RegisteredModel.objects.create(project=Project.objects.get(slug="elsewhere"), name="theirs", **facts)
    assert reference_of(project, weights) == "", "no name of ours says this revision"
    RegisteredModel.objects.create(project=project, name="ours", **facts)
    assert reference_of(project, weights) == "model:ours"


def test_a_policy_or_endpoint_that_played_is_no_score_of_the_starter(
    project: Project, evaluation: Callable[..., Run]
) -> None:
    evaluation("rule", {0: [1.0]}, evaluate={"policy": "empty"})
    asked = evaluation("asked", {0: [1.0]}, endpoint={"url": "http://127.0.0.1:1/v1", "model": "m"})
    starter = evaluation("starter", {0: [1.0]})
    assert weights_of_run(asked) is None
    model = RegisteredModel.objects.create(project=project, name="tiny", kind=ModelKind.STARTER)
    assert [score.run.pk for score in scores(model, origins_of(model))] == [starter.pk]


def test_the_headline_is_of_tasks_that_it_was_not_trained_on(
    past: Past, evaluation: Callable[..., Run], client_for: Any, bob: User
) -> None:
    unseen = evaluation("unseen", {task: [1.0, 0.0] for task in range(4)})
    seen = evaluation("seen", {task: [1.0, 1.0] for task in range(3)}, dataset=past.tasks)
    for run in (unseen, seen):
        run.resolved["model"]["source"] = str(past.model.folder)
        run.save(update_fields=["resolved"])
    found = client_for(bob).get(f"/api/v1/models/{past.model.pk}").json()["scores"]
    assert [(score["name"], score["trained_on"]) for score in found] == [("seen", True), ("unseen", False)]
    page = _page(client_for(bob), past.model)
    assert re.search(r'class="glance-figure">\s*50%', page) and page.count("trained on") == 2  # tag and its title
    assert page.count("12 of 12 tasks are in arithmetic@3, which it learned from") == 1


@pytest.mark.parametrize(
    ("held_out", "played", "reported"), [(0.25, 0.25, False), (0.25, 0.5, True), (0.0, 0.25, True)]
)
def test_rows_that_were_held_out_were_not_trained_on(
    past: Past, evaluation: Callable[..., Run], held_out: float, played: float, reported: bool
) -> None:
    past.grpo.resolved = (past.grpo.resolved or past.grpo.config) | {"evaluate": {"every": 5, "share": held_out}}
    past.grpo.save(update_fields=["resolved"])
    run = evaluation("seen", {0: [1.0]}, dataset=past.tasks, evaluate={"share": played})
    run.resolved["model"]["source"] = str(past.model.folder)
    run.save(update_fields=["resolved"])
    (score,) = scores(past.model, origins_of(past.model))
    assert score.trained_on == reported


def test_the_page_of_the_run_calls_nothing_held_out_that_it_learned_from(
    past: Past, evaluation: Callable[..., Run], client_for: Any, bob: User
) -> None:
    """Its own tasks were once shown as held out."""
    address = reverse("run-detail", args=[past.grpo.project.slug, past.grpo.pk])
    seen = evaluation("seen", {task: [1.0] for task in range(3)}, dataset=past.tasks)
    seen.resolved["model"]["source"] = str(past.model.folder)
    seen.save(update_fields=["resolved"])
    page = client_for(bob).get(address).content.decode()
    held = _held_out(page)
    assert "Success on 12 of 12 tasks that it learned from" in held and "says little about other tasks" in held
    assert "12 of 12 tasks are in arithmetic@3, which it learned from" in held
    assert "Held-out success" not in held and "evaluate it on others" in page
    unseen = evaluation("unseen", {task: [1.0, 0.0] for task in range(4)})
    unseen.resolved["model"]["source"] = str(past.model.folder)
    unseen.save(update_fields=["resolved"])
    held = _held_out(client_for(bob).get(address).content.decode())
    assert "Held-out success" in held and "50%" in held and "learned from" not in held


def _held_out(page: str) -> str:
    """What the run's page says of its model on tasks that it may not have learned from."""
    found = re.search(r'id="ended-held-out".*?(?=id="ended-)', page, re.S)
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    ("model", "data", "share", "who"),
    [
        ("model:tool caller", "tasks", 0.0, "12 of 12 tasks are in arithmetic@3"),
        ("run:first-grpo", "tasks", 0.0, "12 of 12 tasks are in arithmetic@3"),
        (
            "run:first-grpo",
            "chats",
            0.0,
            "3 of 3 tasks are in chats@1",
        ),  # what its base learned from, it has learned too
        ("run:first-grpo", "other", 0.0, ""),
        ("run:warm-up", "tasks", 0.0, ""),
        ("starter", "tasks", 0.0, ""),
    ],
)
def test_an_evaluation_on_what_the_model_learned_from_is_remarked_before_its_launch(
    past: Past, project: Project, make_dataset: Any, model: str, data: str, share: float, who: str
) -> None:
    data_of = {"tasks": past.tasks, "chats": past.chats}
    dataset = data_of.get(data) or make_dataset(name="other")
    options = {"kind": "evaluate", "model": {"source": model}, "data": {"train": dataset.reference}} | PLAYED
    outcome = preflight(project, JobConfig.model_validate(options), full=False)
    found = [check for check in outcome.checks if check.title == "Tasks"]
    assert [(check.level, check.path, check.message.partition(", which it learned from: ")[0]) for check in found] == (
        [("remark", "data.train", who)] if who else []
    )
    assert outcome.problems is False


def test_rows_that_the_model_held_out_are_not_remarked(past: Past, project: Project) -> None:
    past.grpo.resolved["evaluate"] |= {"every": 5, "share": 0.25}
    past.grpo.save(update_fields=["resolved"])
    options = {
        "kind": "evaluate",
        "model": {"source": "run:first-grpo"},
        "data": {"train": past.tasks.reference},
    } | PLAYED
    for share, reported in ((0.25, False), (0.5, True), (0.0, True)):
        config = JobConfig.model_validate(options | {"evaluate": {"share": share}})
        checks = preflight(project, config, full=False).checks
        assert any(check.title == "Tasks" and not check.ok for check in checks) is reported, share


def test_an_empty_model_says_what_to_do(project: Project, client_for: Any, bob: User, rita: User) -> None:
    model = RegisteredModel.objects.create(
        project=project, name="qwen", kind=ModelKind.HUB, source="a/b", revision="v1"
    )
    page = _page(client_for(bob), model)
    assert "Not evaluated yet" in page and "?kind=evaluate&model=model%3Aqwen" in page
    assert "fetched when it is used" in page and "/download" not in page and "Nothing was trained from it yet." in page
    read = _page(client_for(rita), model)
    assert "Train from it" not in read and "Take the mark" not in read and "edit=about" not in read


def test_a_model_is_found_by_its_name(past: Past, client_for: Any, rita: User) -> None:
    answer = client_for(rita).get("/p/joust/models/tool caller/")
    assert (answer.status_code, answer["Location"]) == (302, f"/p/joust/models/{past.model.pk}/")
    assert client_for(rita).get("/p/joust/models/nobody/").status_code == 404


def test_the_page_asks_few_questions(
    past: Past, evaluation: Callable[..., Run], client_for: Any, bob: User, django_assert_max_num_queries: Any
) -> None:
    for name in ("one", "two", "three"):
        run = evaluation(name, {task: [1.0, 0.0] for task in range(4)})
        run.resolved["model"]["source"] = str(past.model.folder)
        run.save(update_fields=["resolved"])
    client = client_for(bob)
    _page(client, past.model)
    with django_assert_max_num_queries(17):
        _page(client, past.model)


def test_an_ended_run_links_its_model(
    past: Past, evaluation: Callable[..., Run], client_for: Any, bob: User, rita: User
) -> None:
    client = client_for(bob)
    page = html.unescape(client.get(f"/p/joust/runs/{past.grpo.pk}/").content.decode())
    card = page[page.index('id="ended-model"') :]
    assert f'href="/p/joust/models/{past.model.pk}/"' in card and "model=model%3Atool+caller" in card
    assert f"/api/v1/models/{past.model.pk}/download" in card and "Compare with its base" not in page
    page = client.get(f"/p/joust/runs/{past.warm.pk}/").content.decode()
    assert "Register the model" in page and "not registered yet" in page
    assert "Register the model" not in client_for(rita).get(f"/p/joust/runs/{past.warm.pk}/").content.decode()
    Run.objects.filter(pk=past.warm.pk).update(state="failed")
    assert "not registered yet" not in client.get(f"/p/joust/runs/{past.warm.pk}/").content.decode()


def test_leaderboards_show_the_mark_of_the_model_that_played(
    past: Past, evaluation: Callable[..., Run], client_for: Any, rita: User
) -> None:
    marked = evaluation("eval", {0: [1.0]}, model={"source": "model:tool caller"})
    other = evaluation("same-name", {0: [0.0]}, model={"source": "model:other"})
    for run, source in ((marked, str(past.model.folder)), (other, "/elsewhere/runs/aa/1/model")):
        run.resolved["model"]["source"] = source
        run.save(update_fields=["resolved"])
    RegisteredModel.objects.filter(pk=past.model.pk).update(mark="production")
    lines = {line.contestant.run.name: line.mark for board in boards(past.model.project) for line in board.lines}
    assert lines == {"eval": "production", "same-name": ""}
    page = client_for(rita).get("/p/joust/compare/").content.decode()
    assert page.count(">production</span>") == 1
    run = client_for(rita).get(f"/p/joust/runs/{past.grpo.pk}/").content.decode()
    assert ">production</span>" in run


def test_over_the_api_a_model_shows_its_lineage(past: Past, client_for: Any, rita: User, charlie: User) -> None:
    found = client_for(rita).get(f"/api/v1/models/{past.model.pk}").json()
    assert [(node["kind"], node["title"], node["id"]) for node in found["lineage"]] == [
        ("base", "Qwen/Qwen3-0.6B", None),
        ("run", "warm-up", str(past.warm.pk)),
        ("run", "first-grpo", str(past.grpo.pk)),
        ("model", "tool caller", str(past.model.pk)),
    ]
    assert {"label": "Environment", "text": "tools 1.4.2", "url": f"/p/joust/environments/{past.place.pk}/"} in (
        found["lineage"][2]["trained_on"]
    )
    assert (found["scores"], found["children"], found["mark"]) == ([], [], "")
    assert client_for(charlie).get(f"/api/v1/models/{past.model.pk}").status_code == 404
