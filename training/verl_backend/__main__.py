"""``python -m training.verl_backend FOLDER``: train by verl what a job folder says, in verl's virtualenv.

``learner.py`` starts it, merges what its processes journal, and asks it to stop by a file in the folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from training.children import PARENT_VARIABLE, RAY_ADDRESS
from training.sessions import watch_parent
from training.verl_backend.cluster import submit
from training.verl_backend.folder import SETTINGS_NAME, JobFolder


def composed(settings: Path) -> Any:
    """verl's own tree with the settings of a job laid over it: Megatron's tree where they name it."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf, open_dict

    ours = OmegaConf.load(settings)
    is_megatron = OmegaConf.select(ours, "actor_rollout_ref.actor.strategy") == "megatron"
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=["model_engine=megatron"] if is_megatron else [])
    with open_dict(config):
        return OmegaConf.merge(config, ours)


def main(words: list[str]) -> int:
    """Train; the exit code, 0 also where the job has ended otherwise than by its last step: its journal says how.

    With ``--driver`` this process is a job of the cluster, and else it may be who submits one.
    """
    folder, descriptor = JobFolder(Path(words[0]).resolve()), os.environ.pop(PARENT_VARIABLE, "")
    if (address := os.environ.get(RAY_ADDRESS)) and "--driver" not in words:
        return submit(folder, address, lambda stop: watch_parent(int(descriptor), stop) if descriptor else None)
    if descriptor:
        watch_parent(int(descriptor))
    train(folder)
    return 0


def train(folder: JobFolder) -> None:
    """Run verl's task on this machine's Ray, or on the cluster that this process is a job of."""
    from verl.trainer.main_ppo import run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from training.verl_backend.trainer import TaskRunner

    folder.take_variables()
    config = composed(folder.path / SETTINGS_NAME)
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    run_ppo(config, task_runner_class=TaskRunner)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
