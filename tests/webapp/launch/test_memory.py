"""The memory of a job next to its form: what it depends on, who works it out, what the card and the YAML do."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.webapp.launch.test_launch import _data as form_of
from tests.working import claimed, done
from training.config import JobConfig
from training.memory.devices import GIB
from training.presets import presets
from webapp.common.work import Lost
from webapp.common.workers.models import Worker
from webapp.launch import estimates
from webapp.launch.estimates import decisive, device_default, device_known, estimate_begin, estimate_make, own_devices
from webapp.launch.models import MemoryEstimate
from webapp.people.teams.models import Project, User
from webapp.runs.states import RunState

Clients = Callable[..., Client]
pytestmark = pytest.mark.django_db
# What the command prints for a job that does not fit, with figures that are easy to add up.
ANSWER: dict[str, Any] = {
    "device": {"title": "NVIDIA H100 80 GB", "bytes": 80 * GIB},
    "terms": [
        {"term": "weights", "title": "Weights", "part": "kept", "bytes": 30 * GIB, "why": "w", "told": {
            "template": "{count} weights of {size} bytes", "values": {"count": "8,000", "size": 4}}},
        {"term": "activations", "title": "Activations", "part": "learning", "bytes": 90 * GIB, "why": "a", "told": {
            "template": "{rows} rows of {tokens} tokens", "values": {"rows": 64, "tokens": "1,536"}}},
        {"term": "cache", "title": "Key-value cache of the rollouts", "part": "sampling", "bytes": 10 * GIB,
         "why": "c", "told": {"template": "cast once for a step's sampling", "values": {}}},
    ],
    "learning": 120 * GIB, "sampling": 40 * GIB, "whole": 120 * GIB, "fits": False,
    "verdict": "v", "hint": "h",
    "change": {"optim.micro_batch_size": 4, "model.gradient_checkpointing": True}, "changed": 70 * GIB,
    "told": {
        "verdict": {"template": "It needs about {need}, and {device} has {all}.",
                    "values": {"need": "120.0 GiB", "device": "NVIDIA H100 80 GB", "all": "80.0 GiB"}},
        "hint": {"template": "Choose a smaller model, or shorter rollouts.", "values": {}},
    },
}  # fmt: skip


def job(**model: Any) -> JobConfig:
    return JobConfig.model_validate({"kind": "grpo", "model": {"source": "Qwen/Qwen3-8B"} | model})


def asked(project: Project, user: User, config: JobConfig, device: str = "h100") -> MemoryEstimate:
    row = estimate_begin(project=project, user=user, config=config, device=device).row
    assert row is not None
    return row


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[MemoryEstimate]:
    """The estimates that a worker made; each is ``ANSWER``."""
    made: list[MemoryEstimate] = []

    def answer(claim: Any) -> dict[str, Any]:
        made.append(claim.item)
        return ANSWER

    monkeypatch.setattr(estimates, "_run_estimate", answer)
    return made


def card(client: Client, project: Project, data: dict[str, Any]) -> Any:
    return client.post(reverse("run-memory", args=[project.slug]), data)


def _gpu_worker(name: str, gpu: str, gib: float, **over: Any) -> None:
    fields = {"queues": ["train"], "beat_at": timezone.now(), "started_at": timezone.now(), "pid": 1}
    Worker.objects.create(name=name, gpu=gpu, gpu_bytes=round(gib * GIB), **(fields | over))


# --- What it depends on ---------------------------------------------------------------------------------------------
def test_only_what_decides_about_memory_is_asked_again(project: Project, bob: User) -> None:
    first = asked(project, bob, job())
    same = job()
    same.data.train, same.environment.name, same.rewards.spec = "dataset:x@1", "environment:y", "reward:z@1"
    same.run.max_steps, same.run.seed, same.evaluate.every, same.evaluate.share = 7, 9, 5, 0.1
    assert asked(project, bob, same) == first
    others = [
        (job(lora_rank=8), "h100"),
        (job(dtype="bfloat16"), "h100"),
        (job(gradient_checkpointing=True), "h100"),
        (job(source="Qwen/Qwen3-4B"), "h100"),
        (job(), "a100"),
        (job(), "Box=40"),
        (job().model_copy(update={"kind": "sft"}), "h100"),
    ]
    for path, value in (("optim.micro_batch_size", 4), ("rollout.max_completion_tokens", 2048), ("grpo.beta", 0.1)):
        changed = job().model_dump()
        group, _dot, name = path.partition(".")
        changed[group][name] = value
        others.append((JobConfig.model_validate(changed), "h100"))
    rows = {asked(project, bob, config, device).pk for config, device in others}
    assert len(rows) == len(others) and first.pk not in rows


def test_every_preset_is_asked_with_all_its_stages(project: Project) -> None:
    for preset in presets().values():
        for size in preset.sizes:
            config = preset.config_for(size)
            found = decisive(config, "starter")
            again = JobConfig.model_validate(found.model_dump(mode="json"))
            assert [course.rollouts_per_step for course in again.courses] == [
                course.rollouts_per_step for course in config.courses
            ]
            assert [course.rollout.max_completion_tokens for course in again.courses] == [
                course.rollout.max_completion_tokens for course in config.courses
            ]
            assert (again.optim, again.kind, again.model.lora_rank) == (
                config.optim,
                config.kind,
                config.model.lora_rank,
            )


def test_a_folder_that_changed_is_read_again(project: Project, bob: User, make_model_folder: Any) -> None:
    folder, reference = make_model_folder()
    first = asked(project, bob, job(source=reference))
    assert first.config["model"]["source"] == str(folder)
    assert asked(project, bob, job(source=reference)) == first
    (folder / "config.json").write_text('{"model_type": "llama", "n": 1}')
    assert asked(project, bob, job(source=reference)) != first


@pytest.fixture
def make_model_folder(project: Project, settings: Any, tmp_path: Path) -> Callable[[], tuple[Path, str]]:
    def make() -> tuple[Path, str]:
        from webapp.runs.registry.models import ModelKind, RegisteredModel

        settings.MODELS_DIR = str(tmp_path)
        folder = tmp_path / "tiny"
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "llama"}')
        made = RegisteredModel.objects.create(project=project, name="tiny", kind=ModelKind.FOLDER, source="tiny")
        return folder, made.reference

    return make


def test_a_run_that_still_trains_has_the_shape_of_its_base(project: Project, bob: User, make_run: Any) -> None:
    make_run(name="warm", kind="sft", config=job(source="Qwen/Qwen3-4B"), state=RunState.RUNNING)
    make_run(name="next", config=job(source="run:warm"), state=RunState.QUEUED)
    assert asked(project, bob, job(source="run:next")).config["model"]["source"] == "Qwen/Qwen3-4B"


# --- One at a time, and for a day -----------------------------------------------------------------------------------
def test_a_person_has_one_estimate_at_a_time(project: Project, bob: User, alice: User, counted: Any) -> None:
    first, hers = asked(project, bob, job()), asked(project, alice, job(lora_rank=4))
    taken = claimed(first)
    second = asked(project, bob, job(lora_rank=8))
    first.refresh_from_db()
    hers.refresh_from_db()
    assert (first.state, second.state, hers.state) == ("dropped", "open", "open")
    with pytest.raises(Lost):
        estimate_make(taken)
    done(second)
    assert asked(project, alice, job(lora_rank=8)) == second, "what one person had worked out another one finds"
    assert asked(project, bob, job()).pk != first.pk


def test_an_answer_is_kept_for_a_day(project: Project, bob: User, counted: Any) -> None:
    row = done(asked(project, bob, job()))
    assert row.state == "done" and row.answer == ANSWER
    MemoryEstimate.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(hours=25))
    assert asked(project, bob, job()).pk != row.pk
    assert not MemoryEstimate.objects.filter(pk=row.pk).exists(), "what is not found any more is deleted"


def test_a_failure_is_tried_again_after_two_minutes(
    project: Project, bob: User, client_for: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"code": "model_unusable", "boundary": "model", "message": "it cannot be traced", "hint": ""}
    monkeypatch.setattr(estimates, "_run_estimate", lambda claim: {"error": error})
    row = done(asked(project, bob, job()))
    assert row.state == "failed"
    assert asked(project, bob, job()) == row
    page = client_for(bob).get(reverse("run-memory-part", args=[project.slug, row.pk])).content.decode()
    assert "it cannot be traced" in page and "data-memory-again" in page
    MemoryEstimate.objects.update(ended_at=timezone.now() - timedelta(minutes=3))
    assert asked(project, bob, job()) != row


def test_they_are_worked_out_one_after_the_other(project: Project, bob: User, alice: User, counted: Any) -> None:
    first, second = asked(project, bob, job()), asked(project, alice, job(lora_rank=4))
    taken = claimed(first)
    assert (done(second).state, second.token, counted) == ("open", "", []), "it waits, and costs no worker"
    estimate_make(taken)
    assert done(second).state == "done" and len(counted) == 2


def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setattr(estimates.sys, "executable", str(script))


def test_the_worker_asks_the_trainer_with_the_device(
    project: Project, bob: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    (tmp_path / "answer").write_text(json.dumps(ANSWER))
    _program(tmp_path, monkeypatch, f'cp "$4" {tmp_path}/sent; echo "$@" > {tmp_path}/argv; env > {tmp_path}/env\n'
             f"cat {tmp_path}/answer; exit 1")  # fmt: skip
    row = done(asked(project, bob, job(lora_rank=8), "Our box=12.5"))
    assert row.state == "done" and row.answer["whole"] == 120 * GIB
    sent = yaml.safe_load((tmp_path / "sent").read_text())
    assert (sent["model"]["source"], sent["model"]["lora_rank"]) == ("Qwen/Qwen3-8B", 8)
    assert (tmp_path / "argv").read_text().strip().endswith("--json --device=Our box=12.5")
    assert "DATABASE_URL" not in (tmp_path / "env").read_text()


def test_the_trainers_own_answer_is_kept(project: Project, bob: User) -> None:
    """Qwen3-8B has 8,190,735,360 weights: 36 layers of 192,946,432, two tables of 151,936 × 4,096, and a norm."""
    row = done(asked(project, bob, job()))
    weights = next(term for term in row.answer["terms"] if term["term"] == "weights")
    assert (row.state, row.answer["device"]["title"]) == ("done", "NVIDIA H100 80 GB")
    assert weights["bytes"] == 4 * 8_190_735_360


@pytest.mark.parametrize("text", ["echo nothing", "echo '[]'", "exit 3", "echo '{\"a\": 1}'"])
def test_a_program_that_says_nothing_is_a_failure(
    project: Project, bob: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    _program(tmp_path, monkeypatch, text)
    row = done(asked(project, bob, job()))
    assert row.state == "failed"
    assert row.answer["error"]["message"] == "Memory could not be estimated on this server."


def test_a_program_that_no_request_waits_for_is_ended(
    project: Project, bob: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    monkeypatch.setattr(estimates, "LOOK_S", 0.05)
    taken = claimed(asked(project, bob, job()))
    MemoryEstimate.objects.filter(pk=taken.item.pk).update(state="dropped", token="")
    with pytest.raises(Lost):
        estimate_make(taken)
    pid = (tmp_path / "pid").read_text().strip() if (tmp_path / "pid").exists() else ""
    assert not pid or not Path(f"/proc/{pid}").exists()


def test_a_program_that_takes_too_long_is_ended(
    project: Project, bob: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(estimates, "LOOK_S", 0.05)
    monkeypatch.setattr(estimates, "CHILD_LIMIT_S", 0.2)
    row = done(asked(project, bob, job()))
    assert row.state == "failed" and row.answer["error"]["message"].startswith("It took longer than")


# --- Devices --------------------------------------------------------------------------------------------------------
def test_the_default_device(project: Project) -> None:
    webshop = presets()["webshop"]
    assert device_default() == "cpu"
    assert device_default(job(), webshop) == "h100"
    _gpu_worker("small", "Tesla T4", 15.0, gpu_capability="7.5")
    _gpu_worker("large", "NVIDIA A100-SXM4-80GB", 79.2)
    _gpu_worker("gone", "NVIDIA H200", 139.8, beat_at=timezone.now() - timedelta(days=1))
    _gpu_worker("web", "NVIDIA H200", 139.8, queues=["short"])
    assert device_default(job()) == "NVIDIA A100-SXM4-80GB=79.2"
    assert [item.key for item in own_devices()] == ["NVIDIA A100-SXM4-80GB=79.2", "Tesla T4=15.0@7.5", "cpu"]
    cpu = job()
    cpu.run.device = "cpu"
    assert device_default(cpu, webshop) == "cpu", "where the job itself asks for the processor"


@pytest.mark.parametrize("key", ["h100", "cpu", "Our box=12.5", "NVIDIA A100-SXM4-80GB=79.2", "Tesla T4=15@7.5"])
def test_devices_that_are_known(key: str) -> None:
    assert device_known(key)


def test_devices_that_are_none() -> None:
    keys = ["", "x\n=3", "abacus", "x=", "x=0", "x=0.0", "x=0@7.5", "x=5@7", "x=-3", "=3", "x=1e9", "-x=3", "x=٣"]
    assert [key for key in [*keys, "x=1234567"] if device_known(key)] == []


# --- The card -------------------------------------------------------------------------------------------------------
def test_the_card_follows_a_form_without_data(project: Project, bob: User, client_for: Clients, counted: Any) -> None:
    client = client_for(bob)
    data = form_of(project, job(), memory_device="h100")
    first = card(client, project, data)
    assert first.status_code == 200
    row = MemoryEstimate.objects.get()
    part = reverse("run-memory-part", args=[project.slug, row.pk])
    assert part in first.content.decode() and (row.device, row.config["kind"]) == ("h100", "grpo")
    done(row)
    text = client.get(part).content.decode()
    assert "It needs about 120.0 GiB, and NVIDIA H100 80 GB has 80.0 GiB." in text
    for shown in ("30.0 GiB", "90.0 GiB", "10.0 GiB", "120.0 GiB in all", "40.0 GiB in all", "64 rows of 1,536 tokens"):
        assert shown in text, shown
    assert 'data-level="short"' in text and "Micro batch" in text and "Gradient checkpointing: on" in text
    assert "{&quot;optim.micro_batch_size&quot;: 4, &quot;model.gradient_checkpointing&quot;: true}" in text
    assert text.index("While learning") > text.index("Kept for the whole run")
    assert text.count("data-largest") == 1 and "data-largest" in text[: text.index("While learning")]
    again = card(client, project, data).content.decode()
    assert "Weights" in again and part not in again and len(counted) == 1, "the second time it is known at once"


def test_the_table_of_before_stays_until_there_is_another(
    project: Project, bob: User, client_for: Clients, counted: Any
) -> None:
    client, row = client_for(bob), done(asked(project, bob, job()))
    data = form_of(project, job(lora_rank=8), memory_device="h100", memory_shown=str(row.pk))
    text = card(client, project, data).content.decode()
    assert "data-old" in text and "Weights" in text and "data-set" not in text
    fresh = MemoryEstimate.objects.get(state="open")
    part = reverse("run-memory-part", args=[project.slug, fresh.pk])
    assert "data-old" in client.get(part, {"shown": str(row.pk)}).content.decode()
    assert "data-old" not in client.get(part, {"shown": "x"}).content.decode()


def test_what_the_form_has_wrong_is_reported(project: Project, bob: User, client_for: Clients) -> None:
    data = form_of(project, job(), **{"rollout.num_generations": "1", "run.max_steps": "no number"})
    text = card(client_for(bob), project, data).content.decode()
    assert "a group needs at least 2 rollouts" in text and "whole number" not in text
    data = form_of(project, job(), **{"optim.micro_batch_size": "7"})
    assert "cannot be divided into micro batches of 7" in card(client_for(bob), project, data).content.decode()
    text = card(client_for(bob), project, form_of(project, job(source="model:gone"))).content.decode()
    assert "there is no model “gone”" in text
    assert not MemoryEstimate.objects.exists()


def test_a_base_that_is_not_known(project: Project, bob: User, client_for: Clients) -> None:
    text = card(client_for(bob), project, form_of(project, job(source="acme/mystery-9b"))).content.decode()
    assert (
        "The shape of acme/mystery-9b is not known here" in text and reverse("model-new", args=[project.slug]) in text
    )
    assert not MemoryEstimate.objects.exists()


def test_nothing_is_held_where_policies_play(project: Project, bob: User, client_for: Clients) -> None:
    config = JobConfig.model_validate({"kind": "sample", "sample": {"policies": ["empty"]}})
    text = card(client_for(bob), project, form_of(project, config)).content.decode()
    assert "Nothing is held on a device" in text
    assert not MemoryEstimate.objects.exists()


def test_each_of_several_devices(project: Project, bob: User, client_for: Clients) -> None:
    """The card shows the verdict of each device, and how far the table was checked; the API has both."""
    config = job()
    config.hardware.devices = 2
    client, form = client_for(bob), form_of(project, config, memory_device="h100")
    card(client, project, form)
    row = MemoryEstimate.objects.get()
    assert row.config["hardware"]["devices"] == 2
    done(row)
    text = card(client, project, form).content.decode()
    assert "each of 2 × NVIDIA H100 80 GB" in text and "Gathered weights" in text
    note = "Weights, gradients and optimiser are counted as verl divides them"
    assert note in text
    table = client.get(f"/api/v1/memory-estimates/{row.pk}").json()["table"]
    assert table["devices"] == 2 and table["note"].startswith(note)
    config.hardware.devices = 1
    alone = form_of(project, config, memory_device="h100")
    card(client, project, alone)
    done(MemoryEstimate.objects.exclude(pk=row.pk).get())
    text = card(client, project, alone).content.decode()
    assert note not in text and "each of" not in text


def test_the_page_of_a_new_run_offers_devices(project: Project, bob: User, client_for: Clients) -> None:
    client, page = client_for(bob), reverse("run-new", args=[project.slug])
    _gpu_worker("one", "NVIDIA L4", 22.5)
    text = client.get(page).content.decode()
    assert '<option value="NVIDIA L4=22.5" selected>NVIDIA L4 · 22.5 GiB</option>' in text
    assert "Full size fits 8 × NVIDIA H100 80 GB" in text and "Full size fits NVIDIA A100 80 GB" in text
    text = client.get(page, {"preset": "webshop", "size": "full"}).content.decode()
    assert '<option value="h100" selected>' in text
    answer = client.post(reverse("run-yaml", args=[project.slug]), {"yaml": "kind: sft\n", "memory_device": "a100"})
    assert '<option value="a100" selected>' in answer.content.decode(), "the device goes with the form"


def test_strangers_and_anonymous(project: Project, charlie: User, rita: User, client_for: Clients) -> None:
    row = MemoryEstimate.objects.create(project=project, digest="d", config={}, device="cpu")
    part = reverse("run-memory-part", args=[project.slug, row.pk])
    data = form_of(project, job(), memory_device="h100")
    assert card(client_for(charlie), project, data).status_code == 404
    assert client_for(charlie).get(part).status_code == 404
    assert card(client_for(None), project, data).status_code == 302
    assert card(client_for(rita), project, data).status_code == 200, "who may look at the form may look at its memory"
    assert client_for(rita).get(reverse("run-memory", args=[project.slug])).status_code == 405
    assert client_for(rita).post(part).status_code == 405


# --- YAML -----------------------------------------------------------------------------------------------------------
def test_a_yaml_text_is_judged_and_changed_in_place(
    project: Project, bob: User, client_for: Clients, counted: Any
) -> None:
    client = client_for(bob)
    text = "# ours\nkind: grpo\nmodel:\n  source: Qwen/Qwen3-8B  # the base\n"
    card(client, project, {"yaml": text, "memory_device": "h100"})
    done(MemoryEstimate.objects.get())
    shown = card(client, project, {"yaml": text, "memory_device": "h100"}).content.decode()
    assert 'name="set"' in shown and "data-set" not in shown
    values = '{"optim.micro_batch_size": 4, "model.gradient_checkpointing": true}'
    page = client.post(reverse("run-yaml", args=[project.slug]), {"yaml": text, "set": values}).content.decode()
    assert "# the base" in page and "micro_batch_size: 4" in page and "gradient_checkpointing: true" in page
    wrong = card(client, project, {"yaml": "kind: grpo\nmodel:\n  lora_rank: -1\n"}).content.decode()
    assert "Line 3: LoRA rank" in wrong


def test_a_change_that_a_stage_hides_is_only_reported(
    project: Project, bob: User, client_for: Clients, counted: Any
) -> None:
    stages = [
        {"name": "one", "until_step": 5, "optim": {"micro_batch_size": 8}, "data": {"train": "x"}},
        {"name": "two", "data": {"train": "y"}},
    ]
    config = job().model_dump() | {"curriculum": {"stages": stages}}
    row = done(asked(project, bob, JobConfig.model_validate(config)))
    text = client_for(bob).get(reverse("run-memory-part", args=[project.slug, row.pk])).content.decode()
    assert "The smallest change that fits" in text and "data-set" not in text


# Whose an estimate is: a project's, and while it is worked out, a person's.


@pytest.fixture
def second(project: Project) -> Project:
    """Another project of the same team."""
    return Project.objects.create(team=project.team, name="Second", slug="second")


def test_projects_share_nothing(project: Project, second: Project, bob: User, client_for: Clients) -> None:
    """A base may mean another folder there, and who reads the one need not read the other."""
    row = asked(project, bob, job())
    MemoryEstimate.objects.filter(pk=row.pk).update(state="done", answer={"terms": []})
    assert asked(second, bob, job()).pk != row.pk
    assert client_for(bob).get(reverse("run-memory-part", args=[second.slug, row.pk])).status_code == 404


def test_what_is_worked_out_for_one_person_is_not_taken_from_another(project: Project, bob: User, alice: User) -> None:
    first, hers = asked(project, bob, job()), asked(project, alice, job())
    assert first.pk != hers.pk
    asked(project, bob, job(lora_rank=8))
    hers.refresh_from_db()
    assert hers.state == "open"


def test_a_page_shows_no_table_of_another_project_while_it_waits(
    project: Project, second: Project, bob: User, client_for: Clients, counted: list[Any]
) -> None:
    theirs, here = done(asked(project, bob, job())), done(asked(second, bob, job()))
    waiting = asked(second, bob, job(lora_rank=8))
    part = reverse("run-memory-part", args=[second.slug, waiting.pk])
    assert "data-old" in client_for(bob).get(part, {"shown": str(here.pk)}).content.decode()
    assert "data-old" not in client_for(bob).get(part, {"shown": str(theirs.pk)}).content.decode()
