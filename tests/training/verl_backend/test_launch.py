"""The job folder that a verl job is started with: what is in it, and what is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoConfig

from tests.training.helpers import events, of_type
from tests.training.verl_backend.cpu_job import cpu_job
from training.algorithms.job import row_order
from training.config import JobConfig
from training.errors import ConfigError
from training.rollout.tokens import ChatTemplate
from training.verl_backend.folder import JobFolder, Plan
from training.verl_backend.learner import make_folder
from training.verl_backend.tasks import Places


def test_the_folder_has_what_every_process_needs(starter_folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    job = cpu_job(tmp_path / "run", starter_folder, "http://127.0.0.1:1", run={"max_steps": 5, "seed": 7})
    folder = make_folder(job, "cpu")
    assert folder.path == tmp_path / "run" / "verl"
    assert {path.name for path in folder.path.iterdir()} == {"plan.json", "settings.yaml", "loops.yaml", "tokenizer"}
    assert (tmp_path / "run" / "config.yaml").is_file(), "where any run has it"
    again = JobFolder(folder.path)
    assert again.config == job.config and again.config.rewards.components[0].name == "task_success"
    plan = again.plan
    assert (plan.attempt, plan.rows, plan.eos_id) == (1, 24, ChatTemplate(tokenizer).eos_id)
    assert plan.order == row_order(24, 10, seed=7, shuffle=True), "as on one device: two groups a step, five steps"
    assert plan.rows_of(1, 2) + plan.rows_of(2, 2) == plan.order[:4] and plan.rows_of(5, 2) == plan.order[8:]
    (loop,) = yaml.safe_load((folder.path / "loops.yaml").read_text())
    assert loop == {
        "name": "tiltyard",
        "_target_": "training.verl_backend.loop.PlayerLoop",
        "folder": str(folder.path),
    }
    settings = yaml.safe_load((folder.path / "settings.yaml").read_text())
    assert settings["actor_rollout_ref"]["model"]["path"] == str(starter_folder)
    assert settings["actor_rollout_ref"]["rollout"]["name"] == "hf"
    assert settings["trainer"]["n_gpus_per_node"] == 1
    said = [event.message for event in of_type(tmp_path / "run", "log")]
    assert said == ["verl gives no values of single tokens, so none are kept."]


def test_the_dataset_of_verl_is_our_order(starter_folder: Path, tmp_path: Path) -> None:
    folder = make_folder(cpu_job(tmp_path / "run", starter_folder, "http://127.0.0.1:1"), "cpu")
    places = Places(str(folder.path), tokenizer=None, processor=None, config=None, max_samples=-1)
    assert len(places) == 4 and [places[at]["place"] for at in range(4)] == [0, 1, 2, 3]
    assert [places[at]["index"] for at in range(4)] == folder.plan.order
    assert len(places[0]["raw_prompt"]) == 1 and places[0]["dummy_tensor"].shape == (1,)


def test_a_job_without_components_is_scored_by_the_default_ones_and_says_so(
    starter_folder: Path, tmp_path: Path
) -> None:
    job = cpu_job(tmp_path / "run", starter_folder, "http://127.0.0.1:1", rewards={"components": []})
    folder = make_folder(job, "cpu")
    assert folder.config.rewards.components
    assert of_type(tmp_path / "run", "log")[0].message.startswith("No reward was chosen. Scored by ")


def test_what_verl_cannot_do_is_refused_before_anything_is_written(starter_folder: Path, tmp_path: Path) -> None:
    job = cpu_job(tmp_path / "run", starter_folder, "http://127.0.0.1:1", model={"lora_dropout": 0.1})
    with pytest.raises(ConfigError, match=r"model\.lora_dropout: verl would compare the policy with dropout"):
        make_folder(job, "cpu")
    job = cpu_job(tmp_path / "other", starter_folder, "http://127.0.0.1:1", hardware={"devices": 3})
    with pytest.raises(ConfigError, match=r"8 rollouts per step .* cannot be divided over 3 devices"):
        make_folder(job, "cpu")
    for name in ("run", "other"):
        assert not (tmp_path / name / "verl").exists() and events(tmp_path / name) == []


def test_vllm_has_room_for_prompt_and_episode_and_no_more(starter_folder: Path, tmp_path: Path) -> None:
    """By itself it would make room for the whole window of the model, and verl dies of one that is beyond it."""
    most = AutoConfig.from_pretrained(starter_folder).max_position_embeddings

    def made(name: str, **rollout: int) -> Any:
        groups = {"rollout": {"engine": "vllm", "max_prompt_tokens": 200, **rollout}}
        folder = make_folder(cpu_job(tmp_path / name, starter_folder, "http://127.0.0.1:1", **groups), "cuda")
        return yaml.safe_load((folder.path / "settings.yaml").read_text())["actor_rollout_ref"]["rollout"]

    assert made("fits", max_completion_tokens=most - 200)["max_model_len"] == most
    with pytest.raises(ConfigError, match=rf"{most + 1} tokens together, and the model's window is {most}"):
        made("beyond", max_completion_tokens=most - 199)


def test_a_job_with_lora_has_the_adapter_that_it_begins_with(starter_folder: Path, tmp_path: Path) -> None:
    job = cpu_job(tmp_path / "run", starter_folder, "http://127.0.0.1:1", model={"lora_rank": 4})
    job.resolved["model.revision"] = "c0ffee"
    folder = make_folder(job, "cpu")
    assert {path.name for path in folder.adapter.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    model = yaml.safe_load((folder.path / "settings.yaml").read_text())["actor_rollout_ref"]["model"]
    assert model["lora_adapter_path"] == str(folder.adapter)
    plan = folder.plan
    assert (plan.base, plan.resolved) == (starter_folder, {"model.revision": "c0ffee"}), "for the merge, and to resume"


def test_a_stop_is_a_file_that_every_host_sees(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "verl")
    folder.path.mkdir()
    assert not folder.asked_to_stop
    folder.ask_to_stop()
    assert folder.asked_to_stop and JobFolder(tmp_path / "verl").asked_to_stop
    folder.write(JobConfig.model_validate({"data": {"train": "x"}}), Plan(attempt=2, order=[], rows=0, eos_id=2))
    assert not folder.asked_to_stop, "another attempt in the same folder begins without it"


def test_the_journal_of_a_process_is_its_own(tmp_path: Path) -> None:
    place = JobFolder(tmp_path / "verl").own_journal
    assert place.parent == tmp_path / "actors" and place.name.rpartition("-")[2].isdigit()


def test_a_ray_of_this_machine_is_counted_and_that_of_a_cluster_is_not(starter_folder: Path, tmp_path: Path) -> None:
    for name, on_cluster in (("here", False), ("there", True)):
        job = cpu_job(tmp_path / name, starter_folder, "http://127.0.0.1:1", hardware={"devices": 2})
        folder = make_folder(job, "cpu", on_cluster=on_cluster)
        settings = yaml.safe_load((folder.path / "settings.yaml").read_text())
        assert ("ray_kwargs" in settings) is not on_cluster
        assert (settings["trainer"]["nnodes"], settings["trainer"]["n_gpus_per_node"]) == (1, 2)


def test_held_out_tasks_are_in_the_plan_and_not_trained_on(starter_folder: Path, tmp_path: Path) -> None:
    held_out = {"every": 1, "share": 0.2}
    job = cpu_job(tmp_path / "run", starter_folder, "http://127.0.0.1:1", evaluate=held_out, run={"max_steps": 30})
    plan = make_folder(job, "cpu").plan
    (event,) = of_type(tmp_path / "run", "tasks_held_out")
    assert plan.held_out == event.rows and len(plan.held_out) > 1
    assert set(plan.order) | set(plan.held_out) == set(range(24)) and not set(plan.order) & set(plan.held_out)
    assert plan.rows == 24 - len(plan.held_out)


def test_paths_are_whole_wherever_it_was_started(
    starter_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = cpu_job(tmp_path / "run", starter_folder, "http://127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    job.config = job.config.model_copy(update={"data": job.config.data.model_copy(update={"train": "run/rows.jsonl"})})
    assert make_folder(job, "cpu").config.data.train == str(tmp_path / "run" / "rows.jsonl")
