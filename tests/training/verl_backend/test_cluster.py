"""A job on a Ray cluster: its name, what goes with it, one that does not answer; and a real cluster of two nodes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import requests
from websockets.asyncio.server import ServerConnection

from tests.chaos.services import signal_tree
from tests.processes import wait_for_http
from tests.training.helpers import events, job_config, of_type, scripted_server
from tests.training.verl_backend.conftest import PYTHON, ROOT
from tests.training.verl_backend.cpu_job import behave, cpu_job, run_by_verl
from training.config import config_to_yaml
from training.errors import ClusterAway
from training.journal import Event, Held, LogLine, RunFinished, parse_event
from training.main import EXIT_FAILED
from training.model_check import check_model_folder
from training.verl_backend.cluster import (
    FORGOTTEN,
    PATIENCE_S,
    SAID_EVERY_S,
    ClusterJob,
    LimitedClient,
    connected,
    name_of,
)
from training.verl_backend.folder import STOP_NAME, JobFolder, Plan

AWAY = ConnectionError("no route\nto host")
UNKNOWN = RuntimeError("Request failed with status code 404: Job tiltyard-1 does not exist.")
STARTING = RuntimeError("Request failed with status code 500: no agent.")


class Fake:
    """A cluster that answers with the given statuses in turn, errors among them."""

    def __init__(self, *answers: str | Exception, known: tuple[str, ...] = ()) -> None:
        self.answers, self.known = list(answers), set(known)
        self.submitted: list[dict[str, Any]] = []
        self.stopped: list[str] = []
        self.kept: dict[str, str] | None = None

    def submit_job(self, **given: Any) -> str:
        self.submitted.append(given)
        self.known.add(given["submission_id"])
        self.kept = json.loads(Path(given["entrypoint"].split()[3], "variables.json").read_text())
        return str(given["submission_id"])

    def get_job_status(self, job_id: str) -> str:
        if job_id not in self.known:
            raise UNKNOWN
        if not self.submitted:
            return "RUNNING"
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop_job(self, job_id: str) -> bool:
        self.stopped.append(job_id)
        return True

    def get_job_logs(self, job_id: str) -> str:
        return "its output"


def made(tmp_path: Path, client: Fake, *earlier: Path) -> tuple[ClusterJob, list[Event]]:
    folder = JobFolder(tmp_path / "2" / "verl")
    folder.write(job_config(data={"train": "x"}), Plan(attempt=2, order=[0], rows=1, eos_id=2, earlier=earlier))
    said: list[Event] = []
    now = iter(range(100_000))
    return ClusterJob(folder, client, said.append, lambda: float(next(now)), lambda _seconds: None), said


def test_its_name_follows_from_the_folder_of_the_attempt(tmp_path: Path) -> None:
    assert name_of(tmp_path / "1") == name_of(tmp_path / "1") != name_of(tmp_path / "2")
    assert name_of(tmp_path / "1").startswith("tiltyard-")


def test_what_opens_environments_is_not_in_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = Fake("PENDING", "RUNNING", "SUCCEEDED")
    job, said = made(tmp_path, client)
    ours = {
        "TILTYARD_ENV_TOKEN": "secret",
        "VERL_PLATFORM": "cpu",
        "RAY_AUTH_TOKEN": "open",
        "PATH": "/bin",
        "TZ": "UTC",
    }
    assert job.run(ours) == 0
    (given,) = client.submitted
    assert given["submission_id"] == job.name == name_of(tmp_path / "2")
    assert given["entrypoint"] == f"python -m training.verl_backend {tmp_path / '2' / 'verl'} --driver"
    assert given["runtime_env"]["env_vars"] == {"VERL_PLATFORM": "cpu"}
    assert [Path(path).name for path in given["runtime_env"]["py_modules"]] == ["training", "envs"]
    assert client.kept == {"TILTYARD_ENV_TOKEN": "secret"}
    assert not (tmp_path / "2" / "verl" / "variables.json").exists(), "the job is over"
    assert capsys.readouterr().out == "its output\n" and said == []


def test_variables_are_for_their_owner_and_are_taken_by_each_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = JobFolder(tmp_path)
    monkeypatch.delenv("TILTYARD_ENV_TOKEN", raising=False)
    folder.take_variables()
    assert "TILTYARD_ENV_TOKEN" not in os.environ
    folder.keep_variables({"TILTYARD_ENV_TOKEN": "secret"})
    assert (tmp_path / "variables.json").stat().st_mode & 0o777 == 0o600
    folder.take_variables()
    assert os.environ["TILTYARD_ENV_TOKEN"] == "secret"
    folder.forget_variables()
    folder.forget_variables()


@pytest.mark.parametrize("status", ["FAILED", "STOPPED"])
def test_a_job_that_did_not_succeed_has_failed(tmp_path: Path, status: str) -> None:
    job, _said = made(tmp_path, Fake("RUNNING", status))
    assert job.run({}) == 1


def test_a_job_that_is_stopped_leaves_nothing_that_opens_environments(tmp_path: Path) -> None:
    client = Fake("RUNNING", known=(name_of(tmp_path / "2"),))
    job, _said = made(tmp_path, client)
    JobFolder(tmp_path / "2" / "verl").keep_variables({"TILTYARD_ENV_TOKEN": "secret"})
    job.stop()
    assert client.stopped == [job.name]
    assert not (tmp_path / "2" / "verl" / "variables.json").exists()


def test_jobs_of_earlier_attempts_are_stopped_first(tmp_path: Path) -> None:
    first, other = tmp_path / "1", tmp_path / "0"
    client = Fake("SUCCEEDED", known=(name_of(first),))
    job, said = made(tmp_path, client, other, first)
    assert job.run({}) == 0
    assert client.stopped == [name_of(first)], "of the other one nothing is known"
    assert [event.message for event in said if isinstance(event, LogLine)] == [
        "The Ray job of attempt 1 was still there."
    ]


def test_a_cluster_that_does_not_answer_for_a_while_is_waited_for(tmp_path: Path) -> None:
    job, said = made(tmp_path, Fake("RUNNING", AWAY, AWAY, "RUNNING", AWAY, "SUCCEEDED"))
    assert job.run({}) == 0
    held = [event for event in said if isinstance(event, Held)]
    assert [event.error is None for event in held] == [False, True, False, True], "said once, and that it is over"
    assert held[0].error is not None and held[0].error.code == "cluster_unreachable"
    assert held[0].error.message == "The Ray cluster does not answer: no route to host"
    assert held[0].patience_left_s == PATIENCE_S


def test_a_head_that_was_restarted_has_lost_the_job_and_the_attempt_says_so(tmp_path: Path) -> None:
    """While it starts it answers with errors of its own, which say nothing about the job."""
    job, said = made(tmp_path, Fake("RUNNING", AWAY, STARTING, UNKNOWN))
    assert job.run({}) == 1
    assert [event.error is None for event in said if isinstance(event, Held)] == [False, True]
    (line,) = [event for event in said if isinstance(event, LogLine)]
    assert (line.level, line.message) == ("error", FORGOTTEN)


def test_a_head_that_has_just_started_is_asked_to_take_the_job_again(tmp_path: Path) -> None:
    again = RuntimeError(
        "Request failed with status code 500: No available agent to submit job, please try again later."
    )
    client = Fake("SUCCEEDED")
    submit, answers = client.submit_job, [again, again, None]
    job, _said = made(tmp_path, client)

    def asked(**given: Any) -> str:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return submit(**given)

    client.submit_job = asked  # type: ignore[method-assign]
    assert job.run({}) == 0 and answers == []
    client.submit_job = Mock(side_effect=again)  # type: ignore[method-assign]
    with pytest.raises(ConnectionError, match="try again later"):
        job.run({})
    client.submit_job = Mock(side_effect=RuntimeError("Request failed with status code 400: no."))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="status code 400"):
        job.run({})


def test_no_job_is_submitted_while_an_earlier_one_may_be_at_work(tmp_path: Path) -> None:
    """A head that is starting refuses with another error than for a job that it does not know."""
    client = Fake("SUCCEEDED")
    client.get_job_status = Mock(side_effect=STARTING)  # type: ignore[method-assign]
    job, _said = made(tmp_path, client, tmp_path / "1")
    with pytest.raises(ConnectionError, match="status code 500"):
        job.run({})
    assert client.submitted == client.stopped == []


@pytest.mark.parametrize("error", [AWAY, STARTING])
def test_output_that_cannot_be_fetched_changes_nothing(tmp_path: Path, error: Exception) -> None:
    client = Fake("SUCCEEDED")
    client.get_job_logs = Mock(side_effect=error)  # type: ignore[method-assign]
    assert made(tmp_path, client)[0].run({}) == 0


def test_a_cluster_that_is_away_at_first_is_waited_for() -> None:
    answers: list[Any] = [AWAY, AWAY, Fake("RUNNING", known=("a",))]
    said: list[Event] = []
    now = iter(range(100_000))

    def make() -> Any:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def clock() -> float:
        return float(next(now))

    client = connected(make, said.append, clock, lambda _seconds: None)
    assert client.get_job_status("a") == "RUNNING"
    held = [event for event in said if isinstance(event, Held)]
    assert [event.error and event.error.code for event in held] == ["cluster_unreachable", None]
    answers[:] = [AWAY]
    with pytest.raises(ClusterAway, match="no route to host"):
        connected(make, said.append, clock, lambda _seconds: None)


def test_the_patience_with_a_cluster_ends(tmp_path: Path) -> None:
    job, said = made(tmp_path, Fake(AWAY))
    with pytest.raises(ClusterAway, match="no route to host"):
        job.run({})
    left = [event.patience_left_s for event in said if isinstance(event, Held)]
    assert min(left) > 0 and len(left) <= PATIENCE_S / SAID_EVERY_S
    assert job._clock() - 1 <= PATIENCE_S + 3, "asked again for so long, and no longer"
    assert not (tmp_path / "2" / "verl" / "variables.json").exists()


@pytest.mark.parametrize(
    "error",
    [requests.exceptions.ConnectionError("refused"), requests.exceptions.ReadTimeout("late"), OSError("no route")],
)
def test_errors_of_the_network_are_those_of_a_cluster_that_is_away(tmp_path: Path, error: Exception) -> None:
    """Ray lets through those of requests, which are no ``ConnectionError``: the attempt ended instead of waiting."""
    client = Fake("RUNNING", error, "SUCCEEDED")
    job, said = made(tmp_path, client)
    job._client = LimitedClient(lambda: client)
    assert job.run({}) == 0
    assert [event.error is None for event in said if isinstance(event, Held)] == [False, True]


@pytest.mark.parametrize("question", ["submit_job", "get_job_status", "stop_job", "get_job_logs", "make"])
def test_no_answer_is_waited_for_without_end(question: str) -> None:
    let_go = threading.Event()

    def never(*_ids: str, **_given: Any) -> Any:
        let_go.wait(60)

    client = Fake("RUNNING")
    try:
        with pytest.raises(ConnectionError, match=r"no answer within 0\.05 s"):
            if question == "make":
                LimitedClient(never, 0.05)
            setattr(client, question, never)
            limited = LimitedClient(lambda: client, 0.05, 0.05)
            if question == "submit_job":
                limited.submit_job(entrypoint="", submission_id="a", runtime_env={})
            getattr(limited, question)("a")
    finally:
        let_go.set()


def test_other_errors_and_answers_pass(tmp_path: Path) -> None:
    limited = LimitedClient(lambda: Fake("RUNNING", known=("a",)))
    assert (limited.get_job_status("a"), limited.stop_job("a"), limited.get_job_logs("a")) == (
        "RUNNING",
        True,
        "its output",
    )
    with pytest.raises(RuntimeError, match="does not exist"):
        limited.get_job_status("b")


def last_word(run_dir: Path) -> Any:
    """What the process that submits has journalled last."""
    (journal,) = run_dir.glob("actors/*/journal.jsonl")
    last = parse_event(journal.read_bytes().splitlines()[-1])
    assert isinstance(last, RunFinished)
    return last


SILENT = """
import sys
from pathlib import Path
from training.verl_backend import cluster
from training.verl_backend.folder import JobFolder
cluster.PATIENCE_S = 2.0
cluster.LimitedClient.__init__.__defaults__ = (1.0, 1.0)
sys.exit(cluster.submit(JobFolder(Path(sys.argv[2])), sys.argv[1], lambda stop: None))
"""


@pytest.mark.verl
def test_a_head_that_accepts_and_never_answers_ends_the_attempt(tmp_path: Path) -> None:
    """Ray's own client, and a socket behind which nothing reads."""
    if not PYTHON.exists():
        pytest.skip("There is no .venv-verl: run make setup-verl.")
    (tmp_path / "verl").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [str(PYTHON), "-c", SILENT, address, str(tmp_path / "verl")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    last = last_word(tmp_path)
    assert (last.status, last.error.code) == ("paused", "cluster_unreachable")
    assert last.error.message == "The Ray cluster does not answer: no answer within 1 s"
    assert last.error.message in done.stderr
    assert (tmp_path / "verl" / STOP_NAME).exists(), "its job may be at work"


# --- A real cluster of two nodes, each with one device ---


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t" * 40, "RAY_USAGE_STATS_ENABLED": "0"}
HEAD = """
import sys
from pathlib import Path
from ray.job_submission import JobSubmissionClient
from training.verl_backend.cluster import ClusterJob, LimitedClient
from training.verl_backend.folder import JobFolder
client = LimitedClient(lambda: JobSubmissionClient(sys.argv[1]))
job = ClusterJob(JobFolder(Path(sys.argv[2])), client, lambda event: print(event.model_dump_json(), flush=True))
submit = client.submit_job
client.submit_job = lambda **given: submit(**given | {"entrypoint": "sleep 600"})
job._submit({})
print("submitted", flush=True)
print(job._wait(), flush=True)
"""


@pytest.mark.verl
@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_real_head_is_restarted(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The attempt is held while the head is away, and ends by name once a new one does not know its job."""
    if not PYTHON.exists():
        pytest.skip("There is no .venv-verl: run make setup-verl.")
    port, board, place = free_port(), free_port(), f"/tmp/tyh-{os.getpid()}"  # noqa: S108 - Ray's sockets allow no long path
    where = [f"--port={port}", f"--dashboard-port={board}", "--dashboard-host=127.0.0.1", f"--temp-dir={place}"]
    where += [f"--dashboard-agent-listen-port={free_port()}"]  # the usual one may be another cluster's
    command = [str(PYTHON.with_name("ray")), "start", "--head", "--node-ip-address=127.0.0.1", *where]
    command += ["--num-cpus=4", "--disable-usage-stats", "--block"]
    env = TOKEN | {"HOME": os.environ["HOME"], "PATH": f"{PYTHON.parent}:{os.environ['PATH']}"}
    address = f"http://127.0.0.1:{board}"

    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, start_new_session=True)

    head, waits = started(), None
    try:
        wait_for_http(f"{address}/api/version", head, tmp_path / "no-log", limit_s=60)
        without = env | {"RAY_AUTH_TOKEN": "another"}
        (tmp_path / "verl").mkdir()
        asks = [str(PYTHON), "-c", SILENT, address, str(tmp_path / "verl")]
        refused = subprocess.run(asks, cwd=ROOT, env=without, capture_output=True, text=True)
        assert refused.returncode == 1 and f"at {address} refuses this worker's token" in refused.stderr
        assert last_word(tmp_path).error.code == "cluster_refused"
        asks = [str(PYTHON), "-c", HEAD, address, str(tmp_path / "verl")]
        waits = subprocess.Popen(asks, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
        assert waits.stdout is not None and waits.stdout.readline() == "submitted\n"
        signal_tree(head.pid, signal.SIGKILL)
        head.wait(10)
        assert json.loads(waits.stdout.readline())["error"]["code"] == "cluster_unreachable"
        head = started()
        rest = waits.stdout.read().splitlines()
        assert waits.wait(10) == 0 and rest[-1] == "FAILED"
        assert json.loads(rest[-2])["message"] == FORGOTTEN
    finally:
        for process in (head, waits):
            if process is not None and process.poll() is None:
                signal_tree(process.pid, signal.SIGKILL)
                process.wait(10)


class Cluster:
    """A head and another node on this machine, each with one device. Both ask for a token."""

    def __init__(self) -> None:
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        self._env = kept | TOKEN | {"PATH": f"{PYTHON.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        self._port, board, place = free_port(), free_port(), f"/tmp/ty-{os.getpid()}"  # noqa: S108 - Ray's sockets allow no long path
        self.address = f"http://127.0.0.1:{board}"
        head = [f"--port={self._port}", f"--dashboard-port={board}", "--dashboard-host=127.0.0.1"]
        head.append(f"--dashboard-agent-listen-port={free_port()}")  # the usual one may be another cluster's
        self.nodes: list[subprocess.Popen[bytes]] = []
        try:
            self._start("--head", "--node-ip-address=127.0.0.1", f"--temp-dir={place}", *head)
            wait_for_http(f"{self.address}/api/version", self.nodes[0], Path("no-log"), limit_s=120)
            self.add_node()
        except BaseException:
            self.end()
            raise

    def _start(self, *words: str) -> None:
        node = ["--num-cpus=16", "--num-gpus=1", "--disable-usage-stats", "--block"]
        command = [str(PYTHON.with_name("ray")), "start", *words, *node]
        self.nodes.append(subprocess.Popen(command, env=self._env, stdout=subprocess.DEVNULL, start_new_session=True))

    def add_node(self) -> None:
        """Start one more, which a job waits for."""
        self._start(f"--address=127.0.0.1:{self._port}")

    def lose_node(self) -> None:
        """As if the machine of the newest were switched off."""
        lost = self.nodes.pop()
        signal_tree(lost.pid, signal.SIGKILL)
        lost.wait(10)

    def end(self) -> None:
        """Stop all."""
        for started in self.nodes:
            os.killpg(started.pid, signal.SIGTERM)
        for started in self.nodes:
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(started.pid, signal.SIGKILL)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster that verl's jobs are submitted to."""
    if not PYTHON.exists():
        pytest.skip("There is no .venv-verl: run make setup-verl.")
    made = Cluster()
    try:
        for name, value in TOKEN.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("TILTYARD_RAY_ADDRESS", made.address)
        yield made
    finally:
        made.end()


STATUS = """
import sys
from ray.job_submission import JobSubmissionClient
print(JobSubmissionClient(sys.argv[1]).get_job_status(sys.argv[2]).value)
"""


def status_of(address: str, run_dir: Path) -> str:
    done = subprocess.run(
        [str(PYTHON), "-c", STATUS, address, name_of(run_dir)], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()[-1]


@pytest.mark.verl
@pytest.mark.timeout(1500)
def test_two_hosts(cluster: Cluster, trained_folder: Path, tmp_path: Path, no_health: None) -> None:
    """A run trains on both nodes to its end; one whose process is killed leaves no job behind."""
    run_dir, killed = tmp_path / "run", tmp_path / "killed"
    groups = {"run": {"max_steps": 2, "save_every": 1, "device": "cpu"}, "hardware": {"hosts": 2}}
    with scripted_server(behave) as url:
        job = cpu_job(run_dir, trained_folder, url, **groups)
        assert run_by_verl(job) == 0
    assert status_of(cluster.address, run_dir) == "SUCCEEDED"
    last = events(run_dir)[-1]
    assert (last.type, last.status, last.step) == ("run_finished", "succeeded", 2)
    assert [event.step for event in of_type(run_dir, "metrics")] == [1, 2]
    assert len({event.rollout for event in of_type(run_dir, "rollout_finished")}) == 16
    check_model_folder(run_dir / "model")

    begun: list[str] = []

    async def noted(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
        begun.append(frame["type"])
        return await behave(socket, frame, turn)

    with scripted_server(noted) as url:
        job = cpu_job(killed, trained_folder, url, environment={"patience_s": 5}, **groups)
        job.journal.close()
        (killed / "job.yaml").write_text(config_to_yaml(job.config))
        command = [sys.executable, "-c", RUN, "run", str(killed / "job.yaml"), "--run-dir", str(killed / "1")]
        process = subprocess.Popen(command, cwd=ROOT)
        ends = time.monotonic() + 600
        while not begun and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.5)
        assert begun and status_of(cluster.address, killed / "1") == "RUNNING"
        process.kill()
        process.wait()
        ends = time.monotonic() + 30
        while (status := status_of(cluster.address, killed / "1")) != "STOPPED" and time.monotonic() < ends:
            time.sleep(1)
    assert status == "STOPPED", "who submitted it is gone"


@pytest.mark.verl
@pytest.mark.timeout(1500)
def test_a_node_is_lost(cluster: Cluster, trained_folder: Path, tmp_path: Path, no_health: None) -> None:
    """Attempt 1 loses a node in step 2 and ends within 30 s. Attempt 2 waits for its devices, says so, and ends the run
    once a node is there again."""
    run_dir, lost, added = tmp_path / "run", list[float](), list[threading.Thread]()
    folders = {number: run_dir / str(number) for number in (1, 2)}

    async def behaves(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset" and frame["data"]["episode_id"].startswith("a1-s2-") and not lost:
            lost.append(time.monotonic())
            cluster.lose_node()
        return await behave(socket, frame, turn)

    def add_once_it_waits() -> None:
        ends = time.monotonic() + 300
        while time.monotonic() < ends and not waited(folders[2]):
            time.sleep(0.5)
        cluster.add_node()

    groups = {"run": {"max_steps": 2, "save_every": 1, "device": "cpu"}, "hardware": {"hosts": 2}}
    with scripted_server(behaves) as url:
        job = cpu_job(run_dir, trained_folder, url, **groups)
        assert run_by_verl(job, folders[1], attempt=1) == EXIT_FAILED
        noticed_s = time.monotonic() - lost[0]
        added.append(threading.Thread(target=add_once_it_waits))
        added[0].start()
        code = run_by_verl(job, folders[2], attempt=2, earlier=[folders[1]], resume_from=[run_dir])
        added[0].join()
    print(f"noticed after {noticed_s:.1f} s")
    assert code == 0 and of_type(folders[1], "run_finished") == []
    said = [event.message for event in of_type(folders[1], "log") if event.level == "error"]
    assert len(said) == 1 and said[0].startswith("A process of the job was lost: ")
    held, *_more, over = of_type(folders[2], "held")
    assert (held.error.code, held.error.boundary, over.error) == ("cluster_short", "trainer", None)
    assert "no place for 2 × 1 devices with 3 CPUs each: it has 1 devices" in held.error.message
    assert "It has lost " in held.error.message
    assert [(event.source, event.step) for event in of_type(folders[2], "resumed")] == [("1/checkpoint-1", 1)]
    assert [event.step for event in of_type(folders[2], "metrics")] == [2]
    assert noticed_s < 30


def waited(run_dir: Path) -> bool:
    """Whether the run has said that it waits."""
    return any(journal.read_text().count('"held"') for journal in run_dir.glob("actors/*/journal.jsonl"))


RUN = """
import sys
import training.verl_backend.learner as learner
learner.check_environment = lambda config: None
from training.__main__ import main
sys.exit(main())
"""
"""The scripted server speaks only the websocket."""
