"""Sessions of processes: what is ended with them, and that nothing of theirs stays."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from training.sessions import EXIT_PARENT_DIED, SHARED, end_session, members

# Makes one piece of shared memory after another, and leaves them to the process that ends it.
MAKER = """\
import os, time
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *names: None
print(os.getpid(), flush=True)
made = []
while len(made) < 500:
    name = f"psm_test_{os.getpid()}_{len(made)}"
    made.append(shared_memory.SharedMemory(name=name, create=True, size=4096))
    time.sleep(0.0003)
time.sleep(60)
"""


def test_shared_memory_that_is_made_while_a_session_ends_is_removed() -> None:
    for _round in range(5):
        maker = subprocess.Popen([sys.executable, "-c", MAKER], start_new_session=True, stdout=subprocess.PIPE)
        assert maker.stdout is not None and int(maker.stdout.readline()) == maker.pid
        deadline = time.monotonic() + 20
        while not (made := list(SHARED.glob(f"psm_test_{maker.pid}_*"))) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert made
        end_session(maker.pid)
        maker.wait(20)
        maker.stdout.close()
        left = list(SHARED.glob(f"psm_test_{maker.pid}_*"))
        for path in left:
            path.unlink()
        assert not left and not members(maker.pid)


def test_a_stopped_process_gets_its_time_to_end_by_itself() -> None:
    """What stops it to look at its memory lets it go on: it ends in its own way, not by SIGKILL."""
    script = "import signal, sys, time; signal.signal(15, lambda *a: sys.exit(7)); print(flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"\n"
    end_session(child.pid, grace_s=20.0)
    assert child.wait(20) == 7
    child.stdout.close()


WATCHING = """
import sys, time
from training import sessions
sessions.BEFORE_S = 0.2
def before():
    {last}
sessions.watch_parent(int(sys.argv[1]), before)
time.sleep(60)
"""


@pytest.mark.parametrize("last", ["pass", "raise RuntimeError('the cluster is away')", "time.sleep(60)"])
def test_a_process_ends_with_its_parent_whatever_it_does_before(last: str) -> None:
    read_fd, alive_fd = os.pipe()
    command = [sys.executable, "-c", WATCHING.format(last=last), str(read_fd)]
    process = subprocess.Popen(command, pass_fds=(read_fd,), stderr=subprocess.DEVNULL)
    os.close(read_fd)
    os.close(alive_fd)
    assert process.wait(30) == EXIT_PARENT_DIED
