"""One way to run a child with limits, in place of five."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from training.children import bare_env, limited_child

ENV = bare_env()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_lines_come_as_they_are_printed_and_the_code_shows_the_end() -> None:
    with limited_child(python("print('one'); print('two'); raise SystemExit(3)"), wall_s=20, env=ENV) as child:
        assert list(child.lines()) == [b"one", b"two"]
        assert child.wait()
    assert child.code == 3


def test_a_child_that_hangs_is_given_up_at_its_deadline_and_killed_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "print(child.pid, flush=True); time.sleep(60)"
    )
    began = time.monotonic()
    with limited_child(python(code), wall_s=2, env=ENV) as child:
        [line] = child.lines()
        assert not child.wait()
    assert child.code == -9 and time.monotonic() - began < 8
    for _try in range(100):
        if not alive(int(line)):
            break
        time.sleep(0.05)
    assert not alive(int(line))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_a_child_goes_with_an_error_of_ours() -> None:
    forever = python("import time; time.sleep(60)")
    with pytest.raises(ZeroDivisionError), limited_child(forever, wall_s=60, env=ENV) as child:
        pid = child._process.pid
        raise ZeroDivisionError
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_more_than_is_wanted_is_refused_before_all_of_it_is_held() -> None:
    with limited_child(python("while True: print('x' * 1000)"), wall_s=20, env=ENV) as child:
        assert child.output(100_000) is None
    with limited_child(python("print('x' * 1000, end='')"), wall_s=20, env=ENV) as child:
        assert child.output(1000) == b"x" * 1000


def test_limits_are_those_of_the_child() -> None:
    code = "import resource, time; time.sleep(0.3); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    with limited_child(python(code), wall_s=20, env=ENV, limits={"RLIMIT_NOFILE": 17}) as child:
        assert list(child.lines()) == [b"17"]
