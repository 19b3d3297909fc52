"""The process of a vLLM that belongs to a run: started, ready, ended, and nothing of it left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from training.children import ROOT
from training.errors import SamplerDied, StopRequested
from training.policy.vllm_server import LOG_NAME, WEIGHTS_NAME, Loop, Plan, VllmClient, VllmServer, sweep_servers
from training.sessions import SERVER_NOTE, SHARED, folder_id, members, namespace, started_at, sweep

# What a Python with vLLM does with `-m vllm.entrypoints.openai.api_server --uds SOCKET …`: a worker, and a server.
FAKE = """\
#!{python}
import os, subprocess, sys, time
from multiprocessing import shared_memory
sys.path.insert(0, {root!r})
mode = open({mode!r}).read()
if mode == "broken":
    print("INFO 01-01 starting")
    print("ValueError: the window is longer than the model's")
    print("nanobind: leaked 1 instances!")
    sys.exit(1)
worker = subprocess.Popen([sys.executable, "-c", '''
import time
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *names: None
kept = shared_memory.SharedMemory(name="psm_test_%d", create=True, size=4096)
time.sleep(600)
''' % os.getppid()])
if mode == "slow":
    time.sleep(600)
from pathlib import Path
from tests.vllm_stub import Stub, serving
stub = Stub()
if mode == "samples nothing":
    stub.fail("/v1/completions", 500)
with serving(stub, Path(sys.argv[sys.argv.index("--uds") + 1])):
    time.sleep(600)
"""


@pytest.fixture
def mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """How the next server behaves: "works" and others."""
    mode_file = tmp_path / "mode"
    python = tmp_path / "python"
    python.write_text(FAKE.format(python=sys.executable, root=str(ROOT), mode=str(mode_file)))
    python.chmod(0o755)
    monkeypatch.setenv("TILTYARD_VLLM_PYTHON", str(python))
    mode_file.write_text("works")
    return lambda text: (mode_file.write_text(text), None)[1]


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def plan(**over: Any) -> Plan:
    values: dict[str, Any] = {"folder": Path("/model"), "dtype": "float32", "window": 512, "in_flight": 64, "cpu": True}
    return Plan(**(values | over))


def ready(server: VllmServer, loop: Loop, limit_s: float = 60.0, stop: threading.Event | None = None) -> None:
    client = VllmClient(loop, "http://vllm", socket=server.socket, limit_s=5.0, connections=4)
    try:
        server.wait_ready(client, limit_s, stop or threading.Event())
    finally:
        loop.call(client.close())


def left_of(session: int, within_s: float = 20.0) -> tuple[list[int], list[Path]]:
    """What stays of a session, at most so long: its processes, and the shared memory that its worker made."""
    deadline = time.monotonic() + within_s
    while members(session) and time.monotonic() < deadline:
        time.sleep(0.05)
    return members(session), list(SHARED.glob(f"psm_test_{session}"))


NOTHING: tuple[list[int], list[Path]] = ([], [])


def test_it_starts_samples_and_is_ended_with_all_that_it_started(
    tmp_path: Path, mode: Callable[[str], None], loop: Loop
) -> None:
    server = VllmServer(plan(), tmp_path)
    session = server._process.pid
    try:
        ready(server, loop)
        assert server.alive and len(members(session)) >= 3  # keeper, server, worker
        who = {"pid": session, "started": started_at(session), "namespace": namespace(), "folder": folder_id(tmp_path)}
        assert json.loads((tmp_path / SERVER_NOTE).read_text()) == who
        assert server.socket.parent.stat().st_mode & 0o077 == 0
        deadline = time.monotonic() + 10
        while not list(SHARED.glob(f"psm_test_{session}")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert list(SHARED.glob(f"psm_test_{session}"))
    finally:
        server.close()
    assert left_of(session, 0.0) == NOTHING
    assert not server.socket.parent.exists() and not (tmp_path / SERVER_NOTE).exists()
    server.close()


@pytest.mark.parametrize("victim", ["server", "keeper"])
def test_who_is_killed_leaves_nothing_behind(
    tmp_path: Path, mode: Callable[[str], None], loop: Loop, victim: str
) -> None:
    server = VllmServer(plan(), tmp_path)
    session = server._process.pid
    try:
        ready(server, loop)
        leads = {"keeper": session, "server": min(pid for pid in members(session) if pid != session)}
        os.kill(leads[victim], signal.SIGKILL)
        deadline = time.monotonic() + 20
        while server.alive and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not server.alive
    finally:
        server.close()
    assert left_of(session) == NOTHING


STARTER = """\
import sys, time
from pathlib import Path
from training.policy.vllm_server import Plan, VllmServer
server = VllmServer(Plan(Path("/model"), "float32", 512, 8, True), Path(sys.argv[1]))
print(server._process.pid, server.socket, flush=True)
time.sleep(600)
"""


def started_by_another(tmp_path: Path) -> tuple[subprocess.Popen[str], int]:
    """A run in a process of its own that has started a server which answers."""
    run = subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    session, socket = run.stdout.readline().split()
    deadline = time.monotonic() + 60
    while not Path(socket).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return run, int(session)


def end(run: subprocess.Popen[str]) -> None:
    run.kill()
    run.wait()
    assert run.stdout is not None
    run.stdout.close()


def test_it_ends_with_its_run_whatever_killed_that(tmp_path: Path, mode: Callable[[str], None]) -> None:
    run, session = started_by_another(tmp_path)
    assert members(session)
    end(run)
    assert left_of(session) == NOTHING


def test_nothing_stays_of_its_folder_whatever_killed_its_run(
    tmp_path: Path, mode: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it still starts: no process was left to remove it."""
    (place := tmp_path / "places").mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    run, session = started_by_another(tmp_path)
    assert [path.name[:5] for path in place.iterdir()] == ["vllm-"]
    end(run)
    assert left_of(session) == NOTHING and not list(place.glob("vllm-*"))


def test_the_next_attempt_ends_what_the_one_before_left(tmp_path: Path, mode: Callable[[str], None]) -> None:
    """The keeper was killed too, so that no process was left to end it."""
    earlier, now = tmp_path / "1", tmp_path / "2"
    (earlier / WEIGHTS_NAME / "run-1-3").mkdir(parents=True)
    now.mkdir()
    run, session = started_by_another(earlier)
    os.kill(session, signal.SIGKILL)
    end(run)
    assert members(session)
    mode("broken")
    VllmServer(plan(), now, (earlier,)).close()
    assert left_of(session, 0.0) == NOTHING
    assert list(earlier.iterdir()) == [earlier / LOG_NAME]


def test_of_a_session_whose_leader_is_gone_only_what_began_after_it_is_ended() -> None:
    """Its id may have come round to another session, whose leader has ended too."""
    orphan = subprocess.Popen(
        ["sh", "-c", "sleep 60 > /dev/null & echo $!"], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    output, _none = orphan.communicate(timeout=20)
    pid = int(output)
    boot, _slash, ticks = (started_at(pid) or "").partition("/")
    try:
        assert members(orphan.pid) == [pid] and started_at(orphan.pid) is None
        assert not sweep(orphan.pid, f"{boot}/{int(ticks) + 1}") and members(orphan.pid) == [pid]
        assert sweep(orphan.pid, f"{boot}/{int(ticks) - 1}") and members(orphan.pid) == []
    finally:
        if members(orphan.pid) == [pid]:
            os.kill(pid, signal.SIGKILL)


def test_a_stranger_under_an_old_id_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        boot, _slash, ticks = (started_at(stranger.pid) or "").partition("/")
        assert ticks.isdigit()
        here, true, ours = namespace(), f"{boot}/{ticks}", folder_id(tmp_path)
        others = [
            (f"{boot}/{int(ticks) - 1}", here, ours),
            (f"another-boot/{ticks}", here, ours),
            (None, here, ours),
            (true, "pid:[1]", ours),
            (true, here, folder_id(tmp_path.parent)),  # copied here from another folder
            (true, here, None),
        ]
        for begun, place, folder in others:
            who = {"pid": stranger.pid, "started": begun, "namespace": place, "folder": folder}
            (tmp_path / SERVER_NOTE).write_text(json.dumps(who))
            sweep_servers([tmp_path])
            assert stranger.poll() is None and not (tmp_path / SERVER_NOTE).exists()
        assert sweep(stranger.pid, true)
        assert stranger.wait(10) == -signal.SIGTERM or stranger.returncode == -signal.SIGKILL
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("broken", "ended before it was ready. It printed: ValueError: the window is longer than the model's"),
        ("slow", "was not ready after 1 s."),
        ("samples nothing", "answered, and sampled nothing: vLLM answers 500 at /v1/completions: planted"),
    ],
)
def test_one_that_does_not_start_says_why(
    tmp_path: Path, mode: Callable[[str], None], loop: Loop, how: str, message: str
) -> None:
    mode(how)
    server = VllmServer(plan(), tmp_path)
    try:
        with pytest.raises(SamplerDied) as found:
            ready(server, loop, limit_s=1.0 if how == "slow" else 60.0)
    finally:
        server.close()
    assert message in found.value.message and LOG_NAME in found.value.hint
    assert left_of(server._process.pid) == NOTHING


def test_a_run_that_is_asked_to_stop_does_not_wait(tmp_path: Path, mode: Callable[[str], None], loop: Loop) -> None:
    mode("slow")
    server, stop = VllmServer(plan(), tmp_path), threading.Event()
    stop.set()
    try:
        with pytest.raises(StopRequested):
            ready(server, loop, stop=stop)
    finally:
        server.close()


def test_without_a_vllm_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_VLLM_PYTHON", str(tmp_path / "none"))
    with pytest.raises(SamplerDied, match="is missing") as found:
        VllmServer(plan(), tmp_path)
    assert "make setup-vllm" in found.value.hint and found.value.pauses


def words(arguments: list[str]) -> dict[str, str]:
    """Each flag with the word after it."""
    return {word: arguments[place + 1] for place, word in enumerate(arguments[:-1]) if word.startswith("--")}


def test_what_a_server_is_started_with() -> None:
    cpu = words(plan(in_flight=64, window=512).arguments(Path("/s")))
    assert cpu["--uds"] == "/s" and cpu["--dtype"] == "float32" and cpu["--max-model-len"] == "512"
    assert cpu["--logprobs-mode"] == "processed_logprobs" and cpu["--generation-config"] == "vllm"
    # The CPU build dies of a seeded turn whose prompt is cut: either of these alone keeps prompts whole.
    assert "--no-enable-chunked-prefill" in cpu and int(cpu["--max-num-batched-tokens"]) >= 64 * 512
    assert int(words(plan(window=100_000).arguments(Path("/s")))["--max-num-batched-tokens"]) == 100_000
    assert "--gpu-memory-utilization" not in cpu and "--enable-lora" not in cpu and "--load-format" not in cpu
    gpu = words(plan(cpu=False, gpu_memory_share=0.55, tensor_parallel=2).arguments(Path("/s")))
    assert gpu["--gpu-memory-utilization"] == "0.55" and gpu["--tensor-parallel-size"] == "2"
    assert "--enforce-eager" not in gpu
    lora = words(plan(lora_rank=12).arguments(Path("/s")))
    assert lora["--max-lora-rank"] == "16" and "--enable-lora" in lora
    assert "--enable-sleep-mode" not in gpu and "--quantization" not in gpu
    card = plan(cpu=False, sleeps=True, quantization="fp8").arguments(Path("/s"))
    assert "--enable-sleep-mode" in card and words(card)["--quantization"] == "fp8"
    blank = words(plan(blank=True).arguments(Path("/s")))
    assert blank["--load-format"] == "dummy" and json.loads(blank["--hf-overrides"]) == {"tie_word_embeddings": False}


def test_a_server_gets_none_of_our_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("JUDGE_KEY", "secret")
    variables = plan().variables()
    assert "secret" not in " ".join(variables.values()) and variables["HF_HUB_OFFLINE"] == "1"
    assert variables["VLLM_CPU_OMP_THREADS_BIND"] == "nobind" and variables["VLLM_SERVER_DEV_MODE"] == "1"
    assert "VLLM_CPU_KVCACHE_SPACE" not in plan(cpu=False).variables()
