"""SFT: learn to write what the assistant wrote in demonstrations, and nothing else.

The loss is ``trl.SFTTrainer`` 1.16 on rows that are tokenised here: labels are -100 outside the assistant's own tokens,
which the chat template marks with ``{% generation %}``. For families whose template has no marks TRL's training
template is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.algorithms.base import IGNORED, JournalCallback, common_arguments, one_device, train
from training.algorithms.finite import FiniteUpdates
from training.algorithms.job import Job, checkpoint_step, row_order
from training.algorithms.loading import (
    fetch_base,
    load_model,
    load_tokenizer,
    prepare_device,
)
from training.data.reader import load_rows
from training.data.schema import Message, Row
from training.data.splitting import split_rows
from training.errors import ConfigError, DataError, TemplateError
from training.journal import PhaseChanged
from training.policy.adapter import lora_config
from training.rollout.tokens import Tools, messages_to_template


def run_sft(job: Job) -> None:
    """Train by SFT from the job's config. Raises typed errors, ``StopRequested`` among them."""
    config = job.config
    job.journal.write(PhaseChanged(phase="preparing", step=0))
    if not config.data.train:
        raise ConfigError("a run needs a dataset.", option="data.train", hint="Set data.train to a JSONL file.")
    rows = load_rows(Path(config.data.train), config.data.max_rows)
    job.check_stop()
    device = prepare_device(config)
    checkpoint = job.find_checkpoint()
    folder = fetch_base(job, rows)
    tokenizer, note = load_tokenizer(folder)
    if note:
        job.log(note, "warning")
    job.check_stop()
    rows, held_out = _parted(job, rows)
    examples, dropped = encode_rows(rows, tokenizer, config.sft.max_length)
    measured, unmeasured = encode_rows(held_out, tokenizer, config.sft.max_length) if held_out else ([], 0)
    if dropped + unmeasured:
        left_out = f"{dropped + unmeasured} rows are left out"
        job.log(f"{left_out}: longer than sft.max_length, or without an assistant turn.", "warning")
    job.check_stop()
    model = load_model(config, folder, device)
    callback = JournalCallback(job)
    trainer = _make_trainer(job, model, tokenizer, examples, callback, device)
    job.check_stop()
    job.started(len(examples), device, checkpoint_step(checkpoint))
    if measured:
        from training.algorithms.held_out_loss import HeldOutLoss

        size = trainer.args.per_device_train_batch_size
        callback.held_out = HeldOutLoss(job, trainer, measured, trainer.data_collator, size)
    job.journal.write(PhaseChanged(phase="training", step=job.step + 1))
    train(job, trainer, callback, checkpoint)


def _parted(job: Job, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Rows to train on and rows that are held out. Raises ``ConfigError`` where none is left to train on."""
    share = job.config.sft.held_out_share
    if not share:
        return rows, []
    split = split_rows(rows, share)
    if not split.train:
        raise ConfigError("The whole dataset would be held out.", option="sft.held_out_share", hint="Add rows.")
    job.log(f"{len(split.held_out)} conversations are held out; nothing is learned from them.")
    return [rows[place] for place in split.train], [rows[place] for place in split.held_out]


def encode_rows(rows: Sequence[Row], tokenizer: Any, limit: int) -> tuple[list[dict[str, list[int]]], int]:
    """Rows as ``{"input_ids", "labels"}`` of at most ``limit`` tokens, and how many rows were left out.

    Raises ``TemplateError`` when the template cannot mark the assistant's tokens, ``DataError`` when no row is left.
    """
    template = marking_template(tokenizer)
    examples = [example for row in rows if (example := _encode(row, tokenizer, template, limit)) is not None]
    if not examples:
        raise DataError(
            "No row fits sft.max_length and has an assistant turn.", hint="Raise the limit, or check the dataset."
        )
    return examples, len(rows) - len(examples)


def marking_template(tokenizer: Any) -> str:
    """A chat template with generation marks: the tokenizer's own or TRL's variant. Raises ``TemplateError``."""
    own = tokenizer.chat_template or ""
    if "{% generation" in own or "{%- generation" in own:
        return str(own)
    from trl.chat_template_utils import get_training_chat_template

    try:
        variant = get_training_chat_template(tokenizer)
    except ValueError as exc:
        raise TemplateError(
            "The chat template cannot mark the assistant's tokens, and TRL has no variant of it that can.",
            hint="Choose a model of a family that TRL supports, such as Qwen2.5, Qwen3 or Llama 3.",
        ) from exc
    return str(variant or own)


def render(messages: list[Message], tools: Tools | None, tokenizer: Any, template: str, *, generate: bool) -> Any:
    """A conversation in ids (``input_ids``), up to where the model's next turn begins with ``generate``, else with
    ``assistant_masks``. Raises ``TemplateError``."""
    special = tuple(text for text in tokenizer.all_special_tokens if len(text) > 1)
    try:
        return tokenizer.apply_chat_template(
            messages_to_template(messages, special),
            tools=tools or None,
            chat_template=template,
            tokenize=True,
            return_dict=True,
            add_generation_prompt=generate,
            return_assistant_tokens_mask=not generate,
        )
    except Exception as exc:  # a template is a program that others wrote: it may raise anything
        raise TemplateError(f"The chat template failed on a row: {type(exc).__name__}: {str(exc)[:200]}") from exc


def marked_tokens(
    messages: list[Message], tools: Tools | None, tokenizer: Any, template: str
) -> tuple[list[int], list[int]]:
    """The ids of a conversation, and 1 for each that the assistant wrote. Raises ``TemplateError``."""
    encoded = render(messages, tools, tokenizer, template, generate=False)
    return encoded["input_ids"], encoded["assistant_masks"]


def _encode(row: Row, tokenizer: Any, template: str, limit: int) -> dict[str, list[int]] | None:
    ids, marks = marked_tokens(row.messages, row.tools, tokenizer, template)
    if not any(marks):
        return None
    end = len(marks) - marks[::-1].index(1)  # what follows the last token that is learned teaches nothing
    ids, marks = ids[:end], marks[:end]
    if len(ids) > limit:
        return None
    return {"input_ids": ids, "labels": [i if mark else IGNORED for i, mark in zip(ids, marks, strict=True)]}


def _make_trainer(
    job: Job, model: Any, tokenizer: Any, examples: list[dict[str, list[int]]], callback: JournalCallback, device: str
) -> Any:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    class Trainer(FiniteUpdates, SFTTrainer):  # type: ignore[misc]
        """TRL's trainer, which tells about losses and gradients that are not finite."""

    config = job.config
    batch, micro = config.sft.batch_size, config.optim.micro_batch_size or config.sft.batch_size
    if batch % micro:
        sentence = f"{batch} rows cannot be divided into micro batches of {micro}"
        raise ConfigError(sentence, option="optim.micro_batch_size")
    arguments = common_arguments(config, job.run_dir, device) | {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": batch // micro,
        "train_sampling_strategy": "sequential",  # row_order() has shuffled
        "max_length": None,  # encode_rows() has dropped what is too long
        "packing": False,
        "dataset_kwargs": {"skip_prepare_dataset": True},
    }
    # Not grouped by length: batches of one kind of row were measured to learn far slower than mixed ones.
    order = row_order(len(examples), batch * config.run.max_steps, seed=config.run.seed, shuffle=config.data.shuffle)
    dataset = Dataset.from_list(examples).select(order)
    packing: dict[str, Any] = {}
    if config.sft.packing:
        from training.algorithms.packing import PackingCollator, require_apart

        packing = {"data_collator": PackingCollator(tokenizer.pad_token_id, config.sft.max_length)}
    trainer = Trainer(
        model=model,
        **packing,
        args=one_device(SFTConfig(**arguments)),
        train_dataset=dataset,
        processing_class=tokenizer,
        callbacks=[callback],
        peft_config=lora_config(config),
    )
    if config.sft.packing:
        require_apart(trainer, examples)
    callback.attach(trainer)
    return trainer
