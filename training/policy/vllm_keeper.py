"""Keeps a vLLM that a run started: ``python -m training.policy.vllm_keeper PIPE FOLDER COMMAND…``.

It leads the session that vLLM's processes live in, and holds the read end of a pipe whose write end only the run has.
When the pipe closes (the run is over, or died in whatever way), or vLLM's first process ends, it ends all of them: a
vLLM whose first process is killed would leave its workers behind, with the memory of the model. Then it removes the
folder with vLLM's socket.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys

from training.sessions import end_session

LOOK_S = 0.2


def keep(pipe: int, folder: str, command: list[str]) -> int:
    """Run the command until it or the pipe ends, and remove ``folder``; gives its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _the_pipe_says_when)  # not SIG_IGN: the command would inherit that
    os.environ.pop("PYTHONPATH", None)  # our code is not for it
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while child.poll() is None and not selector.select(LOOK_S):
            continue
    # A first process that is alive takes the others with it when it is asked to; one that is dead cannot.
    end_session(os.getsid(0), spare=os.getpid())
    code = child.wait()
    shutil.rmtree(folder, ignore_errors=True)
    return code


def _the_pipe_says_when(number: int, frame: object) -> None:
    """What is meant for the run reaches the run."""


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
