"""DPO on the tiny model: what a pair is in tokens, its loss by hand, and that pairs are learned."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.algorithms.test_resume import figures, stop_after
from tests.training.helpers import TOOLS, demonstration_rows, job_config, of_type
from training.algorithms.dpo import dpo_arguments, encode_pairs, run_dpo
from training.algorithms.job import Job
from training.algorithms.pairs import PairCollator, PairTrainer
from training.data.learned import pair_of
from training.data.reader import load_rows
from training.data.schema import Row, row_from_dict
from training.errors import ConfigError, DataError, StopRequested
from training.journal import Journal
from training.rollout.tokens import ChatTemplate


def says(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def pair_rows(count: int = 12) -> list[dict[str, Any]]:
    """The demonstrations, called with a tool, against saying it at once."""
    rows = []
    for row in demonstration_rows(count):
        messages = [message.model_dump(exclude_none=True) for message in row.messages]
        word = messages[2]["content"]
        rows.append(
            {"messages": messages[:1], "tools": TOOLS, "chosen": messages[1:], "rejected": [says(f"No, {word} it is.")]}
        )
    return rows


def make_job(folder: Path, name: str, starter: Path, rows: list[dict[str, Any]], **groups: Any) -> Job:
    data = folder / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    base = {"model": {"source": str(starter)}, "data": {"train": str(data)}, "dpo": {"batch_size": 6}}
    resume = groups.pop("resume_from", None)
    run_dir = folder / name
    config = job_config(kind="dpo", **{**base, **groups})
    return Job(config, run_dir, Journal(run_dir), threading.Event(), 1, (resume,) if resume else ())


def test_both_answers_follow_the_prompt_of_a_rollout_and_only_the_assistant_is_learned(tokenizer: Any) -> None:
    rows = [row_from_dict(row) for row in pair_rows(3)]
    encoded = encode_pairs(rows, tokenizer, 256)
    assert len(encoded.examples) == 3 and not +encoded.left_out
    example = encoded.examples[0]
    assert example["prompt_ids"] == ChatTemplate(tokenizer).prompt_ids(rows[0].messages, TOOLS)
    learned = {}
    for name in ("chosen", "rejected"):
        ids, mask = example[f"{name}_ids"], example[f"{name}_mask"]
        learned[name] = tokenizer.decode([token for token, own in zip(ids, mask, strict=True) if own])
        assert len(ids) == len(mask)
    call = '<tool_call>{"name": "echo", "arguments": {"text": "red"}}</tool_call>'
    assert learned == {"chosen": f"{call}<|im_end|>It is red.<|im_end|>", "rejected": "No, red it is.<|im_end|>"}
    ids, mask = example["chosen_ids"], example["chosen_mask"]
    # The tool's answer is between the two turns and is only read.
    assert "red" in tokenizer.decode([t for t, own in zip(ids, mask, strict=True) if not own])


@pytest.mark.parametrize(
    ("value", "chosen", "rejected"),
    [
        ({"prompt": "hi", "chosen": "a", "rejected": "b"}, ["a"], ["b"]),
        ({"prompt": [{"role": "user", "content": "hi"}], "chosen": [says("a")], "rejected": [says("b")]}, ["a"], ["b"]),
        (
            {
                "chosen": [{"role": "user", "content": "hi"}, says("a")],
                "rejected": [{"role": "user", "content": "hi"}, says("b")],
            },
            ["a"],
            ["b"],
        ),
        ({"chosen": "\n\nHuman: hi\n\nAssistant: a", "rejected": "\n\nHuman: hi\n\nAssistant: b"}, ["a"], ["b"]),
    ],
)
def test_every_spelling_of_the_format_is_a_pair(
    tmp_path: Path, value: dict[str, Any], chosen: list[str], rejected: list[str]
) -> None:
    """Read as an upload is, written as checked rows are, and read again as a trainer does."""
    from training.data.formats.conversations import PREFERENCE_FORMAT, _convert_preference

    assert PREFERENCE_FORMAT.name == "preference"
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(_convert_preference(value).normal()) + "\n", encoding="utf-8")
    pair = pair_of(load_rows(path)[0])
    assert pair is not None and [message.content for message in pair.prompt] == ["hi"]
    assert [message.content for message in pair.chosen] == chosen
    assert [message.content for message in pair.rejected] == rejected


def test_rows_without_two_different_answers_are_left_out_and_counted(tokenizer: Any) -> None:
    good = pair_rows(1)[0]
    others = [
        {**good, "rejected": good["chosen"]},
        {**good, "rejected": ""},
        {**good, "rejected": [{"role": "user", "content": "no answer"}]},
        {"messages": good["messages"]},
    ]
    long = {**good, "chosen": "x" * 3000}
    encoded = encode_pairs([row_from_dict(row) for row in [good, *others, long]], tokenizer, 256)
    assert len(encoded.examples) == 1 and encoded.left_out == {"unpaired": 4, "too_long": 1}
    with pytest.raises(DataError, match="chosen and a rejected"):
        encode_pairs([row_from_dict(row) for row in others], tokenizer, 256)
    with pytest.raises(DataError, match="max_length"):
        encode_pairs([row_from_dict(long)], tokenizer, 256)


def logprobs(model: Any, rows: list[Row], tokenizer: Any) -> tuple[list[float], list[float]]:
    """The summed log-probability of each chosen and rejected answer's own tokens, one sequence at a time."""
    found: dict[str, list[float]] = {"chosen": [], "rejected": []}
    for example in encode_pairs(rows, tokenizer, 1024).examples:
        for name, values in found.items():
            ids = example["prompt_ids"] + example[f"{name}_ids"]
            mask = [0] * len(example["prompt_ids"]) + example[f"{name}_mask"]
            with torch.no_grad():
                table = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
            values.append(sum(float(table[at - 1, ids[at]]) for at in range(1, len(ids)) if mask[at]))
    return found["chosen"], found["rejected"]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def formula(loss: str, chosen: float, rejected: float, lengths: tuple[int, int]) -> float:
    """Of the gains of two answers on the base model, with β = 0.3.

    Rafailov et al. 2023 eq. 7; Zhao et al. 2023 (SLiC); Chowdhury et al. 2024; Azar et al. 2023 eq. 17, of which
    the authors say that gains are meant per token.
    """
    margin = chosen - rejected
    if loss == "ipo":
        return (chosen / lengths[0] - rejected / lengths[1] - 1 / 0.6) ** 2
    if loss == "hinge":
        return max(0.0, 1 - 0.3 * margin)
    right, wrong = -math.log(sigmoid(0.3 * margin)), -math.log(sigmoid(-0.3 * margin))
    return right if loss == "sigmoid" else (0.9 * right - 0.1 * wrong) / 0.8


@pytest.mark.parametrize("loss", ["sigmoid", "hinge", "robust", "ipo"])
@pytest.mark.parametrize("imitation", [0.0, 0.5])
def test_a_loss_is_its_papers_formula(
    loss: str, imitation: float, tmp_path: Path, starter_folder: Path, tokenizer: Any
) -> None:
    """A policy that has left its reference, in the trainer that a job gets."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig

    smoothing = 0.1 if loss == "robust" else 0.0
    options = {"batch_size": 4, "loss_type": loss, "beta": 0.3, "label_smoothing": smoothing}
    config = job_config(kind="dpo", dpo={**options, "imitation_weight": imitation})
    base, policy = (AutoModelForCausalLM.from_pretrained(starter_folder) for _ in range(2))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    rows = [row_from_dict(row) for row in pair_rows(4)]
    examples = encode_pairs(rows, tokenizer, 1024).examples
    trainer = PairTrainer(
        model=policy,
        args=DPOConfig(**dpo_arguments(config, tmp_path, "cpu")),
        data_collator=PairCollator(tokenizer.pad_token_id),
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
    )
    found = float(trainer._compute_loss(trainer.model, PairCollator(0)(examples), False).detach())
    own, before = (logprobs(model, rows, tokenizer) for model in (policy, base))
    gains = [[new - old for new, old in zip(own[side], before[side], strict=True)] for side in (0, 1)]
    assert max(abs(chosen - rejected) for chosen, rejected in zip(*gains, strict=True)) > 0.5
    lengths = [(sum(example["chosen_mask"]), sum(example["rejected_mask"])) for example in examples]
    wanted = [formula(loss, *pair, both) for *pair, both in zip(*gains, lengths, strict=True)]
    imitated = -sum(own[0]) / sum(chosen for chosen, _rejected in lengths)
    assert found == pytest.approx(sum(wanted) / 4 + imitation * imitated, rel=1e-5)


def test_a_run_learns_to_tell_the_answers_apart_and_leaves_a_model(tmp_path: Path, starter_folder: Path) -> None:
    over = {"run": {"max_steps": 8}, "optim": {"learning_rate": 3e-3, "micro_batch_size": 3}}
    job = make_job(tmp_path, "run", starter_folder, pair_rows(), **over)
    run_dpo(job)
    steps = [event.values for event in of_type(job.run_dir, "metrics")]
    assert len(steps) == 8 and steps[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert steps[-1]["rewards/accuracies"] == 1.0 and steps[-1]["loss"] < 0.5 * math.log(2)
    assert {"rewards/margins", "logps/chosen", "logps/rejected", "grad_norm", "learning_rate"} <= set(steps[0])
    assert [event.phase for event in of_type(job.run_dir, "phase")] == ["preparing", "training", "saving", "saving"]
    assert (job.run_dir / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("rank", [0, 4])
def test_two_plus_two_steps_equal_four(
    tmp_path: Path, starter_folder: Path, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: dict[str, Any] = {
        "run": {"max_steps": 4, "save_every": 2, "threads": 1},
        "model": {"source": str(starter_folder), "lora_rank": rank},
        "dpo": {"batch_size": 6, "imitation_weight": 0.5},
        "optim": {"learning_rate": 1e-2 if rank else 1e-3},
    }
    rows = pair_rows()
    whole = make_job(tmp_path, "whole", starter_folder, rows, **over)
    run_dpo(whole)
    first = make_job(tmp_path, "first", starter_folder, rows, **over)
    stop_after(first, 2, monkeypatch)
    with pytest.raises(StopRequested):
        run_dpo(first)
    second = make_job(tmp_path, "second", starter_folder, rows, **over, resume_from=first.run_dir)
    run_dpo(second)
    for name in ("loss", "rewards/margins", "grad_norm"):
        joined = figures(first, name) | figures(second, name)
        assert joined == pytest.approx(figures(whole, name), rel=1e-5, abs=1e-9)


def test_batches_are_padded_at_the_end_and_the_chosen_answers_come_first() -> None:
    one = {"prompt_ids": [1], "chosen_ids": [2, 3], "chosen_mask": [0, 1], "rejected_ids": [4], "rejected_mask": [1]}
    two = {"prompt_ids": [5, 6], "chosen_ids": [7], "chosen_mask": [1], "rejected_ids": [8, 9], "rejected_mask": [1, 1]}
    batch = PairCollator(0)([one, two])
    assert batch["input_ids"].tolist() == [[1, 2, 3, 0], [5, 6, 7, 0], [1, 4, 0, 0], [5, 6, 8, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch["completion_mask"].tolist() == [[0, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]]


def test_what_cannot_be_trained_is_refused(tmp_path: Path, starter_folder: Path) -> None:
    with pytest.raises(ConfigError, match="micro_batch_size"):
        run_dpo(make_job(tmp_path, "micro", starter_folder, pair_rows(), optim={"micro_batch_size": 4}))
    with pytest.raises(ConfigError, match="dataset"):
        run_dpo(make_job(tmp_path, "none", starter_folder, pair_rows(), data={"train": ""}))
    with pytest.raises(ValueError, match=r"dpo\.label_smoothing"):
        job_config(kind="dpo", dpo={"label_smoothing": 0.1})
