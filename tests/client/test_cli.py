"""``tiltyard`` against a real site: what it prints, what it leaves, and how it ends."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from django.utils import timezone
from tiltyard_client import cli, connection, runs
from tiltyard_client.api import Refused, Tiltyard, Unreachable
from typer.testing import CliRunner

from tests.client.conftest import Tool, answered
from tests.working import done
from webapp.common.host import free_port
from webapp.common.workers.models import Worker
from webapp.datasets.models import Dataset
from webapp.engine.history import event_add
from webapp.foreign.models import RunExport
from webapp.people.teams.models import Project, User
from webapp.people.teams.tokens import token_create
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[2]


# --- Login ----------------------------------------------------------------------------------------------------------
def test_a_login_is_kept_for_its_owner_alone(home: Path, site: str, bob: User, project: Project) -> None:
    text = token_create(user=bob, name="laptop", role="viewer", days=7)[1]
    result = CliRunner().invoke(cli.app, ["login", site], input=f"{text}\n")
    assert result.exit_code == 0 and "Logged in as bob, project joust." in result.stdout
    kept = home / "config/tiltyard/client.json"
    assert kept.stat().st_mode & 0o777 == 0o600 and connection.stored() == (site, text, "joust")
    shown = CliRunner().invoke(cli.app, ["token", "--json"])
    assert answered(shown)["token"]["role"] == "viewer"
    assert "laptop" in CliRunner().invoke(cli.app, ["token"]).stdout


@pytest.mark.parametrize(("words", "code"), [(["--token", "tiltyard_x"], 4), (["--token", ""], 4)])
def test_a_token_that_does_not_hold_is_not_kept(home: Path, site: str, words: list[str], code: int) -> None:
    result = CliRunner().invoke(cli.app, ["login", site, *words], input="\n")
    assert result.exit_code == code and not (home / "config/tiltyard/client.json").exists()


def test_a_project_that_is_not_there_is_named(home: Path, site: str, bob: User, project: Project) -> None:
    text = token_create(user=bob, name="laptop", role="viewer")[1]
    result = CliRunner().invoke(cli.app, ["login", site, "--token", text, "--project", "nope"])
    assert result.exit_code == 1 and "There are: joust" in result.stderr


def test_without_a_login_there_is_a_sentence(home: Path) -> None:
    result = CliRunner().invoke(cli.app, ["run", "list"])
    assert result.exit_code == 4 and "tiltyard login" in result.stderr


def test_a_site_that_is_away_is_exit_code_3(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("TILTYARD_TOKEN", "tiltyard_x")
    result = CliRunner().invoke(cli.app, ["project", "list"])
    assert result.exit_code == 3 and "does not answer" in result.stderr


def test_a_stored_token_is_not_sent_to_another_site(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_URL", "http://127.0.0.1:1")
    assert connection.place().token == "" and tool("project", "list").exit_code == 4


def test_a_revoked_token_is_exit_code_4(tool: Tool, bob: User) -> None:
    bob.tokens.update(revoked_at="2020-01-01T00:00Z")
    result = tool("project", "list")
    assert result.exit_code == 4 and "does not take this token" in result.stderr


def test_a_queued_run_says_its_place(tool: Tool, make_run: Any) -> None:
    now = timezone.now()
    Worker.objects.create(name="train@a", queues=["train"], started_at=now, beat_at=now)
    fields = {"state": "running", "total_steps": 10, "step_seconds": 60.0, "lease_beat_at": now}
    make_run(name="warm-up", lease_worker="train@a", **fields)
    make_run(name="mine", state="queued", queued_at=now)
    make_run(name="checked", phase="checking")
    lines = tool("run", "list").stdout.splitlines()
    assert any("mine" in line and "queued: next in line · about 10 min" in line for line in lines), lines
    assert any("checked" in line and "being checked" in line and "draft" not in line for line in lines), lines
    shown = tool("run", "show", "mine").stdout
    assert "Next in line: starts in about 10 min." in shown and "train@a has warm-up" in shown
    assert answered(tool("run", "show", "mine", "--json"))["queue"]["place"] == 1
    assert "queue" not in tool("run", "show", "warm-up").stdout


# --- Runs -----------------------------------------------------------------------------------------------------------
def test_a_run_is_launched_listed_and_stopped(tool: Tool, home: Path, make_dataset: Any, make_environment: Any) -> None:
    data, environment = make_dataset(), make_environment()
    job = f"data:\n  train: {data.reference}\nenvironment:\n  name: {environment.reference}\nrun:\n  max_steps: 7\n"
    (home / "job.yaml").write_text(job)
    made = answered(tool("run", "launch", "-f", "job.yaml", "--name", "night-1", "--json"))
    assert Run.objects.get().name == made["name"] == "night-1" and made["total_steps"] == 7
    assert [row["name"] for row in answered(tool("run", "list", "--json"))] == ["night-1"]
    assert "night-1" in tool("run", "list").stdout and "0 of 7" in tool("run", "show", "night-1").stdout
    cloned = answered(tool("run", "clone", "night-1", "--name", "n2", "--set", "run.max_steps=9", "--json"))
    assert Run.objects.get(pk=cloned["id"]).config["run"]["max_steps"] == 9
    assert tool("run", "stop", "night-1").stdout == "night-1: cancelled\n"
    assert tool("run", "resume", "night-1").stdout == "night-1: queued\n"
    Run.objects.filter(name="night-1").update(state="succeeded")
    refused = tool("run", "resume", "night-1")
    assert refused.exit_code == 1 and "cannot be resumed" in refused.stderr
    unknown = tool("run", "show", "nothing")
    assert unknown.exit_code == 1 and "no run 'nothing'" in unknown.stderr


def test_metrics_of_an_ended_run_come_as_a_file(
    tool: Tool, home: Path, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = Tiltyard.call

    def call(site: Tiltyard, method: str, path: str, **options: Any) -> Any:
        """Between the order and the first look at it a worker has done it."""
        made = order(site, method, path, **options)
        for export in RunExport.objects.filter(state="waiting"):
            done(export)
        return made

    monkeypatch.setattr(Tiltyard, "call", call)
    run = make_run(name="night-1", state="succeeded", attempt=1, step=2)
    for step in (1, 2):
        MetricPoint.objects.create(run=run, attempt=1, step=step, name="reward", value=step / 4, seq=step)
    made = answered(tool("run", "export", "night-1", "--to", "csv", "--json"))
    assert (made["file"], made["figures"]) == ("night-1-metrics.csv", 2)
    lines = (home / "night-1-metrics.csv").read_text(encoding="utf-8-sig").splitlines()
    assert lines == [
        '"step","time","attempt","name","value"',
        '"1","","1","reward","0.25"',
        '"2","","1","reward","0.5"',
    ]
    (home / "there").mkdir()
    output = tool("run", "export", "night-1", "--to", "tensorboard", "-o", "there").stdout
    assert output.startswith("there/night-1-metrics.tensorboard.zip: 2 figures")
    named = tool("run", "export", "night-1", "--to", "parquet", "--output", "curves.parquet")
    assert named.exit_code == 0 and (home / "curves.parquet").read_bytes()[:4] == b"PAR1"
    Run.objects.update(state="running")
    refused = tool("run", "export", "night-1", "--to", "csv")
    assert refused.exit_code == 1 and "has not ended yet" in refused.stderr
    MetricPoint.objects.all().delete()
    Run.objects.update(state="succeeded")
    empty = tool("run", "export", "night-1", "--to", "csv", "-o", "none.csv")
    assert empty.exit_code == 1 and "no metrics" in empty.stderr and not (home / "none.csv").exists()
    assert tool("run", "export", "night-1", "--to", "xlsx").exit_code == 2


def test_a_refusal_names_the_option(tool: Tool, home: Path) -> None:
    (home / "job.yaml").write_text("run:\n  max_steps: -1\n")
    result = tool("run", "launch", "-f", "job.yaml")
    assert result.exit_code == 1 and "run.max_steps" in result.stderr
    assert tool("run", "launch", "-f", "gone.yaml").exit_code == 2


@pytest.mark.parametrize(("end", "code"), [("succeeded", 0), ("failed", 5), ("cancelled", 5), ("paused", 5)])
def test_watching_ends_with_the_run(
    monkeypatch: pytest.MonkeyPatch, tool: Tool, make_run: Any, end: str, code: int
) -> None:
    run = make_run(name="seen", state=RunState.RUNNING, total_steps=3, step=1)
    changes = iter([{"step": 2}, {"step": 3}, {"state": end}])
    looked = Tiltyard.call

    def call(self: Tiltyard, method: str, path: str, **options: Any) -> Any:
        """The run continues each time that it was looked at, however slow the machine is."""
        answer = looked(self, method, path, **options)
        Run.objects.filter(pk=run.pk).update(**next(changes, {}) or {"name": "seen"})
        event_add(run.pk, "log", {"level": "info", "message": "on"}, attempt=0)
        return answer

    monkeypatch.setattr(Tiltyard, "call", call)
    result = tool("run", "watch", "seen")
    assert result.exit_code == code, result.output
    assert end in result.stdout and "step 3 of 3" in result.stdout
    assert answered(tool("run", "watch", "seen", "--json"), code)["state"] == end


def test_watching_outlives_a_site_that_is_away_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    site, answers = Tiltyard("http://127.0.0.1:1", "t"), iter(["away", "running", "away", "succeeded"])

    def call(_method: str, _path: str, **_options: Any) -> dict[str, Any]:
        answer = next(answers)
        if answer == "away":
            raise Unreachable("away")
        return {"run": {"state": answer, "seq": len(answer), "step": 1}}

    monkeypatch.setattr(site, "call", call)
    assert [run["state"] for run in site.watch("x", every_s=0)] == ["running", "succeeded"]
    monkeypatch.setattr("tiltyard_client.api.PATIENCE_S", 0.0)
    monkeypatch.setattr(site, "call", lambda *_a, **_o: (_ for _ in ()).throw(Unreachable("away")))
    with pytest.raises(Unreachable):
        list(site.watch("x", every_s=0.01))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("run.seed=7", 7),
        ("run.seed=abc", "abc"),
        ("run.seed=1e-5", 1e-5),
        ("run.seed=[1]", [1]),
        ("run.seed=a=b", "a=b"),
    ],
)
def test_changes_of_a_clone(change: str, expected: Any) -> None:
    assert runs.changed({"run": {"seed": 1, "x": 2}}, [change]) == {"run": {"seed": expected, "x": 2}}


@pytest.mark.parametrize("change", ["run.seed", "=1", ""])
def test_a_change_that_is_none(change: str) -> None:
    with pytest.raises(Refused):
        runs.changed({}, [change])


# --- Evaluation and models ----------------------------------------------------------------------------------------
def test_a_model_is_evaluated_as_it_was_trained(
    tool: Tool, make_run: Any, make_dataset: Any, make_environment: Any
) -> None:
    data, environment = make_dataset(), make_environment()
    config = {
        "data": {"train": data.reference},
        "environment": {"name": environment.reference},
        "run": {"max_steps": 5},
    }
    from training.config import JobConfig

    trained = make_run(name="first", config=JobConfig.model_validate(config), state="succeeded")
    Checkpoint.objects.create(
        project=trained.project, run=trained, attempt=1, step=5, path="1/model", bytes=1, final=True, seq=1,
        created_at="2026-01-01T00:00Z",
    ).folder.mkdir(parents=True)  # fmt: skip
    made = answered(tool("evaluate", "first", "--tasks", "2", "--tries", "3", "--json"))
    found = Run.objects.get(pk=made["id"]).config
    assert (made["name"], made["kind"]) == ("first-evaluate", "evaluate")
    assert (found["model"]["source"], found["data"]["train"]) == ("run:first", data.reference)
    assert (found["rollout"]["num_generations"], found["evaluate"]["tasks"]) == (3, 2)


def test_an_evaluation_says_before_its_launch_what_it_plays(
    tool: Tool, make_run: Any, make_dataset: Any, make_environment: Any
) -> None:
    from training.config import JobConfig

    data, exam, environment = make_dataset(name="seen"), make_dataset(name="exam"), make_environment()
    config = {"data": {"train": data.reference}, "environment": {"name": environment.reference}}
    made = make_run(name="first", config=JobConfig.model_validate(config), state="succeeded")
    Checkpoint.objects.create(
        project=made.project, run=made, attempt=1, step=5, path="1/model", bytes=1, final=True, seq=1,
        created_at="2026-01-01T00:00Z",
    ).folder.mkdir(parents=True)  # fmt: skip
    learned = "These are the tasks that first learned from (seen@1): success on them is no held-out success."
    few = "has 3 tasks, and 4 were asked for: all 3 are played."

    def notes_of(*words: str) -> str:
        result = tool("evaluate", *words, "--json")
        assert result.exit_code == 0 and "id" in json.loads(result.stdout), result.output
        return " ".join(result.stderr.split())

    assert notes_of("first", "--name", "a").startswith(learned)
    assert notes_of("first", "--name", "b", "--training-data") == ""
    assert notes_of("first", "--name", "c", "--dataset", "exam", "--tasks", "3") == ""
    assert notes_of("first", "--name", "d", "--dataset", "exam", "--tasks", "4") == f"exam {few}"
    assert (
        notes_of("first", "--name", "e", "--dataset", exam.reference.partition(":")[2], "--tasks", "4")
        == f"exam@1 {few}"
    )
    assert notes_of("first", "--name", "f", "--like", "c") == "", "an evaluation learned from nothing"
    assert notes_of("starter", "--name", "g", "--like", "first").startswith(learned)
    assert tool("evaluate", "first", "--dataset", "exam", "--training-data").exit_code == 2
    assert tool("evaluate", "first", "--dataset", "other", "--tasks", "4").exit_code == 1


def test_evaluations_are_compared(tool: Tool, evaluation: Callable[..., Run]) -> None:
    evaluation("a", {0: [1, 1], 1: [0, 0], 2: [0, 0], 3: [0, 1]})
    evaluation("b", {0: [1, 1], 1: [1, 1], 2: [1, 0], 3: [1, 1]})
    shown = tool("compare", "a", "b")
    assert shown.exit_code == 0 and "cannot be told apart" in shown.stdout and "37.5%" in shown.stdout
    found = answered(tool("compare", "a", "b", "--json"))
    assert len(found["verdicts"]) == 1
    answer = "No difference can be shown: +50 points of success for b (95% interval "
    assert found["answer"]["text"].startswith(answer) and shown.stdout.startswith(answer)


def test_a_model_arrives_whole_or_not_at_all(tool: Tool, home: Path, project: Project, make_run: Any) -> None:
    checkpoint = Checkpoint.objects.create(
        project=project,
        run=make_run(),
        attempt=1,
        step=1,
        path="1/model",
        bytes=9,
        seq=1,
        created_at="2026-01-01T00:00Z",
    )
    checkpoint.folder.mkdir(parents=True)
    (checkpoint.folder / "config.json").write_text("{}")
    (checkpoint.folder / "model.safetensors").write_bytes(weights := os.urandom(2 << 20))
    RegisteredModel.objects.create(project=project, name="small", kind=ModelKind.RUN, checkpoint=checkpoint)
    assert "model:small" in tool("model", "list").stdout
    result = tool("model", "download", "small")
    assert result.exit_code == 0, result.output
    assert (home / "small/model.safetensors").read_bytes() == weights
    assert sorted(path.name for path in (home / "small").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert "LoRA" in tool("model", "download", "small", "--adapter").stderr
    assert tool("model", "download", "nothing").exit_code == 1


def test_a_download_that_was_changed_on_its_way_is_refused(home: Path) -> None:
    import io
    import tarfile

    from tiltyard_client.api import unpack

    archive = home / "x.tar"
    with tarfile.open(archive, "w") as tar:
        for name, content in (("m/weights", b"other"), ("m/SHA256SUMS", b"0" * 64 + b"  weights\n")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    with pytest.raises(Refused, match="weights"):
        unpack(archive, home)
    assert not (home / "weights").exists()
    archive.write_bytes(archive.read_bytes()[:600])
    with pytest.raises(Refused):
        unpack(archive, home)


# --- Data -----------------------------------------------------------------------------------------------------------
def test_a_file_is_uploaded(tool: Tool, home: Path) -> None:
    (home / "tasks.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "2+3?"}]}) + "\n")
    made = answered(tool("dataset", "upload", "tasks.jsonl", "--no-wait", "--json"))
    assert (made["reference"], made["state"]) == ("dataset:tasks@1", "checking")
    done(Dataset.objects.get())
    assert "dataset:tasks@1" in tool("dataset", "list").stdout
    assert tool("dataset", "upload", "gone.jsonl").exit_code == 2


# --- As a package ---------------------------------------------------------------------------------------------------
def test_it_needs_nothing_of_the_server() -> None:
    """Neither Django nor anything else of ours is imported."""
    ours = "{'django', 'webapp', 'training', 'envs'}"
    code = f"import sys, tiltyard_client.cli; print([n for n in sys.modules if n.split('.')[0] in {ours}])"
    argv = [sys.executable, "-c", code]
    made = subprocess.run(argv, env=os.environ | {"PYTHONPATH": str(ROOT / "client")}, capture_output=True, text=True)
    assert made.stdout.strip() == "[]", made.stderr


def test_every_command_has_help_andanswered() -> None:
    """``--json`` everywhere but at the login, which asks."""
    commands = {}
    groups = {"": cli.app} | {item.name: item.typer_instance for item in cli.app.registered_groups}
    assert set(groups) == {
        "",
        "run",
        "rollout",
        "dataset",
        "model",
        "suite",
        "sweep",
        "endpoint",
        "environment",
        "vote",
        "notify",
        "project",
        "retention",
        "team",
        "person",
    }
    for group, inner in groups.items():
        commands |= {(group, item.name or item.callback.__name__): item.callback for item in inner.registered_commands}
    assert len(commands) > 38
    for place, command in commands.items():
        assert command.__doc__, place
        assert "as_json" in command.__annotations__ or place == ("", "login"), place


def test_it_is_installed_from_the_repository(tmp_path: Path) -> None:
    """As ``pip install ./client`` does, without the network: what it needs is here already."""
    source = shutil.copytree(ROOT / "client", tmp_path / "client")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*pip, str(tmp_path / "there"), str(source)], check=True, timeout=60, capture_output=True)
    command = tmp_path / "there/bin/tiltyard"
    env = {"PYTHONPATH": str(tmp_path / "there"), "TILTYARD_LANG": "zh"}
    made = subprocess.run([command, "--help"], env=env, capture_output=True, text=True)
    assert made.returncode == 0 and "evaluate" in made.stdout and "训练任务" in made.stdout, made.stderr


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "client/README.md"])
def test_commands_that_are_documented_exist(page: str) -> None:
    lines = [
        line.split("#")[0] for line in (ROOT / page).read_text("utf-8").splitlines() if line.startswith("tiltyard ")
    ]
    assert len(lines) > 5
    for line in lines:
        command: Any = typer.main.get_command(cli.app)
        _name, *words = shlex.split(line)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        known = {option for param in command.params for option in param.opts}
        assert {word for word in words if word.startswith("-")} <= known, line
        assert words or not hasattr(command, "commands"), line
