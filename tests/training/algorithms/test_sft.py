"""SFT on the tiny model: only the assistant's tokens are learned, and they are learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from envs.wire import Message
from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_resume import stop_after
from tests.training.helpers import demonstration_rows, of_type
from training.algorithms.lessons import encode_rows
from training.algorithms.micro_batches import PackingCollator, packed_rows
from training.algorithms.sft import run_sft
from training.data.learned import IGNORED
from training.data.schema import Row, row_from_dict
from training.errors import ConfigError, DataError, StopRequested, TemplateError
from training.model_check import check_model_folder
from training.rollout.templates import use_training_template
from training.rollout.tokens import ChatTemplate


def test_labels_are_exactly_what_the_assistant_wrote(tokenizer: Any) -> None:
    encoded = encode_rows(demonstration_rows(6), tokenizer, 256)
    assert not encoded.left_out and len(encoded.examples) == 6
    for row, example in zip(demonstration_rows(6), encoded.examples, strict=True):
        learned = tokenizer.decode([label for label in example["labels"] if label != IGNORED])
        word = row.messages[2].content
        call = f'<tool_call>{{"name": "echo", "arguments": {{"text": "{word}"}}}}</tool_call>'
        assert learned == f"{call}<|im_end|>It is {word}.<|im_end|>"
        assert all(label in (IGNORED, i) for i, label in zip(example["input_ids"], example["labels"], strict=True))


def test_a_demonstration_begins_with_the_ids_that_a_rollout_will_prompt_with(tokenizer: Any) -> None:
    row = demonstration_rows(1)[0]
    examples = encode_rows([row], tokenizer, 256).examples
    prompt = ChatTemplate(tokenizer).prompt_ids(row.messages[:1], row.tools)
    assert examples[0]["input_ids"][: len(prompt)] == prompt
    assert examples[0]["labels"][: len(prompt)] == [IGNORED] * len(prompt)


def test_rows_too_long_or_without_an_assistant_are_left_out_and_counted(tokenizer: Any) -> None:
    long = Row(messages=[Message(role="user", content="x" * 5000), Message(role="assistant", content="y")])
    mute = Row(messages=[Message(role="user", content="hello")])
    encoded = encode_rows([*demonstration_rows(2), long, mute], tokenizer, 256)
    assert len(encoded.examples) == 2 and encoded.left_out == {"too_long": 1, "mute": 1}
    with pytest.raises(DataError, match=r"1 rows are left out: longer than sft\.max_length"):
        encode_rows([long, mute], tokenizer, 256)


def test_a_template_needs_no_marks_but_must_end_its_turns(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from trl.chat_template_utils import qwen3_chat_template

    monkeypatch.setattr(tokenizer, "chat_template", qwen3_chat_template)
    use_training_template(tokenizer)
    examples = encode_rows(demonstration_rows(1), tokenizer, 1000).examples
    learned = tokenizer.decode([label for label in examples[0]["labels"] if label != IGNORED])
    assert "It is red." in learned and "Say red" not in learned
    monkeypatch.setattr(tokenizer, "chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}")
    plain = row_from_dict({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    with pytest.raises(TemplateError, match="does not end a model turn"):
        encode_rows([plain], tokenizer, 1000)


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


def figures(job: Any, name: str) -> dict[int, float]:
    return {event.step: event.values[name] for event in of_type(job.run_dir, "metrics") if name in event.values}


def packed_and_not(make_job: MakeJob, **over: Any) -> list[list[Any]]:
    """Metrics of the same run with rows of their own and with shared ones."""
    found = []
    for name, packing in (("alone", False), ("together", True)):
        sft = {"batch_size": 12, "max_length": 256, "packing": packing}
        job = make_job(name, kind="sft", sft=sft, run={"max_steps": 3, "threads": 1}, **over)
        run_sft(job)
        found.append(of_type(job.run_dir, "metrics"))
    return found


def test_conversations_that_share_a_row_have_the_loss_of_rows_of_their_own(make_job: MakeJob) -> None:
    alone, together = packed_and_not(make_job, optim={"micro_batch_size": 6, "learning_rate": 1e-2})
    for one, other in zip(alone, together, strict=True):
        for name in ("loss", "grad_norm", "mean_token_accuracy"):
            assert other.values[name] == pytest.approx(one.values[name], rel=1e-4), (one.step, name)
    assert alone[2].values["loss"] < 0.9 * alone[0].values["loss"]


def test_a_packed_batch_has_fewer_rows_and_each_conversation_its_own_positions() -> None:
    lengths = [5, 2, 3, 4, 6]
    assert packed_rows(lengths, 8) == [[4, 1], [0, 2], [3]]
    examples = [{"input_ids": [n] * length, "labels": [n] * length} for n, length in enumerate(lengths)]
    batch = PackingCollator(9, 8)(examples)
    assert batch["input_ids"].tolist() == [[4] * 6 + [1] * 2, [0] * 5 + [2] * 3, [3] * 4 + [9] * 4]
    positions = [[*range(6), *range(2)], [*range(5), *range(3)], [*range(4), *range(4)]]
    assert batch["position_ids"].tolist() == positions
    # The first token of each follows another's last one, so it is never learned; nor is padding.
    assert batch["labels"].tolist() == [
        [IGNORED, 4, 4, 4, 4, 4, IGNORED, 1],
        [IGNORED, 0, 0, 0, 0, IGNORED, 2, 2],
        [IGNORED, 3, 3, 3, IGNORED, IGNORED, IGNORED, IGNORED],
    ]


def test_a_model_that_mixes_up_shared_rows_is_refused(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose layers carry a state along the row; here the mask of conversations is not made."""
    monkeypatch.setattr("transformers.masking_utils.find_packed_sequence_indices", lambda position_ids: None)
    with pytest.raises(ConfigError, match=r"sft\.packing"):
        run_sft(make_job(kind="sft", sft={"batch_size": 12, "max_length": 256, "packing": True}))


def test_the_loss_on_held_out_conversations_is_that_of_their_tokens(make_job: MakeJob, tokenizer: Any) -> None:
    sft = {"batch_size": 12, "max_length": 256, "held_out_share": 0.3, "held_out_every": 2}
    job = make_job(
        kind="sft",
        sft=sft,
        optim={"learning_rate": 5e-3, "micro_batch_size": 3},
        run={"max_steps": 5, "save_every": 4, "threads": 1},
    )
    run_sft(job)
    measured = {event.step: event.values for event in of_type(job.run_dir, "metrics") if "heldout/loss" in event.values}
    assert list(measured) == [0, 2, 4, 5]
    rows = [row for row in demonstration_rows() if _is_held_out(row)]
    assert 0 < len(rows) < 24
    model = AutoModelForCausalLM.from_pretrained(job.run_dir / "checkpoint-4")
    examples = encode_rows(rows, tokenizer, 256).examples
    loss, hits, tokens = 0.0, 0, 0
    for example in examples:
        with torch.no_grad():
            table = model(torch.tensor([example["input_ids"]])).logits[0].double().log_softmax(-1)
        for at, label in enumerate(example["labels"]):
            if label != IGNORED:
                loss -= float(table[at - 1, label])
                hits += int(table[at - 1].argmax()) == label
                tokens += 1
    assert measured[4]["heldout/loss"] == pytest.approx(loss / tokens, rel=1e-4)
    assert measured[4]["heldout/token_accuracy"] == pytest.approx(hits / tokens)
    assert measured[5]["heldout/loss"] < 0.7 * measured[0]["heldout/loss"]
    assert of_type(job.run_dir, "run_started")[0].rows == 24 - len(rows)


def _is_held_out(row: Row) -> bool:
    """By another way: a group's place is its key's alone, so alone it falls on the same side."""
    from training.data.identity import _unit_hash, task_key

    return _unit_hash(task_key(row)) < 0.3


def test_measuring_leaves_no_trace_and_is_not_repeated_on_resuming(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def groups(every: int) -> dict[str, Any]:
        sft = {"batch_size": 12, "max_length": 256, "held_out_share": 0.3, "held_out_every": every}
        lora = {"lora_rank": 4, "lora_dropout": 0.3}  # dropout draws from the random states
        run = {"max_steps": 4, "save_every": 2, "threads": 1}
        return {"kind": "sft", "sft": sft, "run": run, "model": {"source": str(starter), **lora}}

    starter = make_job("any").config.model.source
    seldom, often = make_job("seldom", **groups(100)), make_job("often", **groups(1))
    run_sft(seldom)
    run_sft(often)
    assert figures(seldom, "loss") == figures(often, "loss")
    first = make_job("first", **groups(1))
    stop_after(first, 2, monkeypatch)
    with pytest.raises(StopRequested):
        run_sft(first)
    second = make_job("second", **groups(1), resume_from=first.run_dir)
    second.earlier = (first.run_dir,)
    run_sft(second)
    joined = [e.step for job in (first, second) for e in of_type(job.run_dir, "metrics") if "heldout/loss" in e.values]
    assert joined == [0, 1, 2, 3, 4]
    assert figures(first, "loss") | figures(second, "loss") == figures(often, "loss")
