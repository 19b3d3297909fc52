"""A mix in the web: what its parts name is resolved for each, rollouts know their part, and so their row and reward."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import translation

from tests.webapp.engine.test_batch import batch_of
from training import journal
from training.config import JobConfig
from training.errors import ConfigError, EnvironmentUnreachable
from webapp.datasets.recorded import dataset_of_step
from webapp.datasets.selectors import runs_using as runs_of_dataset
from webapp.engine.resolve import resolve
from webapp.environments.services import require_unused
from webapp.environments.tokens import token_write, trainer_access
from webapp.launch.estimates import decisive
from webapp.launch.forms import RunForm
from webapp.launch.learned import Overlap, _joined_overlap, sources_of
from webapp.launch.preflight import preflight
from webapp.people.teams.models import Project, User
from webapp.reading.parts import config_for, spec_of
from webapp.reading.task_map import courses_of, tasks_of, visits_of
from webapp.results.lineage import parts_words
from webapp.rewards.lab.sets import Rows, found_in
from webapp.rewards.selectors import runs_using as runs_of_spec
from webapp.runs.config import all_components, config_at, differences, stack_weights
from webapp.runs.reports import event_text, held_text
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.site.run_pages.page import config_texts

SUCCESS = [{"name": "task_success", "weight": 1.0}]


@pytest.fixture
def mixed(make_dataset: Any, make_environment: Any, make_reward_spec: Any, settings: Any) -> dict[str, Any]:
    """Two parts with things of their own, and these things by name."""
    settings.OUTBOUND_ALLOW = ["127.0.0.1/32"]
    things = {
        "data": make_dataset([{"messages": [{"role": "user", "content": f"count {n}"}]} for n in range(3)]),
        "more": make_dataset([{"messages": [{"role": "user", "content": f"shop {n}"}]} for n in range(3)]),
        "place": make_environment(url="http://127.0.0.1:65001"),
        "other": make_environment(url="http://127.0.0.1:65002"),
        "spec": make_reward_spec(),
    }
    config = {
        "data": {"train": things["data"].reference},
        "environment": {"name": things["place"].reference},
        "rewards": {"spec": things["spec"].reference},
        "mix": {
            "parts": [
                {"name": "count", "weight": 3, "rewards": {"components": SUCCESS}},
                {
                    "name": "shop",
                    "data": {"train": things["more"].reference},
                    "environment": {"name": things["other"].reference, "step_timeout_s": 5},
                },
            ]
        },
    }
    return things | {"config": JobConfig.model_validate(config)}


def test_each_part_is_resolved_to_what_its_trainer_takes(project: Project, mixed: dict[str, Any]) -> None:
    plain = resolve(project, mixed["config"]).config
    count, shop = plain.courses
    assert (count.data.train, shop.data.train) == (str(mixed["data"].rows_path), str(mixed["more"].rows_path))
    assert (count.environment.url, shop.environment.url) == ("http://127.0.0.1:65001", "http://127.0.0.1:65002")
    assert (count.environment.step_timeout_s, shop.environment.step_timeout_s) == (30.0, 5.0)
    assert [part.name for part in count.rewards.components] == ["task_success"]
    assert [part.name for part in shop.rewards.components] == [part["name"] for part in mixed["spec"].components]
    assert [part.weight for part in plain.mix.parts] == [3.0, 1.0]
    assert JobConfig.model_validate(plain.model_dump(mode="json")).courses == [count, shop]


@pytest.mark.parametrize(
    ("group", "own"),
    [("data", {"train": "dataset:gone"}), ("environment", {"name": "environment:gone"}), ("rewards", {"spec": "x"})],
)
def test_what_a_part_names_wrongly_is_reported_with_its_place(
    project: Project, mixed: dict[str, Any], group: str, own: dict[str, str]
) -> None:
    raw = mixed["config"].model_dump(mode="json")
    raw["mix"]["parts"][1][group] = own
    config = JobConfig.model_validate(raw)
    with pytest.raises(ConfigError) as caught:
        resolve(project, config)
    assert caught.value.option == f"mix.parts.1.{group}.{next(iter(own))}"
    outcome = preflight(project, config, full=False)
    assert outcome.blocked and outcome.checks[0].path == caught.value.option


def test_checks_before_a_launch_look_at_every_part(project: Project, mixed: dict[str, Any]) -> None:
    titles = [check.title for check in preflight(project, mixed["config"], full=False).checks]
    assert titles.count("Rewards · count") == titles.count("Rewards · shop") == 1
    assert {"Environment address · count", "Environment address · shop"} <= set(titles)


def test_no_server_is_shown_the_token_of_another_parts_server(project: Project, mixed: dict[str, Any]) -> None:
    token_write(mixed["place"].pk, "one")
    access = trainer_access(project, mixed["place"].reference, mixed["other"].reference)
    assert json.loads(access["TILTYARD_ENV_TOKENS"]) == {"127.0.0.1:65001": "one"}


def test_what_a_part_uses_is_in_use(mixed: dict[str, Any], make_run: Any) -> None:
    raw = mixed["config"].model_dump(mode="json")
    raw["mix"]["parts"][1]["rewards"] = {"spec": mixed["spec"].reference}
    raw["rewards"]["spec"] = ""
    run = make_run(config=raw, state="running")
    assert list(runs_of_dataset(mixed["more"])) == [run] and list(runs_of_spec(mixed["spec"])) == [run]
    with pytest.raises(ValidationError, match=run.name):
        require_unused(mixed["other"])


def test_the_form_gives_the_parts_back_and_places_what_is_wrong(project: Project, mixed: dict[str, Any]) -> None:
    form = RunForm(project=project, config=mixed["config"], name="a")
    data = {path: form[path].value() for path in form.fields}
    data = {path: value for path, value in data.items() if value is not None and value is not False}
    shown = data["mix.parts"]
    assert shown.startswith("- name: count\n  weight: 3.0\n")
    again = RunForm(data, project=project)
    assert again.is_valid(), again.errors
    assert again.config is not None and again.config.mix == mixed["config"].mix
    for wrong, message in {
        shown.replace("step_timeout_s: 5", "step_timeout_s: 0"): "mix.parts.1.environment.step_timeout_s",
        shown.replace("weight: 3", "weight: -3"): "weight: It must be at least 0.0.",
        shown.replace("name: shop", "name: count"): "each part needs a name of its own",
        "name: easy": "Write a list",
        "- {": "not valid YAML",
    }.items():
        form = RunForm(data | {"mix.parts": wrong}, project=project)
        assert not form.is_valid() and message in str(form.errors["mix.parts"]), wrong


def test_memory_does_not_depend_on_a_mix(mixed: dict[str, Any]) -> None:
    plain = mixed["config"].model_copy(update={"mix": JobConfig().mix})
    assert decisive(mixed["config"], "starter") == decisive(plain, "starter")


@pytest.fixture
def run(project: Project, mixed: dict[str, Any], make_run: Any) -> Any:
    plain = resolve(project, mixed["config"]).config.model_dump(mode="json")
    return make_run(config=mixed["config"], resolved=plain, state="running", step=12)


def rollout(run: Any, part: str, group: int, outcome: str = "solved", step: int = 3) -> Rollout:
    made = Rollout.objects.create(
        run=run, attempt=1, step=step, group=group, index=0, row=1, part=part, status="completed", outcome=outcome,
        started_at=run.created_at, seq=10 * step + group,
    )  # fmt: skip
    Turn.objects.create(rollout=made, run=run, number=0, seq=made.seq, messages=[{"role": "user", "content": "go"}])
    return made


def test_a_rollout_has_the_options_the_row_and_the_components_of_its_part(run: Any, mixed: dict[str, Any]) -> None:
    count, shop = rollout(run, "count", 0), rollout(run, "shop", 1)
    assert [config.environment.step_timeout_s for part in (count, shop) if (config := config_for(part))] == [30.0, 5.0]
    assert [item.name for item in spec_of(count, config_for(count))] == ["task_success"]
    assert len(spec_of(shop, config_for(shop))) == len(mixed["spec"].components)
    found = [dataset_of_step(run, 3, part) for part in ("count", "shop")]
    assert found == [mixed["data"], mixed["more"]]
    whole = config_at(run, 3)
    assert whole is not None and len(whole.mix.parts) == 2
    names = {part["name"] for part in mixed["spec"].components}
    assert {part.name for part in all_components(whole)} == names | {"task_success"}
    rollouts = Rollout.objects.filter(run=run)
    rows = Rows(io.BytesIO(), run, rollouts, lambda: None)
    questions = [each.row["messages"][0]["content"] for _r, each in found_in(rollouts.order_by("group"), rows) if each]
    assert questions == ["count 1", "shop 1"]


def test_one_number_is_two_tasks_in_two_parts(run: Any) -> None:
    rollout(run, "count", 0)
    rollout(run, "shop", 1, "failed")
    rollout(run, "shop", 0, "solved", step=5)
    courses = courses_of(run)
    assert [courses.at(3, part) for part in ("count", "shop")] == [0, 1]
    found = tasks_of(run, courses, kind=None, sort="row", offset=0, limit=9).tasks
    assert [(task.dataset, task.row, task.solved, task.counted) for task in found] == [(0, 1, 1, 1), (1, 1, 1, 2)]
    assert [(visit.step, visit.solved) for visit in visits_of(run, courses, 1, 1)] == [(3, 0), (5, 1)]


def test_what_was_learned_from_is_the_data_of_all_parts_that_have_a_share(run: Any) -> None:
    paths = [part["data"].get("train", run.resolved["data"]["train"]) for part in run.resolved["mix"]["parts"]]
    assert [source.path for source in sources_of(run)] == paths and len(set(paths)) == 2
    run.resolved["mix"]["parts"][1]["weight"] = 0
    assert [source.path for source in sources_of(run)] == paths[:1]


def test_what_is_known_of_the_parts_is_shown_for_all_of_them() -> None:
    one, two = Overlap(2, 5, ("a@1",)), Overlap(1, 4, ("b@1", "a@1"), ("c@1",))
    assert _joined_overlap([one, two]) == Overlap(3, 9, ("a@1", "b@1"), ("c@1",))
    assert _joined_overlap([one, Overlap(None, None, ("b@1",))]) == Overlap(None, None, ("a@1", "b@1"))


def test_the_projection_keeps_the_part_of_a_rollout() -> None:
    started = journal.RolloutStarted(rollout="a1-s1-g0-i0", step=1, group=0, index=0, row=4, part="shop" + "x" * 60)
    (found,) = batch_of(started).rollouts.values()
    assert (found.row, found.part) == (4, ("shop" + "x" * 60)[:40])


def test_what_the_parts_hold_out_is_added_up() -> None:
    events = [journal.TasksHeldOut(source="share", rows=[1, 2, 3], groups=2, looked_at=9, part="count"),
            journal.TasksHeldOut(source="share", rows=[0], groups=1, alike=1, looked_at=9, part="shop")]  # fmt: skip
    batch = batch_of(*events)
    known = batch.run_changes["health"]["held_out"]
    assert (known["tasks"], known["groups"], known["alike"]) == (4, 3, 1) and list(known["parts"]) == ["count", "shop"]
    again = batch_of(*events, health=batch.run_changes["health"])  # a later attempt says it again
    assert again.run_changes["health"]["held_out"]["tasks"] == 4
    kind, payload, _at = batch.events[0]
    with translation.override("en"):
        text = event_text({"kind": kind, "payload": payload, "attempt": 1})
    assert text.startswith("count: 3 tasks (2 of different text) are held out of the dataset.")


def test_the_run_says_which_part_it_waits_for_until_that_part_is_back() -> None:
    away = EnvironmentUnreachable("no").info
    first = journal.Held(step=4, part="shop", error=away, tries=1, next_try_s=2, patience_left_s=90)
    held = batch_of(first).run_changes["held"]
    assert held["part"] == "shop"
    with translation.override("en"):
        assert "waits: shop: " in held_text(held)
    assert batch_of(first, journal.Held(step=4, part="count")).run_changes["held"] == held
    assert batch_of(first, journal.Held(step=4, part="shop")).run_changes["held"] is None
    plain = batch_of(journal.Held(step=4, error=away)).run_changes["held"]
    assert "part" not in plain


def test_a_run_with_a_mix_is_evaluated_on_one_of_its_parts(
    project: Project, run: Any, mixed: dict[str, Any], bob: User, client_for: Callable[..., Client]
) -> None:
    address = reverse("run-new", args=[project.slug])
    for kind, part, data, place in (("evaluate", "shop", "more", "other"), ("sft", "none", "data", "place")):
        form = client_for(bob).get(address, {"from": str(run.pk), "kind": kind, "part": part}).context["form"]
        assert form["data.train"].value() == mixed[data].reference and form.start.mix.parts == []
        assert form["environment.name"].value() == mixed[place].reference
    clone = client_for(bob).get(address, {"from": str(run.pk)}).context["form"]
    assert clone.start.mix == mixed["config"].mix
    assert client_for(bob).get(address, {"from": str(run.pk), "kind": "rloo"}).context["form"].start.mix.parts


def test_only_owners_see_where_the_servers_of_a_part_are(run: Any) -> None:
    shown = config_texts(run, places=False)
    assert "65002" not in shown["all"] and "rows.jsonl" not in shown["all"] and "weight: 3" in shown["changed"]
    assert "65002" in config_texts(run)["all"]


def test_the_page_of_a_rollout_names_its_part(run: Any, rita: User, client_for: Callable[..., Client]) -> None:
    made = rollout(run, "shop", 1)
    page = client_for(rita).get(reverse("rollout-detail", args=[run.project.slug, made.pk])).content.decode()
    assert "<dd>shop</dd>" in page


def test_the_export_for_verl_has_a_folder_for_each_part(run: Any, tmp_path: Path) -> None:
    from training.exports.verl import export_parts

    plain = JobConfig.model_validate(run.resolved)
    rows = [Path(course.data.train) for course in plain.courses]
    names = export_parts(plain, plain.courses, rows, tmp_path, name="mine")
    assert names[:1] == ["part-1/train.parquet"] and names[-1] == "part-2/README.txt" and len(names) == 8
    readme = (tmp_path / "part-2" / "README.txt").read_text()
    assert "Part 2 of 2 of a mix: shop, weight 1." in readme and "mix.parts is not carried over" in readme
    assert "experiment_name: mine-part-1" in (tmp_path / "part-1" / "config.yaml").read_text()


def test_what_every_part_has_of_its_own_the_run_need_not_name(project: Project, mixed: dict[str, Any]) -> None:
    raw = mixed["config"].model_dump(mode="json")
    raw["data"]["train"] = raw["environment"]["name"] = ""
    with pytest.raises(ConfigError) as caught:
        resolve(project, JobConfig.model_validate(raw))
    assert caught.value.option == "data.train"
    raw["mix"]["parts"][0] |= {
        "data": {"train": mixed["data"].reference}, "environment": {"name": mixed["place"].reference},
    }  # fmt: skip
    own = JobConfig.model_validate(raw)
    found = resolve(project, own)
    assert [course.environment.url[-1] for course in found.config.courses] == ["1", "2"] and found.baselines == []
    form = RunForm(project=project, config=own, name="a")
    data = {path: form[path].value() for path in form.fields}
    data = {path: value for path, value in data.items() if value is not None and value is not False}
    assert RunForm(data, project=project).is_valid()
    assert not RunForm(data | {"mix.parts": ""}, project=project).is_valid()


def test_means_of_components_add_up_only_where_all_parts_have_them(mixed: dict[str, Any]) -> None:
    same = mixed["config"].model_copy(deep=True)
    for part in same.mix.parts:
        part.rewards = {"components": SUCCESS}
    assert stack_weights(same) == {"task_success": 1.0}
    same.mix.parts[1].rewards = {"components": [{"name": "format", "function": "coherence", "weight": 0.5}]}
    assert stack_weights(same) is None


def test_a_changed_part_is_shown_whole(mixed: dict[str, Any]) -> None:
    before = mixed["config"].model_dump(mode="json")
    after = json.loads(json.dumps(before))
    after["mix"]["parts"][1]["data"]["train"] = "dataset:other@2"
    (found,) = differences(before, after)
    assert found.path == "mix.parts" and "dataset:other@2" in found.after and found.before != found.after


def test_a_models_page_shows_the_parts(run: Any, mixed: dict[str, Any]) -> None:
    shop = f"shop × 1 ({mixed['more'].reference.partition(':')[2]}, {mixed['other'].name})"
    assert parts_words(run) == f"count × 3; {shop}"
