"""Does a job fit a device, and if not, the smallest change that makes it fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from training.config import JobConfig
from training.errors import ConfigError
from training.memory.devices import CLOSE, DEVICES, Device, Need, Term, device_here, device_named, gib
from training.memory.table import Model, longest_shape, memory_of, micro_rows, update_rows
from training.words import Sentence, _, sentence

LORA_RANK = 16


class Change(NamedTuple):
    """Options to set, by their paths, and what the job needs then."""

    values: dict[str, Any]
    need: Need

    @property
    def text(self) -> str:
        """The options as they are written in a job file."""
        return ", ".join(f"{path}: {str(value).lower()}" for path, value in self.values.items())


class Verdict(NamedTuple):
    """``change`` is the smallest that fits, ``other`` a device that would do where no change does."""

    need: Need
    change: Change | None = None
    other: Device | None = None
    by_verl: bool = False

    @property
    def fits(self) -> bool:
        """Whether the job fits as it is."""
        return self.need.fits

    @property
    def sentence(self) -> Sentence:
        """The verdict in one sentence."""
        need, device = gib(self.need.whole), self.need.device
        title: str = device.title
        if self.need.devices > 1:
            title = sentence(_("each of {count} × {device}"), count=self.need.devices, device=device.title)
        values = {"need": need, "all": gib(device.bytes), "device": title}
        if not self.fits:
            return sentence(_("It needs about {need}, and {device} has {all}."), **values)
        if self.need.whole > CLOSE * device.bytes:
            return sentence(_("It needs about {need} of the {all} of {device}: a close fit."), **values)
        if self.need.most > self.need.whole:
            text = _(
                "It needs about {need} of the {all} of {device}, and takes up to {most} for more rollouts at once."
            )
            return sentence(text, **values, most=gib(self.need.most))
        return sentence(_("It needs about {need} of the {all} of {device}."), **values)

    @property
    def note(self) -> Sentence:
        """How far the table was checked, where that is not the same for all of it."""
        if not self.by_verl:
            return Sentence("")
        text = _(
            "Weights, gradients and optimiser are counted as verl divides them; all else is worked out from verl's "
            "source and was not measured on GPUs."
        )
        return sentence(text)

    @property
    def hint(self) -> Sentence:
        """What to do about it; empty where it fits."""
        if self.fits:
            return Sentence("")
        if self.change is not None:
            text = _("Set {options}: then it needs about {need}.")
            return sentence(text, options=self.change.text, need=gib(self.change.need.whole))
        if self.other is not None:
            return sentence(_("Choose a smaller model, or a device such as {device}."), device=self.other.title)
        return sentence(_("Choose a smaller model, or shorter rollouts."))


def halved(config: JobConfig) -> str | None:
    """The next smaller micro batch as a job file has it, else checkpointing; ``None`` where both are used up."""
    smaller = _smaller(config)
    if smaller:
        ((path, value),) = _values(config, {}, smaller[0]).items()
        return f"{path}: {value}"
    return None if config.model.gradient_checkpointing else "model.gradient_checkpointing: true"


def judge(config: JobConfig, model: Model, device: Device) -> Verdict:
    """The table of a job, or of its stage that needs most, and what would make it fit.

    Raises ``ModelError`` for a model that cannot be traced.
    """
    if config.stages:
        return max((judge(course, model, device) for course in config.courses), key=lambda found: found.need.whole)
    need = memory_of(config, model, device)
    if need.fits:
        return Verdict(need, by_verl=config.by_verl)
    least = need
    for base, sizes in _families(config, device):
        least = memory_of(_with(config, _values(config, base, sizes[-1])), model, device)
        if least.fits:
            return Verdict(need, _largest(config, model, device, base, sizes), by_verl=config.by_verl)
    larger = sorted((d for d in DEVICES.values() if d.bytes >= least.whole), key=lambda d: d.bytes)
    return Verdict(need, None, larger[0] if larger else None, config.by_verl)


def can_sleep(config: JobConfig, device: Device) -> bool:
    """Whether the run starts a vLLM that could leave the device to training and does not."""
    if config.by_verl:
        return False
    ours = config.samples_with_vllm and config.vllm.mode == "managed" and config.method.learns_from == "rollouts"
    awake = ours and not config.vllm.sleep and not config.rollout.max_staleness
    return awake and device.kind == "cuda" and config.run.device != "cpu"


Sizes = list[int | None]  # micro batches from the largest, ``None`` for the one that the job has


def _families(config: JobConfig, device: Device) -> Iterator[tuple[dict[str, Any], Sizes]]:
    """Changes from the one that costs least, each with smaller micro batches: more passes, then time, then what is
    trained."""
    if not config.method.trains:
        return
    sizes: Sizes = list(_smaller(config))
    recompute = {} if config.model.gradient_checkpointing else {"model.gradient_checkpointing": True}
    lora = {} if config.model.lora_rank else {"model.lora_rank": LORA_RANK}
    if sizes:
        yield {}, sizes
    if can_sleep(config, device):
        yield {"vllm.sleep": True}, [None, *sizes]
    if recompute:
        yield recompute, [None, *sizes]
    if lora:
        yield lora, [None, *sizes]
    if lora and recompute:
        yield {**lora, **recompute}, [None, *sizes]
    uncorrected = config.samples_with_vllm and config.gradient.sampler_correction == "off"
    if device.kind == "cuda" and config.model.quantization == "none" and not uncorrected and not config.by_verl:
        yield {**lora, **recompute, "model.quantization": "nf4"}, [None, *sizes]


def _largest(config: JobConfig, model: Model, device: Device, base: dict[str, Any], sizes: Sizes) -> Change:
    """The largest micro batch of a family whose smallest fits."""
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high) // 2
        if memory_of(_with(config, _values(config, base, sizes[middle])), model, device).fits:
            high = middle
        else:
            low = middle + 1
    values = _values(config, base, sizes[low])
    return Change(values, memory_of(_with(config, values), model, device))


def _values(config: JobConfig, base: dict[str, Any], size: int | None) -> dict[str, Any]:
    """``base`` with micro batches of ``size`` rows, in the unit that the job limits them by."""
    if size is None:
        return base
    if config.optim.max_tokens_per_micro_batch or (config.by_verl and not config.optim.micro_batch_size):
        shape = longest_shape(config)
        return {**base, "optim.max_tokens_per_micro_batch": size * (shape.prompt + shape.completion)}
    return {**base, "optim.micro_batch_size": size}


def _smaller(config: JobConfig) -> list[int]:
    """Micro batches below today's that divide the update, halved each time: each is a doubling of the passes."""
    whole = update_rows(config)
    rows = micro_rows(config)
    found, wanted = [], rows // 2
    while wanted >= 1:
        fitting = next(size for size in range(wanted, 0, -1) if whole % size == 0)
        found.append(fitting)
        wanted = fitting // 2
    return found


def _with(config: JobConfig, values: dict[str, Any]) -> JobConfig:
    data = config.model_dump()
    for path, value in values.items():
        group, _dot, name = path.partition(".")
        data[group][name] = value
    return JobConfig.model_validate(data)


# The table of a job's memory as text and as JSON, and the verdict.

NOT_FOUND = "The size of {source} is not known: it has to be a local folder here, or one of the ids in known.py."


def verdict_of(config: JobConfig, device: str = "") -> Verdict:
    """The verdict for a job. Raises ``ConfigError`` where the model's size is unknown, ``ModelError``."""
    model = Model.of(config.model.source)
    if model is None:
        raise ConfigError(NOT_FOUND.format(source=config.model.source), option="model.source")
    return judge(config, model, device_named(device) if device else device_here(config.run.device))


def as_text(verdict: Verdict) -> str:
    """The terms as text, the verdict below."""
    need = verdict.need
    lines = [f"{term.title:<40} {gib(term.bytes):>10}  {term.why}" for term in need.terms]
    sums = [f"{'while learning':<40} {gib(need.learning):>10}", f"{'while sampling':<40} {gib(need.sampling):>10}"]
    said = [part for part in (verdict.sentence, verdict.hint, verdict.note) if part]
    return "\n".join([*lines, "", *sums, "", " ".join(said)])


def as_json(verdict: Verdict) -> str:
    """The same for programs: bytes. ``told`` is a sentence as its template and values, for translation."""
    need = verdict.need
    change = verdict.change
    return json.dumps(
        {
            "device": {"title": need.device.title, "bytes": need.device.bytes},
            "devices": need.devices,
            "note": verdict.note.data,
            "terms": [_term(term) for term in need.terms],
            "learning": need.learning,
            "sampling": need.sampling,
            "whole": need.whole,
            "most": need.most,
            "fits": verdict.fits,
            "verdict": str(verdict.sentence),
            "hint": str(verdict.hint),
            "change": change.values if change else None,
            "changed": change.need.whole if change else None,
            "told": {"verdict": verdict.sentence.data, "hint": verdict.hint.data},
        },
        indent=2,
        ensure_ascii=False,
    )


def _term(term: Term) -> dict[str, Any]:
    why = {"why": str(term.why), "told": term.why.data}
    return {"term": term.key, "title": term.title, "part": term.part, "bytes": term.bytes, **why}
