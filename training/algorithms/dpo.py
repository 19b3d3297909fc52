"""DPO: learn which of two answers is the better one, without rollouts and without a reward model.

Direct Preference Optimization: Rafailov et al. 2023. The loss is ``trl.DPOTrainer`` 1.16 on pairs that are tokenised
here: only what the assistant wrote counts, so what tools answered within a pair is read and not learned. Tokens of the
prompt are those that a rollout would be prompted with. The reference is the base model, or with LoRA the model without
its adapter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from training.algorithms.base import JournalCallback, common_arguments, one_device, train
from training.algorithms.job import Job, checkpoint_step, row_order
from training.algorithms.lessons import (
    Encoded,
    Example,
    NotLearned,
    learned_tokens,
    no_lesson,
    remarks_of,
)
from training.algorithms.loading import load_lessons, load_model
from training.config import JobConfig
from training.data.learned import Pair, pair_of
from training.data.schema import Row
from training.errors import ConfigError, DataError
from training.policy.adapter import lora_config
from training.rollout.tokens import ChatTemplate


def run_dpo(job: Job) -> None:
    """Train by DPO from the job's config. Raises typed errors, ``StopRequested`` among them."""
    config = job.config
    rows, device, checkpoint, folder, tokenizer = load_lessons(job)
    encoded = encode_pairs(rows, tokenizer, config.dpo.max_length)
    for remark in remarks_of(encoded, limit="dpo.max_length"):
        job.log(remark, "warning")
    job.check_stop()
    model = load_model(config, folder, device)
    callback = JournalCallback(job)
    trainer = _make_trainer(job, model, tokenizer, encoded.examples, callback, device)
    job.check_stop()
    job.started(len(encoded.examples), device, checkpoint_step(checkpoint))
    job.enter("training", job.step + 1)
    train(job, trainer, callback, checkpoint)


def encode_pairs(rows: Sequence[Row], tokenizer: Any, limit: int) -> Encoded:
    """Rows as ``{"prompt_ids", "chosen_ids", "chosen_mask", "rejected_ids", "rejected_mask"}``; a mask is 1 on tokens
    that are learned.

    Raises ``DataError`` when no pair is left, ``TemplateError`` when the template has no turns that can be learned.
    """
    template = ChatTemplate(tokenizer)
    pairs = [(row, pair) for row in rows if (pair := pair_of(row)) is not None]
    if not pairs:
        raise DataError(
            "No row has a chosen and a rejected answer.",
            hint="Choose a dataset of preference pairs, or make one of a run.",
        )
    encoded = Encoded(left_out=Counter(unpaired=len(rows) - len(pairs)))
    for row, pair in pairs:
        with encoded.counting():
            example, reasoned = _encode(row, pair, template)
            if _length(example) > limit:
                raise NotLearned("too_long")
            encoded.add(example, reasoned)
    if not encoded.examples:
        raise encoded.refusal or no_lesson(encoded, limit="dpo.max_length")
    return encoded


def _length(example: Example) -> int:
    return len(example["prompt_ids"]) + max(len(example["chosen_ids"]), len(example["rejected_ids"]))


def _encode(row: Row, pair: Pair, template: ChatTemplate) -> tuple[Example, bool]:
    """A pair in ids, and whether its reasoning is among them. Raises ``NotLearned``."""
    prompt = template.prompt_ids(pair.prompt, row.tools)
    whole = []
    for answer, turns in zip((pair.chosen, pair.rejected), pair.turns, strict=True):
        learned = [False] * len(pair.prompt) + turns
        whole.append(learned_tokens([*pair.prompt, *answer], learned, row.tools, template))
    # A template may render a prompt's end in another way once an answer follows it.
    begin = min(_common(prompt, each.ids) for each in whole)
    example = {"prompt_ids": prompt[:begin]}
    for name, each in zip(("chosen", "rejected"), whole, strict=True):
        example |= {f"{name}_ids": each.ids[begin:], f"{name}_mask": each.marks[begin:]}
    return example, all(each.reasoned for each in whole)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two lists begin with alike."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _pair in alike)


def dpo_arguments(config: JobConfig, run_dir: Path, device: str) -> dict[str, Any]:
    """Arguments of TRL's ``DPOConfig``. Raises ``ConfigError`` for micro batches that do not divide the batch."""
    options = config.dpo
    batch, micro = options.batch_size, config.optim.micro_batch_size or options.batch_size
    if batch % micro:
        sentence = f"{batch} pairs cannot be divided into micro batches of {micro}"
        raise ConfigError(sentence, option="optim.micro_batch_size")
    imitates = options.imitation_weight > 0
    return common_arguments(config, run_dir, device) | {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": batch // micro,
        "train_sampling_strategy": "sequential",  # row_order() has shuffled
        "max_length": None,  # encode_pairs() has dropped what is too long
        "remove_unused_columns": False,
        "beta": options.beta,
        "loss_type": [options.loss_type, "sft"] if imitates else [options.loss_type],
        "loss_weights": [1.0, options.imitation_weight] if imitates else None,
        "label_smoothing": options.label_smoothing,
    }


def _make_trainer(
    job: Job, model: Any, tokenizer: Any, examples: list[Example], callback: JournalCallback, device: str
) -> Any:
    from datasets import Dataset

    from training.algorithms.pairs import PairCollator, PairTrainer
    from training.algorithms.seam import DPOConfig

    config = job.config
    count = config.dpo.batch_size * config.run.max_steps
    order = row_order(len(examples), count, seed=config.run.seed, shuffle=config.data.shuffle)
    trainer = PairTrainer(
        model=model,
        args=one_device(DPOConfig(**dpo_arguments(config, job.run_dir, device))),
        data_collator=PairCollator(tokenizer.pad_token_id),
        train_dataset=Dataset.from_list(examples).select(order),
        processing_class=tokenizer,
        callbacks=[callback],
        peft_config=lora_config(config),
    )
    callback.attach(trainer)
    return trainer
