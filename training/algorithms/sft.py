"""SFT: learn to write what the assistant wrote in demonstrations, and nothing else.

The loss is ``trl.SFTTrainer`` 1.16 on rows that are tokenised in ``lessons.py``: labels are -100 outside of what is
learned.
"""

from __future__ import annotations

from typing import Any

from training.algorithms.base import JournalCallback, common_arguments, one_device, train
from training.algorithms.job import Job, checkpoint_step, row_order
from training.algorithms.lessons import Encoded, encode_rows, remarks_of
from training.algorithms.loading import load_lessons, load_model
from training.algorithms.updates import FiniteUpdates
from training.data.identity import split_rows
from training.data.schema import Row
from training.errors import ConfigError
from training.policy.adapter import lora_config


def run_sft(job: Job) -> None:
    """Train by SFT from the job's config. Raises typed errors, ``StopRequested`` among them."""
    config = job.config
    rows, device, checkpoint, folder, tokenizer = load_lessons(job)
    rows, held_out = _parted(job, rows)
    encoded = encode_rows(rows, tokenizer, config.sft.max_length)
    measured = encode_rows(held_out, tokenizer, config.sft.max_length) if held_out else Encoded()
    for remark in remarks_of(encoded, measured, limit="sft.max_length"):
        job.log(remark, "warning")
    job.check_stop()
    model = load_model(config, folder, device)
    callback = JournalCallback(job)
    trainer = _make_trainer(job, model, tokenizer, encoded.examples, callback, device)
    job.check_stop()
    job.started(len(encoded.examples), device, checkpoint_step(checkpoint))
    if measured.examples:
        from training.algorithms.held_out import HeldOutLoss

        size = trainer.args.per_device_train_batch_size
        callback.held_out = HeldOutLoss(job, trainer, measured.examples, trainer.data_collator, size)
    job.enter("training", job.step + 1)
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


def _make_trainer(
    job: Job, model: Any, tokenizer: Any, examples: list[dict[str, list[int]]], callback: JournalCallback, device: str
) -> Any:
    from datasets import Dataset

    from training.algorithms.seam import SFTConfig, SFTTrainer

    class Trainer(FiniteUpdates, SFTTrainer):  # type: ignore[misc]
        """TRL's trainer, which reports losses and gradients that are not finite."""

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
        from training.algorithms.micro_batches import PackingCollator, require_apart

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
        require_apart(trainer, "sft.packing")
    callback.attach(trainer)
    return trainer
