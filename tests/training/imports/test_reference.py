"""docs/imports.md is what the code says, and every option of a job has its place in the export or a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from training.config import JobConfig
from training.errors import ConfigError
from training.exports.verl import export_stages, export_verl, verl_yaml
from training.exports.verl_options import OPTIONS, VERL, options_of, translated
from training.imports.reference import reference

FILES = ("train.parquet", "config.yaml", "reward.py", "README.txt")
ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "imports.md").read_text(encoding="utf-8") == reference()


def test_every_option_is_carried_over_or_named() -> None:
    every = set(options_of(JobConfig()))
    others = {option for kind in ("rloo", "ppo") for option in options_of(JobConfig(kind=kind))}
    assert len(every) > 40 and set(OPTIONS) <= every | others
    _keys, missing = translated(JobConfig())
    assert every - set(OPTIONS) <= set(missing)
    text = verl_yaml(JobConfig())
    assert all(f"# {option}" in text and why in text for option, why in missing.items())


def test_the_values_of_envtuning(tmp_path: Path) -> None:
    """Stage 1 of systems.md in our options and in verl's."""
    config = JobConfig.model_validate(
        {
            "model": {"source": "Qwen/Qwen2.5-7B-Instruct"},
            "rollout": {
                "prompts_per_step": 16,
                "num_generations": 16,
                "max_prompt_tokens": 8192,
                "max_turns": 100,
                "max_completion_tokens": 10000,
                "top_k": 0,
                "dialect": "bfcl",
            },
            "grpo": {"beta": 0.1, "loss_type": "grpo", "scale_rewards": "group"},
            "optim": {"learning_rate": 1e-6, "schedule": "linear"},
            "run": {"save_every": 5},
        }
    )
    text = verl_yaml(config, "stage 1")
    found = yaml.safe_load(text)
    actor, rollout, data = found["actor_rollout_ref"]["actor"], found["actor_rollout_ref"]["rollout"], found["data"]
    # Its own is low_var_kl: the same estimate, with another gradient than the one that our trainer has.
    assert (actor["kl_loss_coef"], actor["kl_loss_type"], actor["use_kl_loss"]) == (0.1, "low_var_kl+", True)
    assert (actor["loss_agg_mode"], actor["optim"]["lr"], actor["ppo_mini_batch_size"]) == (
        "seq-mean-token-mean",
        1e-6,
        16,
    )
    assert (rollout["n"], rollout["multi_turn"]["max_assistant_turns"], rollout["top_k"]) == (16, 100, -1)
    assert (data["train_batch_size"], data["max_prompt_length"], data["max_response_length"]) == (16, 8192, 10000)
    assert (found["trainer"]["save_freq"], found["trainer"]["experiment_name"]) == (5, "stage 1")
    assert "# optim.schedule = linear: verl knows constant and cosine" in text and "no parser for bfcl" in text
    assert found["algorithm"]["adv_estimator"] == "grpo" and "policy_loss" not in actor
    with pytest.raises(ConfigError, match="learn from rollouts"):
        export_verl(JobConfig(kind="sft"), tmp_path / "rows.jsonl", tmp_path)


def keys_of(**groups: object) -> tuple[dict[str, object], dict[str, str]]:
    keys, missing = translated(JobConfig.model_validate(groups))
    return {name.removeprefix("actor_rollout_ref.actor."): value for name, value in keys.items()}, missing


def test_losses_that_verl_has_go_along_and_others_are_named() -> None:
    keys, missing = keys_of(grpo={"loss_type": "cispo", "epsilon_high": 4.0})
    # Ours is the largest ratio and has no lower bound; verl's are distances from 1.
    assert (keys["policy_loss.loss_mode"], keys["clip_ratio_low"], keys["clip_ratio_high"]) == ("cispo", 1.0, 3.0)
    assert keys["loss_agg_mode"] == "token-mean" and "grpo.loss_type" not in missing
    keys, _missing = keys_of(grpo={"loss_type": "sapo", "sapo_temperature_neg": 1.2})
    assert (keys["policy_loss.loss_mode"], keys["tau_pos"], keys["tau_neg"]) == ("sapo", 1.0, 1.2)
    keys, missing = keys_of(grpo={"loss_type": "vespo", "vespo_k_pos": 4.0, "top_entropy_share": 0.2})
    assert "policy_loss.loss_mode" not in keys and "no loss like vespo" in missing["grpo.loss_type"]
    assert {"grpo.vespo_k_pos", "grpo.top_entropy_share"} <= set(missing) and "grpo.vespo_k_neg" not in missing
    keys, _missing = keys_of(
        grpo={"importance_sampling": "sequence", "epsilon_high": 0.28, "delta": 4, "entropy_coef": 0.01}
    )
    found = [keys[name] for name in ("policy_loss.loss_mode", "clip_ratio_high", "clip_ratio_c", "entropy_coeff")]
    assert found == ["gspo", 0.28, 4.0, 0.01]


def test_what_verl_would_do_by_itself_is_done_as_here() -> None:
    """Its bound on the loss of bad tokens, its moments, and no correction for what the sampler computes differently."""
    keys, missing = keys_of(optim={"beta1": 0.8, "beta2": 0.95})
    assert keys["clip_ratio_c"] == 1e6 and keys["optim.betas"] == [0.8, 0.95]
    assert not {"optim.beta1", "optim.beta2", "grpo.sampler_correction", "grpo.sampler_ratio_max"} & set(missing)
    correction, asked = "algorithm.rollout_correction", "actor_rollout_ref.rollout.calculate_log_probs"
    assert (keys[f"{correction}.rollout_is"], keys[f"{correction}.rollout_is_threshold"]) == ("token", 3.0)
    assert keys[asked] is True
    keys, _missing = keys_of(grpo={"sampler_correction": "off"})
    assert keys[f"{correction}.rollout_is"] is None and keys[asked] is False
    keys, _missing = keys_of(grpo={"sampler_correction": "sequence_truncate", "sampler_ratio_max": 5.0})
    assert (keys[f"{correction}.rollout_is"], keys[f"{correction}.rollout_is_threshold"]) == ("sequence", 5.0)
    keys, missing = keys_of(grpo={"sampler_correction": "token_mask"})
    assert keys[f"{correction}.rollout_is"] is None and "masks no tokens" in missing["grpo.sampler_correction"]
    keys, _missing = keys_of(kind="rloo")
    assert (keys[f"{correction}.rollout_is"], keys[f"{correction}.rollout_is_threshold"]) == ("token", 3.0)
    keys, _missing = keys_of(kind="ppo", optim={"beta2": 0.99})
    assert keys["critic.optim.betas"] == keys["optim.betas"] == [0.9, 0.99]


def test_rloo_is_verls_estimator_with_the_pull_in_the_reward() -> None:
    keys, missing = keys_of(kind="rloo", rloo={"beta": 0.05}, grpo={"loss_type": "cispo"})
    assert (keys["algorithm.adv_estimator"], keys["loss_agg_mode"]) == ("rloo", "seq-mean-token-sum")
    assert (keys["algorithm.use_kl_in_reward"], keys["algorithm.kl_ctrl.kl_coef"]) == (True, 0.05)
    assert "policy_loss.loss_mode" not in keys and "use_kl_loss" not in keys and "grpo.loss_type" not in missing


def test_ppo_is_gae_with_a_critic_of_its_own() -> None:
    values = {"gamma": 0.99, "lam": 0.95, "beta": 0.001, "epsilon": 0.1, "cliprange_value": 0.4, "num_iterations": 2}
    keys, missing = keys_of(kind="ppo", ppo=values, optim={"learning_rate": 1e-6, "micro_batch_size": 4})
    algorithm = {name: keys[f"algorithm.{name}"] for name in ("adv_estimator", "gamma", "lam", "use_kl_in_reward")}
    assert algorithm == {"adv_estimator": "gae", "gamma": 0.99, "lam": 0.95, "use_kl_in_reward": True}
    assert (keys["algorithm.kl_ctrl.kl_coef"], keys["clip_ratio"], keys["ppo_epochs"]) == (0.001, 0.1, 2)
    critic = {
        name: keys[f"critic.{name}"] for name in ("cliprange_value", "ppo_epochs", "ppo_micro_batch_size_per_gpu")
    }
    assert critic == {"cliprange_value": 0.4, "ppo_epochs": 2, "ppo_micro_batch_size_per_gpu": 4}
    assert "critic.optim.lr" not in keys and keys["critic.model.path"] == "???"
    assert "ppo.value_coef" in missing and "grpo.beta" not in missing and "use_kl_loss" not in keys
    own = {"cliprange_value": 0, "whiten_advantages": False, "critic_learning_rate": 3e-5}
    keys, missing = keys_of(kind="ppo", ppo=own)
    assert keys["critic.optim.lr"] == 3e-5
    assert {"ppo.cliprange_value", "ppo.whiten_advantages"} <= set(missing)


def test_stages_are_a_job_each(tmp_path: Path) -> None:
    rows = [tmp_path / "easy.jsonl", tmp_path / "hard.jsonl"]
    for path, text in zip(rows, ("easy", "hard"), strict=True):
        path.write_text(json.dumps({"messages": [{"role": "user", "content": text}]}) + "\n")
    goal = {"figure": "success", "at_least": 0.5, "times": 2}
    stages = [
        {"name": "easy", "until_step": 30, "until": goal, "data": {"train": str(rows[0])}},
        {"name": "hard", "data": {"train": str(rows[1])}, "rollout": {"num_generations": 4}},
    ]
    config = JobConfig.model_validate({"evaluate": {"every": 5, "share": 0.1}, "curriculum": {"stages": stages}})
    out = tmp_path / "out"
    out.mkdir()
    names = export_stages(config, config.courses, rows, out, name="both")
    assert sorted(names) == sorted(f"stage-{number}/{name}" for number in (1, 2) for name in FILES)
    found = [yaml.safe_load((out / f"stage-{number}/config.yaml").read_text()) for number in (1, 2)]
    assert [each["trainer"]["total_training_steps"] for each in found] == [30, 70]
    assert [each["actor_rollout_ref"]["rollout"]["n"] for each in found] == [8, 4]
    readmes = [(out / f"stage-{number}/README.txt").read_text() for number in (1, 2)]
    assert "Stage 1 of 2: easy." in readmes[0] and "success of held-out tasks is at least 0.5 in 2" in readmes[0]
    assert "the model that stage 1 leaves" in readmes[1]


def exported(folder: Path, rows: list[dict[str, object]], **over: object) -> tuple[str, dict[str, object], str]:
    """The readme, the names that ``reward.py`` defines, and the config's text."""
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = JobConfig.model_validate(over)
    assert export_verl(config, folder / "rows.jsonl", folder) == list(FILES)
    names: dict[str, object] = {}
    exec((folder / "reward.py").read_text(), names)  # noqa: S102 (what verl does with it)
    return (folder / "README.txt").read_text(), names, (folder / "config.yaml").read_text()


ASKED = {"messages": [{"role": "user", "content": "What is 521 * 2?"}]}


def test_rows_with_answers_are_rewarded_by_them(tmp_path: Path) -> None:
    readme, names, config = exported(tmp_path / "a", [ASKED | {"answer": "so\n#### 1042"}])
    score, row = names["compute_score"], {"answer": "so\n#### 1042"}
    assert callable(score)
    answers = ("It is 1,042.", "1042 or 7", "none", "7, no: 1042.0")
    assert [score("tiltyard", text, None, row) for text in answers] == [1.0, 0.0, 0.0, 1.0]
    assert [score("x", "It is\nParis!", truth) for truth in ("paris", "Pari", ["paris", "x"])] == [1.0, 0.0, 1.0]
    assert score("x", "", "paris") == 0.0
    with pytest.raises(ValueError, match="no right answer"):
        score("x", "4", None, {})
    assert "CANNOT RUN" not in readme and "1 where the answer is the row's right one" in readme
    assert f"verl {VERL}" in readme and f"verl {VERL}" in config
    found = yaml.safe_load(config)["reward"]["custom_reward_function"]
    assert found == {"path": "reward.py", "name": "compute_score"}


def test_a_job_that_only_our_environment_can_judge_is_stopped_by_name(tmp_path: Path) -> None:
    rows = [ASKED | {"answer": {"contains": ["1042"]}}, ASKED | {"answer": "1042"}]
    readme, names, config = exported(tmp_path / "a", rows, environment={"name": "tools"})
    assert "CANNOT RUN AS IT IS: 1 of 2 rows have no right answer" in readme
    assert "The environment tools judged it here." in readme and "interaction" not in readme + config
    score = names["compute_score"]
    assert callable(score)
    with pytest.raises(NotImplementedError, match="1 rows of this job have no right answer"):
        score("tiltyard", "1042", None, {})
    first_alone, _names, _config = exported(tmp_path / "b", rows[::-1], data={"max_rows": 1})
    assert "CANNOT RUN" not in first_alone, "only the rows that go along count"
