"""The process that scores a folder of recorded episodes: ``python -m training.rewards.lab``, with limits."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.child_env import bare_env
from training.config import RewardComponent
from training.limited import NO_LIMITS, limited_child
from training.rewards.custom import SWITCH_VARIABLE
from training.rewards.lab.scoring import ASK
from webapp.people.teams.switches import custom_rewards_on

logger = logging.getLogger(__name__)
MEMORY_BYTES = 4 << 30
ONE_THREAD: Mapping[str, str] = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class ScoringFailed(Exception):
    """The process failed. ``said`` is its own sentence, if it had one; ``late``: it took too long."""

    def __init__(self, said: str, late: bool) -> None:
        super().__init__(said)
        self.said, self.late = said, late


def computing_env() -> dict[str, str]:
    """The environment of a process that asks no judge or model. It reads the database, so threads may not call it."""
    custom = {SWITCH_VARIABLE: "true"} if custom_rewards_on() else {}
    return bare_env(**ONE_THREAD, **custom)


def score_in_child(
    folder: Path,
    components: Sequence[RewardComponent],
    on_progress: Callable[[int, int], None],
    *,
    env: dict[str, str],
    wall_s: float,
    ask: bool = False,
    loads_model: bool = False,
) -> None:
    """Have the values computed and kept in the folder. ``on_progress`` gets how many rollouts are done, and of how
    many; what it raises ends the process. Raises ``ScoringFailed``, and ``OSError`` where no process can be started."""
    # The libraries of models reserve far more addresses than they use, so a limit on these would end them at once.
    said, limits = "", NO_LIMITS if loads_model else {"RLIMIT_AS": MEMORY_BYTES}
    with tempfile.TemporaryFile() as request:
        request.write(json.dumps([item.model_dump(mode="json") for item in components]).encode())
        request.seek(0)
        command = [sys.executable, "-P", "-m", "training.rewards.lab", str(folder), *([ASK] if ask else [])]
        with limited_child(command, wall_s=wall_s, env=env, limits=limits, stdin=request, stderr=None) as child:
            for line in child.lines():
                said = _read_progress(line, on_progress) or said
            in_time = child.wait()
    if child.code:
        logger.warning("scoring ended with %s", child.code, extra={"folder": folder.name})
        raise ScoringFailed(said, late=not in_time)


def _read_progress(line: bytes, on_progress: Callable[[int, int], None]) -> str:
    """Pass progress on to ``on_progress``. Returns the sentence of a failure, or ""."""
    try:
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            return str(told["error"])
        done, total = int(told["done"]), int(told["total"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""  # a library printed something
    on_progress(done, total)
    return ""
