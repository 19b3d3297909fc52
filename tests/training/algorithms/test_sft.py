"""SFT on the tiny model: only the assistant's tokens are learned, and they are learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.wire import Message
from tests.training.algorithms.conftest import MakeJob
from tests.training.helpers import demonstration_rows, of_type
from training.algorithms.sft import IGNORED, encode_rows, run_sft
from training.data.schema import Row
from training.errors import ConfigError, DataError, TemplateError
from training.model_check import check_model_folder
from training.rollout.tokens import ChatTemplate


def test_labels_are_exactly_what_the_assistant_wrote(tokenizer: Any) -> None:
    examples, dropped = encode_rows(demonstration_rows(6), tokenizer, 256)
    assert dropped == 0 and len(examples) == 6
    for row, example in zip(demonstration_rows(6), examples, strict=True):
        learned = tokenizer.decode([label for label in example["labels"] if label != IGNORED])
        word = row.messages[2].content
        call = f'<tool_call>{{"name": "echo", "arguments": {{"text": "{word}"}}}}</tool_call>'
        assert learned == f"{call}<|im_end|>It is {word}.<|im_end|>"
        assert all(label in (IGNORED, i) for i, label in zip(example["input_ids"], example["labels"], strict=True))


def test_a_demonstration_begins_with_the_ids_that_a_rollout_will_prompt_with(tokenizer: Any) -> None:
    row = demonstration_rows(1)[0]
    examples, _ = encode_rows([row], tokenizer, 256)
    prompt = ChatTemplate(tokenizer).prompt_ids(row.messages[:1], row.tools)
    assert examples[0]["input_ids"][: len(prompt)] == prompt
    assert examples[0]["labels"][: len(prompt)] == [IGNORED] * len(prompt)


def test_rows_too_long_or_without_an_assistant_are_left_out_and_counted(tokenizer: Any) -> None:
    long = Row(messages=[Message(role="user", content="x" * 5000), Message(role="assistant", content="y")])
    mute = Row(messages=[Message(role="user", content="hello")])
    examples, dropped = encode_rows([*demonstration_rows(2), long, mute], tokenizer, 256)
    assert len(examples) == 2 and dropped == 2
    with pytest.raises(DataError):
        encode_rows([long, mute], tokenizer, 256)


def test_a_template_without_marks_uses_trls_variant_or_is_refused(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.chat_template_utils import qwen3_chat_template

    monkeypatch.setattr(tokenizer, "chat_template", qwen3_chat_template)
    examples, _ = encode_rows(demonstration_rows(1), tokenizer, 1000)
    learned = tokenizer.decode([label for label in examples[0]["labels"] if label != IGNORED])
    assert "It is red." in learned and "Say red" not in learned
    monkeypatch.setattr(tokenizer, "chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(TemplateError):
        encode_rows(demonstration_rows(1), tokenizer, 1000)


def test_a_run_learns_reports_and_leaves_a_safe_model(make_job: MakeJob) -> None:
    job = make_job(
        kind="sft",
        model={"source": "starter"},
        sft={"batch_size": 12, "max_length": 256},
        optim={"learning_rate": 5e-3},
        run={"max_steps": 15},
    )
    run_sft(job)
    steps = of_type(job.run_dir, "metrics")
    assert [event.step for event in steps] == list(range(1, 16))
    names = {"loss", "mean_token_accuracy", "learning_rate", "entropy", "grad_norm", "timing/step", "timing/training"}
    assert all(names <= set(event.values) for event in steps)
    assert steps[-1].values["loss"] < 0.6 * steps[0].values["loss"]
    assert [event.phase for event in of_type(job.run_dir, "phase")] == [
        "preparing",
        "training",
        "saving",  # the last step as a checkpoint, then the model
        "saving",
    ]
    assert check_model_folder(job.run_dir / "model").architecture == "Qwen3ForCausalLM"


def test_micro_batches_must_divide_the_batch(make_job: MakeJob) -> None:
    job = make_job(kind="sft", sft={"batch_size": 12}, optim={"micro_batch_size": 5})
    with pytest.raises(ConfigError, match="micro_batch_size"):
        run_sft(job)


def test_the_starter_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    from training.starter import build_starter

    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build_starter(demonstration_rows(), tmp_path / name, seed=seed)
    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in "abc"}
    assert weights["a"] == weights["b"] != weights["c"]
    texts = {name: (tmp_path / name / "tokenizer.json").read_bytes() for name in "abc"}
    assert texts["a"] == texts["b"]


def test_the_starter_splits_numbers_into_digits_and_any_text_survives(tokenizer: Any) -> None:
    assert len(tokenizer("31415")["input_ids"]) == 5
    for text in ("天气 25°C", "emoji 🙂", "tab\tnewline\n", '\\"quotes\\"'):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
