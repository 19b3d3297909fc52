"""What do values of tokens cost? ``python benchmarks/tokens.py [--steps N]``.

A GRPO run of the starter with 64 rollouts a step, sampled in the trainer's process. Prints JSON: the share of the
step's processor time that goes into gathering and writing the values, and the bytes of a token on the disk.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from tests.training.algorithms.test_sampler_check import by_length  # noqa: E402
from tests.training.helpers import (  # noqa: E402
    demonstration_rows,
    job_config,
    of_type,
    scripted_server,
    write_rows,
)
from training.algorithms import grpo  # noqa: E402
from training.algorithms.job import Job  # noqa: E402
from training.algorithms.token_values import TokenRecord  # noqa: E402
from training.journal import Journal  # noqa: E402
from training.starter import build_starter  # noqa: E402
from training.token_file import read_rollout  # noqa: E402

WARM = 3
METHODS = ("sampled", "dealt", "seen", "write")


def timed(spent: list[float]) -> None:
    """Let each method of the record add its processor seconds."""

    def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def run(*args: Any) -> Any:
            began = time.thread_time()
            try:
                return method(*args)
            finally:
                spent.append(time.thread_time() - began)

        return run

    for name in METHODS:
        setattr(TokenRecord, name, wrapped(getattr(TokenRecord, name)))


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15)
    steps = parser.parse_args().steps
    spent: list[float] = []
    timed(spent)
    grpo.check_environment = lambda config: None  # type: ignore[assignment]  # the server speaks only the websocket
    with tempfile.TemporaryDirectory() as temporary, scripted_server() as url:
        folder = Path(temporary)
        build_starter(demonstration_rows(), folder / "starter", seed=3)
        data = write_rows(folder / "rows.jsonl", demonstration_rows(), prompts_only=True)
        config = job_config(
            model={"source": str(folder / "starter")},
            data={"train": str(data)},
            environment={"url": url},
            rollout={"prompts_per_step": 8, "num_generations": 8, "max_completion_tokens": 200},
            run={"max_steps": steps, "threads": 1, "save_every_minutes": 0},
        )
        job = Job(config, folder / "run", Journal(folder / "run"), threading.Event(), 1)
        marks = [time.process_time()]
        began = spent.copy()
        callback = grpo.JournalCallback.on_step_end

        def ended(*args: Any, **named: Any) -> Any:
            marks.append(time.process_time())
            began.append(sum(spent))
            return callback(*args, **named)

        grpo.JournalCallback.on_step_end = ended  # type: ignore[method-assign]
        grpo.run_grpo(job, scorer=by_length)
        job.journal.close()
        step_s = [b - a for a, b in zip(marks[WARM:], marks[WARM + 1 :], strict=False)]
        tokens_s = [b - a for a, b in zip(began[WARM - 1 :], began[WARM:], strict=False)]
        size = sum(path.stat().st_size for path in (folder / "run" / "tokens").iterdir())
        places = [(event.step, event.group, event.index) for event in of_type(folder / "run", "rollout_started")]
        kept = [found for place in places if (found := read_rollout(folder / "run", *place)) is not None]
        count = sum(len(values.prompt) + len(values.ids) for values in kept)
    figures = {
        "rollouts": len(kept),
        "tokens": count,
        "bytes_a_token": round(size / count, 2),
        "ms_a_step": round(1000 * statistics.median(tokens_s), 2),
        "step_cpu_s": round(statistics.median(step_s), 3),
        "share_of_step": round(statistics.median(tokens_s) / statistics.median(step_s), 4),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps({"tokens": figures}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
