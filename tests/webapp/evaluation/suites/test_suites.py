"""Suites: what is stored, who plays what, and what the leaderboard says of planted evaluations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse

from tests.growth import assert_few_queries
from training.config import JobConfig
from training.errors import ConfigError
from webapp.endpoints.models import Endpoint
from webapp.environments.models import Environment
from webapp.evaluation.suites.models import Suite, SuiteEvaluation, SuiteRun, SuiteVersion
from webapp.evaluation.suites.services import (
    _checked_parts,
    board_of,
    contestants_offered,
    environments_of_parts,
    leaders_of,
    pages_of,
    suite_change,
    suite_create,
    suite_delete,
    suite_evaluate,
)
from webapp.people.teams.models import AuditEntry, Project
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite(project: Any, part: Callable[..., dict[str, Any]], alice: Any) -> SuiteVersion:
    return suite_create(project=project, user=alice, name="exam", parts=[part("easy", 1.0), part("hard", 3.0)])


def played(
    version: SuiteVersion, evaluation: Callable[..., Run], contestant: str, *tries: dict[int, list[float | None]]
) -> SuiteEvaluation:
    """A contestant's evaluation with these successes in each part."""
    made = SuiteEvaluation.objects.create(
        version=version, contestant=contestant, environments=[part["environment"] for part in version.parts]
    )
    for number, solved in enumerate(tries):
        name = f"{contestant.rpartition(':')[2]}-{number}-{str(made.pk)[:4]}"
        SuiteRun.objects.create(evaluation=made, part=number, run=evaluation(name, solved))
    return made


def test_a_version_keeps_whole_configs_and_what_the_server_said(suite: SuiteVersion, tasks: Any) -> None:
    first, second = suite.parts
    assert (first["title"], first["weight"], second["weight"]) == ("easy", 1.0, 3.0)
    assert first["environment"] == {"name": "arena", "version": "1.4.0"}
    config = JobConfig.model_validate(first["config"])
    assert (config.kind, config.data.train, config.model.source) == ("evaluate", tasks.reference, "starter")
    assert AuditEntry.objects.filter(action="suite_saved").count() == 1


def test_other_parts_make_a_version_and_the_same_make_none(
    suite: SuiteVersion, part: Callable[..., dict[str, Any]], alice: Any
) -> None:
    same, new = suite_change(suite=suite.suite, user=alice, parts=[part("easy", 1.0), part("hard", 3.0)], note="why")
    assert (same.pk, new) == (suite.pk, False) and Suite.objects.get().note == "why"
    other, new = suite_change(suite=suite.suite, user=alice, parts=[part("easy", 2.0), part("hard", 3.0)])
    assert (other.number, new) == (2, True)
    assert SuiteVersion.objects.get(number=1).parts[0]["weight"] == 1.0


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ([], "1 to 12 parts"),
        ([("a", 0.0)], "weight above 0"),
        ([("a", 1.0), ("a", 1.0)], "same title"),
    ],
)
def test_a_suite_that_measures_nothing_is_refused(
    project: Any, alice: Any, part: Callable[..., dict[str, Any]], parts: list[tuple[str, float]], wrong: str
) -> None:
    with pytest.raises(ValidationError, match=wrong):
        suite_create(project=project, user=alice, name="none", parts=[part(*each) for each in parts])
    assert not Suite.objects.exists()


def test_a_suite_has_twelve_parts_at_most(part: Callable[..., dict[str, Any]]) -> None:
    twelve = [part(str(number), float(number == 0)) for number in range(12)]
    assert list(_checked_parts(twelve)) == twelve
    with pytest.raises(ValidationError, match="1 to 12 parts"):
        _checked_parts([*twelve, part("thirteen")])


def test_pages_and_servers_are_those_of_the_project(
    suite: SuiteVersion, part: Callable[..., dict[str, Any]], charlie: Any, make_environment: Any
) -> None:
    project, elsewhere = suite.suite.project, charlie.teams.get().projects.get()
    make_environment(name="arena", project=elsewhere, health={"name": "arena", "version": "9", "tasks": 4})
    own, server = {"name": "arena", "version": "1.4.0"}, {"name": "arena", "version": "9", "tasks": 4}
    unknown = {"config": {"environment": {"name": "environment:gone"}}}
    assert environments_of_parts(project, [part(), unknown]) == [own, {}]
    assert environments_of_parts(elsewhere, [part()]) == [server]
    RegisteredModel.objects.create(project=elsewhere, name="a", kind="hub", source="x/y")
    model = RegisteredModel.objects.create(project=project, name="b", kind="hub", source="x/y")
    asked = ["model:a", "model:b", "endpoint:b", "policy:b", "starter"]
    assert pages_of(project, asked) == {"model:b": reverse("model-detail", args=["joust", model.pk])}


def test_a_name_is_given_once(suite: SuiteVersion, part: Callable[..., dict[str, Any]], alice: Any) -> None:
    with pytest.raises(ValidationError, match="exists already"):
        suite_create(project=suite.suite.project, user=alice, name="exam", parts=[part()])


def test_a_contestant_plays_every_part_with_the_same_seeds(suite: SuiteVersion, alice: Any) -> None:
    made = suite_evaluate(version=suite, contestant="policy:claim_success", user=alice)
    runs = [item.run for item in made.runs.all()]
    assert [run.state for run in runs] == [RunState.QUEUED] * 2 and made.environments[0]["version"] == "1.4.0"
    assert [run.config["evaluate"]["policy"] for run in runs] == ["claim_success"] * 2
    assert {run.config["run"]["seed"] for run in runs} == {42}
    assert [run.name for run in runs] == ["exam-claim_success-easy-1", "exam-claim_success-hard-1"]


def test_an_endpoint_of_the_project_plays_like_a_model(suite: SuiteVersion, alice: Any) -> None:
    project = suite.suite.project
    Endpoint.objects.create(project=project, name="hosted", url="https://127.0.0.1:1/v1", model="gpt-oss-20b")
    assert "endpoint:hosted" in dict(contestants_offered(project))
    made = suite_evaluate(version=suite, contestant="endpoint:hosted", user=alice)
    run = made.runs.all()[0].run
    assert (run.config["model"]["source"], run.resolved["endpoint"]["model"]) == ("endpoint:hosted", "gpt-oss-20b")
    assert [line.title for line in board_of(suite).waiting] == ["hosted (endpoint)"]


def test_a_part_that_cannot_be_played_queues_none(suite: SuiteVersion, alice: Any, tasks: Any) -> None:
    parts = [dict(part) for part in suite.parts]
    parts[1] = parts[1] | {"config": parts[1]["config"] | {"data": {"train": "dataset:gone@1"}}}
    broken = SuiteVersion.objects.create(suite=suite.suite, number=2, parts=parts)
    with pytest.raises(ConfigError, match="no dataset"):
        suite_evaluate(version=broken, contestant="policy:empty", user=alice)
    assert not Run.objects.exists() and not SuiteEvaluation.objects.exists()


def test_the_score_is_the_weighted_mean_and_the_best_is_first(
    suite: SuiteVersion, evaluation: Callable[..., Run]
) -> None:
    played(suite, evaluation, "model:a", {0: [1, 1], 1: [1, 1], 2: [0, 0], 3: [1, 1]}, {0: [0, 0], 1: [0, 1]})
    played(suite, evaluation, "model:b", {0: [0, 0], 1: [0, 0], 2: [0, 0], 3: [0, 0]}, {0: [1, 1], 1: [1, 1]})
    board = board_of(suite)
    assert [line.title for line in board.lines] == ["b", "a"]
    scores = [line.score.value for line in board.lines if line.score is not None]
    assert scores == pytest.approx([(0 + 3 * 1) / 4, (0.75 + 3 * 0.25) / 4])
    assert board.lines[0].verdict == "" and "told apart" in board.lines[1].verdict and board.corrected == 1


def test_who_played_other_tasks_than_the_first_is_not_compared_with_it(
    suite: SuiteVersion, evaluation: Callable[..., Run], make_dataset: Any
) -> None:
    lines = [{"messages": [{"role": "user", "content": f"other {number}"}]} for number in range(4)]
    others, solved = make_dataset(lines, name="others"), {0: [1, 1], 1: [1, 1]}
    played(suite, evaluation, "model:a", solved, solved)
    played(suite, evaluation, "model:c", {0: [0, 0], 1: [0, 1]}, {0: [0, 0], 1: [0, 0]})
    made = SuiteEvaluation.objects.create(version=suite, contestant="model:b", environments=[])
    for number, dataset in enumerate((None, others)):
        over = {} if dataset is None else {"dataset": dataset}
        run = evaluation(f"b-{number}", {0: [0, 0], 1: [0, 0]}, **over)
        SuiteRun.objects.create(evaluation=made, part=number, run=run)
    first, second, third = board_of(suite).lines
    assert [line.title for line in (first, second, third)] == ["a", "c", "b"] and first.verdict == ""
    assert "points" in second.verdict and board_of(suite).corrected == 1
    assert third.verdict == "played other tasks than the first, so they are not compared"


def test_the_newest_evaluation_counts_and_the_best_over_time_is_kept(
    suite: SuiteVersion, evaluation: Callable[..., Run]
) -> None:
    good, bad = {0: [1, 1], 1: [1, 1]}, {0: [0, 0], 1: [0, 0]}
    played(suite, evaluation, "model:b", bad, good)
    played(suite, evaluation, "model:a", good, good)
    played(suite, evaluation, "model:a", bad, bad)
    board = board_of(suite)
    assert [(line.title, line.score.value) for line in board.lines if line.score] == [("b", 0.75), ("a", 0.0)]
    assert [(item.title, item.value) for item in board.history] == [("b", 0.75), ("a", 1.0)]


def test_the_leader_of_each_suite_is_of_its_newest_version_that_was_played(
    suite: SuiteVersion, part: Callable[..., dict[str, Any]], evaluation: Callable[..., Run], alice: Any
) -> None:
    project = suite.suite.project
    assert leaders_of(project, 4) == []
    good, half, bad = {0: [1, 1], 1: [1, 1]}, {0: [1, 1], 1: [0, 0]}, {0: [0, 0], 1: [0, 0]}
    played(suite, evaluation, "model:old", good, good)
    newer, _made = suite_change(suite=suite.suite, user=alice, parts=[part("easy", 2.0)])
    played(newer, evaluation, "model:a", good)
    played(newer, evaluation, "model:a", bad)  # its newest counts
    played(newer, evaluation, "model:b", half)
    suite_change(suite=suite.suite, user=alice, parts=[part("easy", 5.0)])  # nobody played it yet
    other = suite_create(project=project, user=alice, name="other", parts=[part("only")])
    played(other, evaluation, "policy:empty", half)
    first, second = leaders_of(project, 4)
    assert (first.version.suite.name, first.line.title, first.scored) == ("other", "policy: writes nothing", 1)
    assert (second.version.number, second.line.title, second.scored) == (2, "b", 2)
    assert second.line.score is not None and (second.line.score.value, second.line.score.tasks) == (0.5, 2)
    assert [leader.version.suite.name for leader in leaders_of(project, 1)] == ["other"]


def test_a_suite_without_a_score_has_no_leader(suite: SuiteVersion, evaluation: Callable[..., Run]) -> None:
    made = played(suite, evaluation, "model:a", {0: [1, 1]}, {0: [1, 1]})
    Run.objects.filter(suite_run__evaluation=made, suite_run__part=1).update(state=RunState.RUNNING, evaluation=None)
    assert leaders_of(suite.suite.project, 4) == []


def test_an_evaluation_that_still_runs_or_failed_has_no_score(
    suite: SuiteVersion, evaluation: Callable[..., Run]
) -> None:
    made = played(suite, evaluation, "model:a", {0: [1, 1]}, {0: [1, 1]})
    Run.objects.filter(suite_run__evaluation=made, suite_run__part=1).update(state=RunState.FAILED, evaluation=None)
    board = board_of(suite)
    assert not board.lines and [line.title for line in board.waiting] == ["a"]
    assert board.waiting[0].notes[-1] == "hard has no result: its run is failed."
    Run.objects.filter(suite_run__evaluation=made, suite_run__part=1).delete()
    assert board_of(suite).waiting[0].notes[-1] == "The run of hard was deleted."


def test_missing_tries_and_another_version_of_the_environment_are_reported(
    suite: SuiteVersion, evaluation: Callable[..., Run]
) -> None:
    made = played(suite, evaluation, "model:a", {0: [1, None]}, {0: [1, 1]})
    made.environments = [{"name": "arena", "version": "2.0.0"}, made.environments[1]]
    made.save()
    notes = board_of(suite).lines[0].notes
    assert notes[0].startswith("easy: 3 of 4 tasks have no try that counts") and notes[0].endswith(": 1.")
    assert notes[1] == "easy was played on version 2.0.0 of its environment; the suite was made on 1.4.0."


def test_deleting_a_suite_leaves_its_runs(suite: SuiteVersion, evaluation: Callable[..., Run]) -> None:
    played(suite, evaluation, "model:a", {0: [1, 1]}, {0: [1, 1]})
    suite_delete(suite=suite.suite)
    assert Run.objects.count() == 2 and not SuiteEvaluation.objects.exists()


# --- Pages ---------------------------------------------------------------------------------------------------------
def url(suite: SuiteVersion, name: str) -> str:
    pk = [] if name in {"suite-list", "suite-new"} else [suite.suite_id]
    return reverse(name, args=[suite.suite.project.slug, *pk])


def fields(tasks: Any, place: Environment, **over: Any) -> dict[str, Any]:
    row = {"title": "one", "dataset": tasks.reference, "environment": place.reference, "weight": "2", "tasks": "3"}
    common = {"name": "fresh", "samples": 3, "temperature": 0.7, "max_turns": 5, "seed": 9}
    return common | {f"part0-{key}": value for key, value in row.items()} | over


def test_a_suite_is_made_changed_and_played_in_the_browser(
    suite: SuiteVersion, client_for: Any, alice: Any, tasks: Any, place: Environment
) -> None:
    client = client_for(alice)
    assert client.get(url(suite, "suite-new")).status_code == 200
    answer = client.post(url(suite, "suite-new"), fields(tasks, place))
    made = Suite.objects.get(name="fresh").versions.get()
    assert answer.status_code == 302 and str(made.suite_id) in answer["Location"]
    config = JobConfig.model_validate(made.parts[0]["config"])
    assert (config.rollout.num_generations, config.rollout.temperature, config.rollout.max_turns) == (3, 0.7, 5)
    assert (config.run.seed, config.evaluate.tasks, made.parts[0]["weight"]) == (9, 3, 2.0)
    edit = url(made, "suite-edit")
    page = client.get(edit).content.decode()
    assert 'name="part0-base" value="part:0"' in page and 'name="name"' not in page
    changed = {**fields(tasks, place), "part0-base": "part:0", "part0-weight": "5"}
    assert client.post(edit, changed).status_code == 302
    assert [version.number for version in made.suite.versions.all()] == [2, 1]
    assert client.post(url(made, "suite-evaluate"), {"contestant": "policy:empty"}).status_code == 302
    assert SuiteEvaluation.objects.get().version.number == 2 and Run.objects.count() == 1


def test_wrong_fields_are_shown_with_their_errors(
    suite: SuiteVersion, client_for: Any, alice: Any, tasks: Any, place: Any
) -> None:
    client = client_for(alice)
    answer = client.post(url(suite, "suite-new"), fields(tasks, place, **{"part0-environment": "", "samples": 0}))
    text = answer.content.decode()
    assert answer.status_code == 422 and "Choose an environment" in text and not Suite.objects.filter(name="fresh")
    taken = client.post(url(suite, "suite-new"), fields(tasks, place, name="exam"))
    assert taken.status_code == 422 and "exists already" in taken.content.decode()
    common = {key: value for key, value in fields(tasks, place).items() if "part" not in key}
    none = client.post(url(suite, "suite-new"), common)
    assert none.status_code == 422 and "1 to 12 parts" in none.content.decode()


def test_evaluations_become_a_suite(
    suite: SuiteVersion, evaluation: Callable[..., Run], client_for: Any, alice: Any
) -> None:
    run = evaluation("seen", {0: [1, 1, 1]}, rollout={"num_generations": 3, "max_turns": 7})
    page = client_for(alice).get(url(suite, "suite-new"), {"c": str(run.pk)}).content.decode()
    assert f'value="run:{run.pk}"' in page and re.search(r'name="samples"[^>]*value="3"', page)
    assert re.search(r'name="max_turns"[^>]*value="7"', page)
    assert client_for(alice).get(url(suite, "suite-new"), {"c": ["x", "\x00"]}).status_code == 200


def test_a_row_takes_hidden_options_from_runs_of_its_own_project_alone(
    suite: SuiteVersion,
    evaluation: Callable[..., Run],
    client_for: Any,
    alice: Any,
    charlie: Any,
    tasks: Any,
    place: Any,
) -> None:
    run, client = evaluation("seen", {0: [1]}, rollout={"max_turn_tokens": 77}), client_for(alice)
    usual = JobConfig().rollout.max_turn_tokens
    for name, wanted in (("ours", 77), ("theirs", usual)):
        if name == "theirs":
            Run.objects.filter(pk=run.pk).update(project=Project.objects.get(slug="elsewhere"))
        sent = fields(tasks, place, name=name, **{"part0-base": f"run:{run.pk}"})
        assert client.post(url(suite, "suite-new"), sent).status_code == 302
        config = JobConfig.model_validate(Suite.objects.get(name=name).versions.get().parts[0]["config"])
        assert config.rollout.max_turn_tokens == wanted != 0, name


def test_a_suite_on_what_runs_held_out(
    suite: SuiteVersion, evaluation: Callable[..., Run], client_for: Any, alice: Any, tasks: Any, place: Environment
) -> None:
    client = client_for(alice)
    run = evaluation("seen", {0: [1]}, evaluate={"share": 0.25})
    assert re.search(
        r'name="part0-share"[^>]*value="0.25"', client.get(url(suite, "suite-new"), {"c": run.pk}).content.decode()
    )
    assert client.post(url(suite, "suite-new"), fields(tasks, place, **{"part0-share": "0.6"})).status_code == 422
    assert client.post(url(suite, "suite-new"), fields(tasks, place, **{"part0-share": "0.2"})).status_code == 302
    made = Suite.objects.get(name="fresh").versions.get()
    assert JobConfig.model_validate(made.parts[0]["config"]).evaluate.share == 0.2
    assert "of the 20% held out" in re.sub(r"\s+", " ", client.get(url(made, "suite-detail")).content.decode())


def test_contestants_lead_to_their_pages_and_the_marked_are_marked(
    suite: SuiteVersion, evaluation: Callable[..., Run], project: Any, client_for: Any, alice: Any
) -> None:
    one = {"name": "gpt", "url": "http://127.0.0.1:1/v1", "model": "gpt-oss"}
    endpoint = Endpoint.objects.create(project=project, **one)
    model = RegisteredModel.objects.create(project=project, name="a", kind="hub", source="x/y", mark="production")
    made = played(suite, evaluation, "model:a", {0: [1, 1]}, {0: [1, 1]})
    Run.objects.filter(pk=made.runs.get(part=0).run_id).update(resolved={"model": {"source": "x/y", "revision": ""}})
    played(suite, evaluation, "endpoint:gpt", {0: [1, 0]}, {0: [1, 1]})
    played(suite, evaluation, "policy:empty", {0: [0, 0]}, {0: [0, 0]})
    lines = board_of(suite).lines
    pages = [f"/p/joust/models/{model.pk}/", f"/p/joust/endpoints/{endpoint.pk}/", ""]
    assert [(line.title, line.page) for line in lines[:2]] == [("a", pages[0]), ("gpt (endpoint)", pages[1])]
    assert lines[2].page == "" and [line.mark for line in lines] == ["production", "", ""]
    for page, contestant in zip(pages[:2], ("model%3Aa", "endpoint%3Agpt"), strict=True):
        address = f"{url(suite, 'suite-detail')}?contestant={contestant}"
        assert address in client_for(alice).get(page).content.decode()
        chosen = client_for(alice).get(address).content.decode()
        assert re.search(rf'value="{contestant.replace("%3A", ":")}" selected', chosen)


def test_no_contestant_plays_that_is_not_offered(suite: SuiteVersion, client_for: Any, alice: Any) -> None:
    for wrong, message in (
        ("model:gone", "there is no model “gone”"),
        ("policy:cheat", "Choose who plays."),
        ("", "Choose"),
    ):
        page = client_for(alice).post(url(suite, "suite-evaluate"), {"contestant": wrong}, follow=True)
        assert message in page.content.decode() and not Run.objects.exists()


def test_the_page_says_who_is_first_and_links_to_the_comparison(
    suite: SuiteVersion, evaluation: Callable[..., Run], client_for: Any, rita: Any
) -> None:
    a = played(suite, evaluation, "model:a", {0: [1, 1], 1: [0, 0]}, {0: [1, 1]})
    b = played(suite, evaluation, "run:b", {0: [0, 0], 1: [0, 0]}, {0: [1, 1]})
    page = client_for(rita).get(url(suite, "suite-detail")).content.decode()
    ids = [str(item.runs.get(part=0).run_id) for item in (a, b)]
    assert f"c={ids[0]}&amp;c={ids[1]}" in page
    assert re.search(r"★\s+best", page)
    assert 'name="contestant"' not in page  # rita reads
    listed = client_for(rita).get(url(suite, "suite-list")).content.decode()
    assert "exam" in listed and "87.5%" in listed
    assert client_for(rita).get(url(suite, "suite-detail"), {"version": "7"}).status_code == 404


def test_an_old_version_says_that_it_is_old(suite: SuiteVersion, part: Any, alice: Any, client_for: Any) -> None:
    suite_change(suite=suite.suite, user=alice, parts=[part()])
    page = client_for(alice).get(url(suite, "suite-detail"), {"version": "1"}).content.decode()
    assert "This is an older version" in page


def test_the_list_without_suites_says_what_one_is(project: Any, client_for: Any, rita: Any) -> None:
    page = client_for(rita).get(reverse("suite-list", args=[project.slug])).content.decode()
    assert "No suites yet" in page


# --- API -----------------------------------------------------------------------------------------------------------
def test_a_script_saves_a_suite_has_it_played_and_reads_the_board(
    project: Any, client_for: Any, alice: Any, part: Callable[..., dict[str, Any]], evaluation: Callable[..., Run]
) -> None:
    client, address = client_for(alice), f"/api/v1/projects/{project.slug}/suites"
    body = {"name": "exam", "parts": [part("all", 2.0)]}
    made = client.post(address, body, content_type="application/json")
    assert made.status_code == 201 and made.json()["version"] == 1
    assert client.post(address, body, content_type="application/json").status_code == 200
    other = client.post(address, body | {"parts": [part("all", 3.0)]}, content_type="application/json")
    assert (other.status_code, other.json()["version"]) == (201, 2)
    assert client.get(address).json()["items"] == [other.json()]
    one = f"/api/v1/suites/{made.json()['id']}"
    played_now = client.post(f"{one}/evaluations", {"contestant": "policy:empty"}, content_type="application/json")
    assert played_now.status_code == 201 and len(played_now.json()["runs"]) == 1
    wrong = client.post(f"{one}/evaluations", {"contestant": "model:gone"}, content_type="application/json")
    assert wrong.status_code == 422 and wrong.json()["code"] == "config_invalid"
    played(SuiteVersion.objects.get(number=2), evaluation, "model:a", {0: [1, 1], 1: [0, 0], 2: [1, 1], 3: [1, 1]})
    board = client.get(one).json()
    assert [line["contestant"] for line in board["lines"]] == ["model:a"]
    assert board["lines"][0]["score"]["value"] == 0.75 and board["lines"][0]["score"]["tasks"] == 4
    assert [line["contestant"] for line in board["waiting"]] == ["policy:empty"]
    assert client.delete(one).json() == {"deleted": "exam"} and client.get(one).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "parts": []},
        {"name": "x", "parts": [{"title": "a", "config": {"rollout": {"num_generations": "many"}}}]},
        {"name": "x", "parts": [{"title": "a", "config": {}, "speed": 1}]},
        {"name": "x", "parts": [{"title": "a", "config": {}, "weight": -1}]},
    ],
)
def test_a_suite_that_cannot_be_is_refused_over_the_api(
    project: Any, client_for: Any, alice: Any, body: dict[str, Any]
) -> None:
    answer = client_for(alice).post(f"/api/v1/projects/{project.slug}/suites", body, content_type="application/json")
    assert answer.status_code == 422 and not Suite.objects.exists()


def test_the_page_of_a_suite_takes_few_queries(
    suite: SuiteVersion, evaluation: Callable[..., Run], client_for: Any, alice: Any
) -> None:
    for name in ("run:a", "run:b"):
        played(suite, evaluation, name, {0: [1.0, 1.0]}, {0: [1.0, 0.0]})

    def more() -> None:
        for number in range(6):
            played(suite, evaluation, f"run:more-{number}", {0: [1.0, 1.0]}, {0: [0.0, 0.0]})

    assert_few_queries(client_for(alice), [url(suite, "suite-detail"), url(suite, "suite-edit")], more)
