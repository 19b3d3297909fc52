"""``python -m training.verl_backend FOLDER``: train by verl what a job folder says, in verl's virtualenv.

This process waits for verl's own, which Ray starts, and merges their journals meanwhile. SIGTERM asks the job to stop:
it ends after its step, with a checkpoint. The exit codes are those of a run on one device.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.journal import JOURNAL_NAME, RunFinished, lines_backwards, parse_event
from training.main import EXIT_FAILED, EXIT_PAUSED, EXIT_STOPPED, EXIT_SUCCEEDED
from training.verl_backend.folder import SETTINGS_NAME, JobFolder
from training.verl_backend.merger import Merger

MERGE_S = 1.0
CODES = {"succeeded": EXIT_SUCCEEDED, "stopped": EXIT_STOPPED, "paused": EXIT_PAUSED}


def composed(settings: Path) -> Any:
    """verl's own tree with the settings of a job laid over it."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf, open_dict

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer")
    with open_dict(config):
        return OmegaConf.merge(config, OmegaConf.load(settings))


@contextmanager
def merging(folder: JobFolder) -> Iterator[None]:
    """The run's journal grows while the block runs, and is whole after it."""
    merger, over = Merger(folder.run_dir, folder.config.rollouts_per_step), threading.Event()

    def work() -> None:
        while not over.wait(MERGE_S):
            merger.merge()

    thread = threading.Thread(target=work, name="merging", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        merger.merge(over=True)
        merger.close()


def code_of(run_dir: Path) -> int:
    """The exit code by the last word of the run's journal; without one it has failed."""
    line = next(lines_backwards(run_dir / JOURNAL_NAME), b"{}")
    event = parse_event(line) if b'"run_finished"' in line else None
    return CODES.get(event.status, EXIT_FAILED) if isinstance(event, RunFinished) else EXIT_FAILED


def main(words: list[str]) -> int:
    """Train; the exit code."""
    from verl.trainer.main_ppo import run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from training.verl_backend.trainer import TaskRunner

    folder = JobFolder(Path(words[0]).resolve())
    signal.signal(signal.SIGTERM, lambda *_signal: folder.ask_to_stop())
    config = composed(folder.path / SETTINGS_NAME)
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    with merging(folder):
        run_ppo(config, task_runner_class=TaskRunner)
    return code_of(folder.run_dir)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
