"""Hostile code against the sandbox: each piece ends with its sentence, in bounded time, and the parent continues."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.training.sandbox.hostile import BARE, BURNS, ENDS, OTHER_ABI, code
from training.sandbox import confinement, process
from training.sandbox import process as pool_module
from training.sandbox.modules import ALLOWED
from training.sandbox.problems import SENTENCES, Problem, SandboxProblem, problem_from
from training.sandbox.process import WORKERS_PER_CODE, Limits, Pool, Worker

EPISODE: dict[str, Any] = {"messages": [{"role": "user", "content": "2+3?"}], "final_answer": "It is 5.", "row": {}}
LIMITS = Limits(seconds=0.6, memory_mb=128)
PATIENT = Limits(seconds=4.0, memory_mb=128)  # on a busy machine memory takes longer to fill than 0.6 s
GOOD = code("return len(episode['final_answer']) / 10")
X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")


def problem_of(text: str, limits: Limits = LIMITS, episode: dict[str, Any] = EPISODE) -> tuple[Problem, float, bool]:
    """How a piece of code ends, how long that took, and whether its process is gone."""
    began, worker = time.monotonic(), None
    try:
        worker = Worker(text, limits)
        value = worker.call(episode)
    except SandboxProblem as exc:
        found = exc.problem
    else:
        found = Problem("raised", f"nothing: it returned {value}")
    took = time.monotonic() - began
    if worker is not None:
        worker.kill()
    return found, took, worker is None or not worker.alive


def test_every_piece_of_hostile_code_ends_with_its_sentence_in_bounded_time() -> None:
    environment = dict(os.environ)
    with ThreadPoolExecutor(4) as threads:
        limits = [LIMITS if "time" in kinds else PATIENT for _text, kinds in ENDS.values()]
        ended = threads.map(problem_of, (text for text, _kinds in ENDS.values()), limits)
        found = dict(zip(ENDS, ended, strict=True))
    wrong = {what: str(found[what][0]) for what, (_text, kinds) in ENDS.items() if found[what][0].kind not in kinds}
    assert wrong == {}
    assert {what for what, (_problem, took, _gone) in found.items() if took > PATIENT.seconds + 5} == set()
    assert all(gone for _problem, _took, gone in found.values())
    assert all(40 > len(str(problem).split()) > 4 and len(str(problem)) < 600 for problem, *_rest in found.values())
    assert found["raises"][0] == Problem("raised", "ZeroDivisionError: division by zero", 3)
    assert found["is no Python"][0].line == 1
    assert dict(os.environ) == environment and not Path("/tmp/tiltyard-was-here").exists()  # noqa: S108
    assert str(problem_of(code("open('/etc/passwd')"))[0]) == "It tried to use a file (open). (line 3)"


@pytest.mark.slow
def test_code_that_burns_its_time_is_stopped() -> None:
    found = {what: problem_of(text) for what, (text, _kinds) in BURNS.items()}
    assert {
        what: str(found[what][0]) for what, (_text, kinds) in BURNS.items() if found[what][0].kind not in kinds
    } == {}
    assert all(gone and took < LIMITS.seconds + 5 for _problem, took, gone in found.values())


@X86
def test_the_kernel_holds_where_the_audit_hook_was_blinded() -> None:
    worker = Worker(BARE, Limits())
    answer = worker.call(EPISODE)
    worker.kill()
    assert (answer.value, answer.printed) == (0.0, "[]\n")
    assert problem_of(OTHER_ABI)[0] == Problem("ended", "SIGSYS")


def test_the_process_has_nothing_to_give_away() -> None:
    worker = Worker(GOOD, LIMITS)
    proc = Path(f"/proc/{worker.pid}")
    status = dict(line.split(":\t") for line in (proc / "status").read_text().splitlines() if ":\t" in line)
    assert (status["Seccomp"].strip(), status["NoNewPrivs"].strip()) == ("2", "1")
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert os.getsid(worker.pid) == worker.pid != os.getsid(0)
    if os.geteuid() == 0:
        assert status["Uid"].split() == [str(confinement.NOBODY)] * 4 and status["Groups"].strip() == ""
        assert (proc / "environ").read_bytes() == b"PYTHONHASHSEED=0\0"
        assert sorted(os.listdir(proc / "fd")) == ["0", "1", "2"]
        assert os.readlink(proc / "fd" / "2") == "/dev/null"
        assert os.readlink(proc / "ns" / "net") != os.readlink("/proc/self/ns/net")
    worker.kill()
    worker.kill()
    assert not proc.exists()


@X86
def test_the_numbers_are_those_of_the_kernels_headers() -> None:
    """Where headers are installed; the generic table is that of aarch64."""
    found = {}
    for machine, name in (("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")):
        path = Path("/usr/include") / name
        if not path.exists():
            pytest.skip("needs the kernel's headers")
        words = [line.split() for line in path.read_text().splitlines() if line.startswith("#define __NR")]
        found[machine] = {word[1].removeprefix("__NR_").removeprefix("__NR3264_"): word[2] for word in words[::-1]}
    for machine, calls in confinement.CALLS.items():
        assert {name: str(number) for name, number in calls.items()} == {name: found[machine][name] for name in calls}
        assert len(confinement.program(machine)) % 8 == 0


def test_where_the_wall_cannot_be_built_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a filter: the real worker with another machine's name."""
    lie = "import platform; platform.machine = lambda: 'riscv64'\n"
    program = tmp_path / "worker.py"
    text = process.PROGRAM.read_text().replace("from __future__ import annotations\n", f"{lie}", 1)
    program.write_text(text.replace("os.path.abspath(__file__)", repr(str(process.PROGRAM))))
    monkeypatch.setattr(process, "PROGRAM", program)
    with pytest.raises(SandboxProblem, match="no filter of system calls for linux on riscv64"):
        Worker(GOOD, LIMITS)
    program.write_text("print('{\"ready\": true}')")
    with pytest.raises(SandboxProblem, match="so the code is not run"):
        Worker(GOOD, LIMITS)


def test_episodes_see_no_global_of_each_other_and_one_order_of_sets() -> None:
    counting = "seen = []\ndef reward(episode):\n    seen.append(1)\n    return len(seen)\n"
    worker = Worker(counting, LIMITS)
    assert [worker.call(EPISODE).value for _time in range(3)] == [1.0, 1.0, 1.0]
    worker.kill()
    ordered = code("return float(list({'a', 'b', 'c', 'd', 'e', 'f'}).index('d'))")
    values = set()
    for _worker in range(2):
        worker = Worker(ordered, LIMITS)
        values.add(worker.call(EPISODE).value)
        worker.kill()
    assert len(values) == 1


def test_everything_on_the_list_can_be_imported_and_used() -> None:
    imports = "\n".join(f"import {name}" for name in ALLOWED if name != "__future__")
    body = (
        "print('Ω')\nwhen = datetime.datetime.strptime('2026-01-02', '%Y-%m-%d')\n"
        "assert decimal.Decimal('0.1') + 0 and '字'.encode('gb18030') and html.unescape('&lt;') == '<'\n"
        "assert difflib.SequenceMatcher(None, 'abc', 'abd').ratio() > 0.5 and typing.List[int]\n"
        "@dataclasses.dataclass\nclass Pair:\n    a: int\n"
        "return statistics.mean([when.day, Pair(4).a]) + ast.literal_eval('1')"
    )
    worker = Worker(code(body, imports), LIMITS)
    answer = worker.call(EPISODE)
    worker.kill()
    assert (answer.value, answer.printed) == (4.0, "Ω\n")


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (b'{"id": "guessed", "value": 1.0}', "output"),
        (b'{"value": 1.0}', "output"),
        (b"[" * 60_000, "output"),
        (b'{"id": TICKET, "value": 1.0}\n{"id": "next", "value": 9}', "output"),
        (b'{"id": TICKET, "value": NaN}', "not_finite"),
        (b'{"id": TICKET, "value": 1e999}', "not_finite"),
        (b'{"id": TICKET, "value": 1' + b"0" * 400 + b"}", "not_finite"),
        (b'{"id": TICKET, "value": "1"}', "type"),
        (b'{"id": TICKET, "value": true}', "type"),
        (b'{"id": TICKET, "kind": "<b>", "text": 3}', "output"),
        (b'{"id": TICKET, "kind": "raised", "text": "\\u001b[31m\\u202ered\\u0000", "line": 1e9}', "raised"),
        (b'{"id": TICKET, "kind": ["raised"]}', "output"),
        (b"x" * 200_000, "output"),
    ],
)
def test_a_worker_that_lies_is_not_believed(
    output: bytes, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program that says whatever it wants, as code could that took its process over."""
    (tmp_path / "said").write_bytes(output)
    text = (
        "import os, sys, json\n"
        'print(json.dumps({"confined": ["seccomp"]}), flush=True)\n'
        'input()\nprint(json.dumps({"ready": True}), flush=True)\n'
        'ticket = json.dumps(json.loads(input())["id"]).encode()\n'
        f'os.write(1, open({str(tmp_path / "said")!r}, "rb").read().replace(b"TICKET", ticket) + b"\\n")\ninput()\n'
    )
    (tmp_path / "worker.py").write_text(text)
    monkeypatch.setattr(process, "PROGRAM", tmp_path / "worker.py")
    worker = Worker(GOOD, LIMITS)
    with pytest.raises(SandboxProblem) as caught:
        worker.call(EPISODE)
    worker.kill()
    assert caught.value.problem.kind == kind
    assert "\x1b" not in str(caught.value) and "\u202e" not in str(caught.value)


def test_an_episode_that_is_too_large_is_not_sent() -> None:
    worker = Worker(GOOD, LIMITS)
    with pytest.raises(SandboxProblem, match="too large"):
        worker.call({**EPISODE, "final_answer": "x" * (17 << 20)})
    assert worker.call(EPISODE).value == 0.8
    worker.kill()


def test_a_worker_whose_parent_was_killed_ends() -> None:
    """Idle: its pipe closes. At work: the alarm that it set, though the code loops."""
    text = (
        "import os, signal, threading, time\n"
        "from training.sandbox.process import Limits, Worker\n"
        "idle = Worker('def reward(e): return 1.0')\n"
        "busy = Worker('def reward(e):\\n    while True: pass', Limits(seconds=0.2))\n"
        "threading.Thread(target=busy.call, args=({},), daemon=True).start()\n"
        "time.sleep(0.05)\n"
        "print(idle.pid, busy.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=30)
    assert done.returncode == -signal.SIGKILL
    pids, deadline = [int(pid) for pid in done.stdout.split()], time.monotonic() + 10
    while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(pids) == 2 and not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_pool_keeps_workers_and_replaces_the_dead() -> None:
    pool = Pool()
    moody = code("import re\nif episode['final_answer'] == 'loop':\n    while True: pass\nreturn 1")
    with ThreadPoolExecutor(6) as threads:
        values = list(threads.map(lambda _n: pool.call(moody, LIMITS, EPISODE).value, range(40)))
    assert values == [1.0] * 40 and 1 <= len(pool._idle) <= WORKERS_PER_CODE
    pids = {worker.pid for _key, worker in pool._idle.values()}
    with pytest.raises(SandboxProblem, match=r"longer than its limit of 0\.6 s"):
        pool.call(moody, LIMITS, {**EPISODE, "final_answer": "loop"})
    for pid in pids:
        if _runs(pid):
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.05)
    assert pool.call(moody, LIMITS, EPISODE).value == 1.0
    assert not pids & {worker.pid for _key, worker in pool._idle.values()}
    pool.close()
    assert not pool._idle


def test_thousands_of_small_episodes_a_second() -> None:
    worker = Worker(GOOD, LIMITS)
    worker.call(EPISODE)
    best = 0.0
    for _round in range(3):
        began = time.monotonic()
        for _call in range(300):
            worker.call(EPISODE)
        best = max(best, 300 / (time.monotonic() - began))
    worker.kill()
    assert best > 1000  # 3,000 to 7,000 alone; the suite shares its cores


def test_every_kind_has_a_sentence_and_nothing_else_has_one() -> None:
    assert all("{text}" in text or "{" not in text for text in SENTENCES.values())
    assert problem_from(json.loads('{"kind": "made up", "text": "x"}')) == Problem("output")
    assert str(Problem("time", "2", 7)) == "It ran longer than its limit of 2 s; it may loop. (line 7)"


def test_the_pool_keeps_as_many_idle_workers_as_its_limit_and_ends_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_IDLE", 2)
    pool, ended = Pool(), []
    for number in range(3):
        pool.call(f"def reward(episode):\n    return {number}.0", LIMITS, EPISODE)
        ended.append([key[0][-3:] for key, worker in pool._idle.values() if worker.alive])
    pool.close()
    assert ended == [["0.0"], ["0.0", "1.0"], ["1.0", "2.0"]]
