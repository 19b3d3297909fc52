"""Words of a lineage and of a card, addresses of comparisons, and commands for serving: by value."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.webapp.results.conftest import Past
from training.config import JobConfig
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.people.teams.models import Project, User
from webapp.results.card import _in_cell, table
from webapp.results.lineage import (
    base_words,
    children,
    compare_url,
    components_of,
    dataset_words,
    environment_name,
    headline,
    origins_of,
    parts_words,
    revision_of,
    spec_name,
    trained_on,
)
from webapp.results.summary import Best, HeldOut, gains_of, nearest, rollouts_of_step
from webapp.results.views import AboutForm, _adapter_rank, _served_name, _template_option, folder_name
from webapp.rewards.models import RewardSpec
from webapp.runs.metrics.selectors import Ends
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.runs.registry.selectors import Weights

pytestmark = pytest.mark.django_db


def test_the_first_weights_have_a_name_and_a_sentence() -> None:
    assert base_words(None) == ("not recorded", "The starting model was deleted or never recorded.")
    assert base_words(Weights(ModelKind.STARTER, "", ""))[0] == "starter"
    assert base_words(Weights(ModelKind.HUB, "a/b", "")) == ("a/b", "Hugging Face")
    assert base_words(Weights(ModelKind.HUB, "a/b", "c" * 40)) == ("a/b", "Hugging Face, revision " + "c" * 12)
    assert base_words(Weights(ModelKind.FOLDER, "mine", "")) == ("mine", "a folder of this server")
    assert base_words(Weights(ModelKind.HUB, "a/b", ""), cut=True) == ("…", "earlier stages are not shown")


def test_a_config_names_what_a_run_was_trained_on() -> None:
    run = Run(
        config={
            "data": {"train": "dataset:d@1"},
            "environment": {"name": "environment:e"},
            "rewards": {"spec": "reward:r@2"},
        }
    )
    assert (dataset_words(run), environment_name(run), spec_name(run)) == ("d@1", "e", "r@2")
    empty = Run(config={})
    assert (dataset_words(empty), environment_name(empty), spec_name(empty), parts_words(empty)) == ("", "", "", "")
    assert environment_name(Run(config={"environment": {"name": "none"}})) == ""
    parts = [
        {"name": "a", "weight": 2, "data": {"train": "dataset:d@1"}, "environment": {"name": "environment:e"}},
        {"name": "b", "data": {"train": "plain"}},
        {"name": "c", "weight": 0.5},
    ]
    assert parts_words(Run(config={"mix": {"parts": parts}})) == "a × 2 (d@1, e); b × 1 (plain); c × 0.5"


def test_a_comparison_has_at_least_two_and_at_most_so_many_runs(project: Project, make_run: Any) -> None:
    runs = [make_run() for _number in range(10)]
    assert compare_url(project, []) == compare_url(project, runs[:1]) == compare_url(project, runs[:1] * 3) == ""
    assert compare_url(project, runs[:2]) == f"/p/joust/compare/?c={runs[0].pk}&c={runs[1].pk}"
    many = compare_url(project, runs)
    assert str(runs[9].pk) in many and str(runs[0].pk) not in many, "the newest are kept"


def test_rows_of_other_projects_are_not_shown(past: Past, charlie: User) -> None:
    elsewhere = Project.objects.get(slug="elsewhere")
    for model in (Dataset, RewardSpec, Environment):
        model.objects.update(project=elsewhere)
    stages = {stage.run.name: stage for stage in origins_of(past.model).stages}
    facts = trained_on(past.model.project, stages["first-grpo"])
    assert [(fact.label, fact.text, fact.url) for fact in facts] == [
        ("Dataset", "arithmetic@3", ""),
        ("Reward spec", "tool-calling@2", ""),
        ("Environment", "tools 1.4.2", ""),
    ]
    assert [fact.label for fact in trained_on(past.model.project, stages["warm-up"])] == ["Dataset"]


def test_a_run_without_a_spec_says_where_its_rewards_are_written(past: Past) -> None:
    stage, warm_up = origins_of(past.model).stages
    assert [part.name for part in components_of(warm_up)] == []
    stage.run.config["rewards"] = {"spec": "", "components": [{"name": "coherence", "weight": 1}]}
    plain = stage._replace(spec=None, environment=None)
    assert ("Reward spec", "written in the config", "") in [
        tuple(fact) for fact in trained_on(past.model.project, plain)
    ]
    stage.run.imported_from = "verl"
    assert "Reward spec" not in [fact.label for fact in trained_on(past.model.project, plain)]


def test_the_commit_that_was_trained_comes_before_the_one_that_was_asked_for(past: Past) -> None:
    origins = origins_of(past.model)
    assert revision_of(origins) == "c1899de289a04d12100db370d81485cdf75e47ca"
    hub, folder = Weights(ModelKind.HUB, "a/b", "asked"), Weights(ModelKind.FOLDER, "mine", "stamp")
    assert revision_of(origins._replace(base=hub, stages=[])) == "asked"
    stages = [stage._replace(started={}) for stage in origins.stages]
    assert revision_of(origins._replace(base=hub, stages=stages)) == "asked"
    assert revision_of(origins._replace(base=folder)) == revision_of(origins._replace(base=None)) == ""


def test_children_are_of_the_project_and_trained(past: Past, trained: Callable[..., Run], charlie: User) -> None:
    source = {"model.source": str(past.model.folder)}
    options = {"model": {"source": "model:tool caller"}}
    first = trained("a", options, source)
    trained("b", options, source, project=Project.objects.get(slug="elsewhere"))
    assert [node.title for node in children(past.model).nodes] == [first.name] and children(past.model).more == 0
    for number in range(5):
        trained(f"c{number}", options, source)
    assert (len(children(past.model).nodes), children(past.model).more) == (6, 0)


def test_the_headline_is_the_newest_that_was_not_trained_on() -> None:
    scores: list[Any] = [SimpleNamespace(trained_on=flag) for flag in (True, False, False)]
    assert headline(scores) is scores[1] and headline(scores[:1]) is scores[0] and headline([]) is None


# --- Facts ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("step", "kept"), [(10, False), (11, True), (15, True), (16, False)])
def test_a_checkpoint_within_the_window_is_kept(step: int, kept: bool) -> None:
    best = Best(15, 0.5, "reward", 5, Checkpoint(step=step))
    assert best.kept is kept and not best._replace(checkpoint=None).kept
    assert best._replace(metric="heldout/success").held_out and not best.held_out


def test_of_equally_near_checkpoints_the_finished_model_then_the_later_is_taken() -> None:
    early, late, final = Checkpoint(step=2), Checkpoint(step=6), Checkpoint(step=2, final=True)
    assert nearest([early, late], 4) is late and nearest([late, early], 4) is late
    assert nearest([early, late, final], 4) is final and nearest([early, late], 3) is early


def test_a_figure_of_one_step_has_no_way() -> None:
    way = Ends(before=0.1, after=0.9, late=None, part=1, total=1, last=1, best=0.9, best_step=1)
    (gain,) = gains_of({"reward": way})
    assert (gain.before, gain.after) == (None, 0.9)
    assert gains_of({"reward": way._replace(total=2)})[0].before == 0.1


def test_a_step_has_so_many_rollouts_where_all_stages_agree(make_run: Any) -> None:
    values = {"rollout": {"prompts_per_step": 4, "num_generations": 8}}
    run = make_run(config=JobConfig.model_validate(values))
    assert rollouts_of_step(run) == 32
    run.imported_from = "verl"
    assert rollouts_of_step(run) == 0
    assert HeldOut(0.5, 0.25, None, 3).texts == ("50%", "25%", "–")


# --- Serving and cards ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("source", "name"), [("./a b", "a-b"), ("org/model", "model"), ("---", "model"), ("", "model"), ("夜.v1", "夜.v1")]
)
def test_a_served_model_has_a_simple_name(source: str, name: str) -> None:
    assert _served_name(source) == name
    assert folder_name(RegisteredModel(name="a b c")) == "a-b-c"


@pytest.mark.parametrize(
    ("text", "rank"), [('{"r": 32}', 32), ("{}", 0), ('{"r": null}', 0), ("[]", 0), ("no", 0), ('{"r": "x"}', 0)]
)
def test_the_rank_of_an_adapter_is_read_where_it_can_be(text: str, rank: int, tmp_path: Path) -> None:
    assert _adapter_rank(tmp_path) == 0 and _template_option("m", tmp_path) == ""
    (tmp_path / "adapter_config.json").write_text(text)
    (tmp_path / "chat_template.jinja").write_text("")
    assert (
        _adapter_rank(tmp_path) == rank
        and _template_option("m", tmp_path) == " --chat-template ./m/chat_template.jinja"
    )


def test_tags_are_parted_by_spaces_and_commas_of_both_scripts() -> None:
    form = AboutForm({"tags": "a, b，c、d  e", "notes": "n"})
    assert form.is_valid() and form.values() == {"tags": ["a", "b", "c", "d", "e"], "notes": "n"}
    shown = AboutForm.of(RegisteredModel(tags=["x", "y"], notes="z"))
    assert (shown["tags"].value(), shown["notes"].value()) == ("x y", "z")


def test_a_table_is_markdown_whose_cells_hold_no_line() -> None:
    assert table(["a", "b"], [["1|2", " x\n y "]]).split("\n") == ["| a | b |", "| --- | --- |", "| 1\\|2 | x y |"]
    assert _in_cell(json.dumps("\n")) == '"\\n"'
