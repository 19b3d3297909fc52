"""A run of another trainer is uploaded, read by a limited child, and is shown in the browser with its figures."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from tests.working import claimed, done, perform
from training.config import JobConfig
from webapp.common.storage import import_dir
from webapp.foreign import importing as foreign
from webapp.foreign.models import ImportState, RunImport
from webapp.people.teams.models import Project, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutGroup
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
LOG = (
    b"2026-03-11 13:35:33,795\tINFO -- Started\n"
    b"\x1b[36m(TaskRunner pid=1)\x1b[0m step:1 - critic/score/mean:0.250 - actor/entropy:0.7 - val-core/x/acc:0.5\n"
    b"2026-03-11 13:36:33,795\tINFO -- more\n"
    b"step:2 - critic/score/mean:np.float64(0.75) - actor/grad_norm:nan\n"
)
PROMPT = "system\nYou count.\nuser\nWhat is 2+2?\nassistant\n"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 2}}\n</tool_call>\nuser\n4\nassistant\nIt is 4.\n'


def rollout(**over: Any) -> bytes:
    row = {"input": PROMPT, "output": CALL, "score": 1.0, "step": 2, "format": 0.5, "num_turns": 2, "gts": "4"} | over
    return json.dumps(row).encode() + b"\n"


DUMP = rollout() + rollout(output="5\n", score=0.0, format=None) + b"{broken\n" + rollout(score=float("nan"))


def upload(*files: tuple[str, bytes]) -> list[SimpleUploadedFile]:
    return [SimpleUploadedFile(name, data) for name, data in files]


def read(project: Project, user: User | None, *files: tuple[str, bytes], name: str = "") -> RunImport:
    return done(foreign.import_create(project=project, user=user, name=name, files=upload(*files)))


def test_the_form_asks_for_the_run_of_a_chart(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    client, address = client_for(bob), reverse("run-import", args=[project.slug])
    assert 'name="source_run"' in client.get(address).content.decode()
    chart = upload(("chart.csv", b"Step,a - loss,b - loss\n1,0.5,nan\n"))
    client.post(address, {"uploads": chart, "source_run": "b"})
    run = done(RunImport.objects.get()).run
    assert run is not None and MetricPoint.objects.get(run=run, name="loss").value != 0.5


def test_a_log_and_rollouts_become_a_run(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    item = read(project, bob, ("train.log", LOG), ("2.jsonl", DUMP), name="from verl")
    run = item.run
    assert run is not None and item.state == ImportState.DONE and not import_dir(item.pk).exists()
    assert (run.name, run.state, run.step, run.total_steps) == ("from verl", RunState.SUCCEEDED, 2, 2)
    assert (run.imported, run.imported_from, run.last_reward, run.created_by) == (True, "verl", 0.75, bob)
    assert ((run.finished_at - run.started_at).total_seconds(), run.step_seconds) == (60, None)
    points = {(p.name, p.step): p.value for p in MetricPoint.objects.filter(run=run)}
    assert (points["reward", 1], points["critic/score/mean", 1]) == (0.25, 0.25)
    assert (points["reward", 2], points["entropy", 1], points["val-core/x/acc", 1]) == (0.75, 0.7, 0.5)
    assert points["rewards/format/mean", 2] == 0.5 and points["rollouts/excluded", 2] == 1
    assert points["rollouts/num_turns/mean", 2] == 2 and ("rewards/num_turns/mean", 2) not in points
    first, second, missing = Rollout.objects.filter(run=run).order_by("index")
    assert (first.reward, first.parts, first.turns) == (1.0, {"format": 0.5, "num_turns": 2.0}, 2)
    assert (second.reward, second.parts["format"]) == (0.0, None)
    assert (missing.status, missing.reward, missing.advantage) == ("excluded", None, None)
    assert first.advantage == pytest.approx(0.5 / (0.5**0.5 + 1e-4)) == -second.advantage
    assert RolloutGroup.objects.get(run=run).reward_mean == 0.5
    turns = [turn.messages for turn in first.turn_set.all()]
    assert [[m["role"] for m in turn] for turn in turns] == [["system", "user"], ["assistant"], ["user"], ["assistant"]]
    assert turns[1][0]["tool_calls"] == [{"id": "call_0_0", "name": "add", "arguments": {"a": 2, "b": 2}}]
    report = item.report
    assert [(f["rows_in"], f["rows"], f["bad_rows"]) for f in report["files"]] == [(2, 2, 0), (4, 3, 1)]
    assert (report["bad"][0]["file"], report["bad"][0]["line"]) == ("2.jsonl", 3)
    assert report["files"][1]["left_out"] == {} and first.expected == "4"
    text = client_for(bob).get(reverse("rollout-detail", args=[project.slug, first.pk])).content.decode()
    assert "Expected answer" in text and "data-expected>4<" in text
    assert client_for(bob).get(f"/api/v1/rollouts/{first.pk}").json()["expected"] == "4"
    again = read(project, bob, ("renamed.log", LOG), ("2.jsonl", DUMP))
    assert (again.run, again.is_new, Run.objects.count()) == (run, False, 1)
    _pages(client_for(bob), project, item, run)


def _pages(client: Client, project: Project, item: RunImport, run: Run) -> None:
    shown = client.get(reverse("run-import-detail", args=[project.slug, item.pk])).content.decode()
    assert "the key" not in shown and "not valid JSON" in shown and "critic/score/mean" in shown
    page = client.get(reverse("run-detail", args=[project.slug, run.pk])).content.decode()
    assert "imported from verl" in page and "What was read" in page and 'data-tab="rollouts"' in page
    for absent in ('id="run-stop"', 'id="run-pause"', "runs/new/?from=", 'data-metric="kl"', "None yet."):
        assert absent not in page
    assert "do not show for how long it held a device" in page, "reading the files is no cost"
    assert "val-core/x/acc" in page  # named to the script as a chart of its own
    (line,) = client.get(f"/api/v1/projects/{project.slug}/runs").json()["items"]
    assert line["device_seconds"] is None
    assert "imported from verl" not in client.get(reverse("run-list", args=[project.slug])).content.decode()
    assert ">verl</span>" in client.get(reverse("run-list", args=[project.slug])).content.decode()


def test_what_was_read_is_shown_in_the_readers_language(
    project: Project, bob: User, client_for: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each template is translated and its values stay; a report that was stored without templates stays English."""
    log = b"step:1 - reward:0.5 - broken - mean:2\nstep:1.5 - a:1\n"
    read(project, bob, ("train.log", log), ("2.jsonl", DUMP + rollout(note="x")))
    read(project, bob, ("run.csv", b"a,b\n1,2\n"))
    monkeypatch.setattr("webapp.common.text._", lambda text: f"〔{text}〕".replace(" ", "·"))
    page, refused = (_page(client_for(bob), project, state) for state in (ImportState.DONE, ImportState.REJECTED))
    for sentence in (
        "〔its·step·is·&#x27;1.5&#x27;,·not·a·whole·number·from·0〕",
        "〔&#x27;broken&#x27;·is·not·a·name·with·a·number〕",
        "〔not·valid·JSON:·〔〔a·name·in·double·quotes·is·missing〕·at·character·2〕〕",
        "〔Texts·were·split·into·turns·at·the·markers·of·〔plain·roles〕.〕",
        "〔it·holds·texts·or·lists,·which·a·rollout·cannot·store〕",
    ):
        assert sentence in page
    assert "〔run.csv:·〔The·table·has·no·column·of·steps;·its·columns·are·&#x27;a, b&#x27;.〕〕 〔Name·one" in refused
    for item in RunImport.objects.all():
        item.report = _without(item.report, "told")
        item.save(update_fields=["report"])
    page, refused = (_page(client_for(bob), project, state) for state in (ImportState.DONE, ImportState.REJECTED))
    assert "at character 2" in page and "at the markers of plain roles." in page and "step is &#x27;1.5&#x27;," in page
    assert "run.csv: The table has no column of steps; its columns are &#x27;a, b&#x27;. Name one" in refused


def _page(client: Client, project: Project, state: str) -> str:
    item = RunImport.objects.get(state=state)
    return client.get(reverse("run-import-detail", args=[project.slug, item.pk])).content.decode()


def _without(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [_without(item, name) for item in value]
    if isinstance(value, dict):
        return {key: _without(item, name) for key, item in value.items() if key != name}
    return value


def test_a_table_alone_has_no_empty_boxes(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    item = read(project, bob, ("wandb.csv", b'"Step","r1 - train/reward","r1 - train/reward__MIN"\n1,0.5,0\n2,0.6,0\n'))
    assert item.run is not None and item.run.imported_from == "TRL"
    assert item.run.started_at is None  # the table has no times, so there is no duration of 0 s
    payloads = " ".join(str(event.payload) for event in item.run.events.all())
    assert "no end" not in payloads and "final model" not in payloads
    page = client_for(bob).get(reverse("run-detail", args=[project.slug, item.run.pk]) + "?tab=rollouts")
    assert 'data-tab="rollouts"' not in page.content.decode() and 'id="ended-reward"' in page.content.decode()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([("a.txt", b"hello\nworld\n")], "a.txt: This is not a known file of a run"),
        ([("run.csv", b"a,b\n1,2\n")], "run.csv: The table has no column of steps; its columns are 'a, b'"),
        ([("x.pkl", b"\x80\x04\x95abc")], "x.pkl: The file is a Python pickle"),
        ([("2.jsonl", b'{"input": "a", "output": 1}\n')], "None of the 1 rows can be used. 2.jsonl, line 1"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(project: Project, bob: User, files: Any, words: str) -> None:
    item = read(project, bob, *files)
    assert (item.state, item.run, Run.objects.count()) == (ImportState.REJECTED, None, 0)
    assert words in item.report["message"] and not import_dir(item.pk).exists()


def test_the_addresses(
    project: Project, bob: User, rita: User, charlie: User, client_for: Callable[..., Client], settings: Any
) -> None:
    new = reverse("run-import", args=[project.slug])
    made = client_for(bob).post(new, {"name": "", "uploads": upload(("train.log", LOG), ("2.jsonl", DUMP))})
    item = RunImport.objects.get()
    detail = reverse("run-import-detail", args=[project.slug, item.pk])
    assert (made.status_code, made["Location"], len(item.files)) == (302, detail, 2)
    assert b"Waiting for a worker" in client_for(rita).get(detail).content
    progress = client_for(rita).get(detail + "progress/")
    assert progress.status_code == 200 and "HX-Refresh" not in progress
    assert client_for(rita).post(new).status_code == 403 and client_for(rita).get(new).status_code == 403
    assert client_for(charlie).get(detail).status_code == 404 and client_for(charlie).post(new).status_code == 404
    assert client_for(None).get(detail).status_code == 302 and client_for(bob).put(new).status_code == 405
    for body in ({}, {"uploads": upload(("empty.log", b""))}, {"name": "/../x", "uploads": upload(("a.log", LOG))}):
        assert client_for(bob).post(new, body).status_code == 422
    assert client_for(bob, enforce_csrf_checks=True).post(new, {"uploads": upload(("a", LOG))}).status_code == 403
    settings.MAX_UPLOAD_BYTES = 10
    answer = client_for(bob).post(new, {"uploads": upload(("a.log", LOG))}, headers={"Accept": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert RunImport.objects.count() == 1


def test_a_lost_import_is_taken_once(project: Project, bob: User) -> None:
    item = foreign.import_create(project=project, user=bob, name="", files=upload(("train.log", LOG)))
    first = claimed(item)
    RunImport.objects.update(token="")  # as ``look`` leaves one whose worker fell silent
    second = claimed(item)
    perform(first)  # the first worker wakes up: the import is no longer its own
    assert RunImport.objects.get().state == ImportState.READING and Run.objects.count() == 0
    perform(second)
    assert RunImport.objects.get().state == ImportState.DONE and Run.objects.count() == 1
    assert not import_dir(item.pk).exists()


def test_a_run_is_exported_for_verl(
    project: Project, bob: User, charlie: User, client_for: Callable[..., Client], make_run: Any, make_dataset: Any
) -> None:
    dataset = make_dataset([{"messages": [{"role": "user", "content": "2+2?"}], "ground_truth": "4"}] * 3)
    values = {
        "data": {"train": dataset.reference},
        "model": {"source": "Qwen/Qwen3-0.6B"},
        "environment": {"url": "http://10.1.2.3:9", "options": {"token": "geheim"}},
        "rewards": {"components": [{"name": "exact", "weight": 0.5}]},
        "grpo": {"beta": 0.04},
    }
    run = make_run(name="nachtlauf 一", config=JobConfig.model_validate(values))
    address = reverse("run-verl", args=[project.slug, run.pk])
    answer = client_for(bob).get(address)
    assert "filename*=utf-8''nachtlauf%20%E4%B8%80-verl.zip" in answer["Content-Disposition"]
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    assert archive.namelist() == ["train.parquet", "config.yaml", "reward.py", "README.txt"]
    text = archive.read("config.yaml").decode()
    options = yaml.safe_load(text)
    actor = options["actor_rollout_ref"]["actor"]
    assert (actor["use_kl_loss"], actor["kl_loss_coef"], options["data"]["train_batch_size"]) == (True, 0.04, 8)
    assert options["actor_rollout_ref"]["model"]["path"] == "Qwen/Qwen3-0.6B"
    everything = text + archive.read("README.txt").decode()
    assert "# reward component exact (exact), weight 0.5" in text
    assert not [secret for secret in ("geheim", "10.1.2.3", str(dataset.rows_path)) if secret in everything]
    import pyarrow.parquet as pq

    rows = pq.read_table(io.BytesIO(archive.read("train.parquet"))).to_pylist()
    assert len(rows) == 3 and rows[0]["reward_model"]["ground_truth"] == "4"
    assert client_for(charlie).get(address).status_code == 404
    run.config["data"]["train"] = "dataset:gone@1"
    run.save(update_fields=["config"])
    assert client_for(bob).get(address).status_code == 302
