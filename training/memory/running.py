"""Memory of a run that is under way: one dry step over the longest rows before it starts, and a name for a shortage."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from training.config import JobConfig
from training.errors import DeviceFault, MemoryShort, ModelError, TiltyardError
from training.memory.advice import Verdict, halved, judge
from training.memory.devices import LEARNING, Term, Weight, device_here, gib, kept_by
from training.memory.table import Model, longest_shape, plainly_fits
from training.memory.tracing import loss_like
from training.policy.memory import is_out_of_memory
from training.words import _, sentence

SURE = 0.5
"""Below this share of the device nothing is tried: the table would have to be wrong by half."""
_BROKEN = re.compile(
    r"CUDA (driver )?error: .*("
    r"uncorrectable|hardware stack error|unspecified launch failure|launch timed out|GPU is lost|NVLink"
    r"|busy or unavailable|no CUDA-capable device|not yet initialized|initialization error|unknown error"
    r"|driver shutting down)",
    re.IGNORECASE,
)
"""What CUDA says of a device or driver that fails. Illegal addresses and assertions are mostly a program's fault."""


def verdict_here(config: JobConfig, model: Any) -> Verdict | None:
    """The verdict for this job on this device, by the model that it has loaded; ``None`` where it cannot be traced."""
    try:
        return judge(config, Model(model.config), device_here(config.run.device))
    except ModelError:
        return None


def dry_step(job: Any, trainer: Any) -> None:
    """A forward and backward over rows as long as the options allow, then forgotten. Raises ``MemoryShort``.

    It moves no weights and draws no random numbers that the run would miss. Left out where the table says that there is
    plenty of room; a model that the table does not know is tried.
    """
    config, device = job.config, device_here(job.config.run.device)
    if plainly_fits(config, Model(trainer.model.config), device):
        return
    verdict = verdict_here(config, trainer.model)
    if verdict is not None and verdict.need.learning < SURE * device.bytes:
        return
    shape, began = longest_shape(config), time.monotonic()
    with named_shortage(config, trainer.model), torch.random.fork_rng(_cuda_devices(trainer)):
        moments = _moments(trainer.model, config.optim.optimizer)
        most = _forward_and_backward(trainer, shape, moments=moments)
    seconds = time.monotonic() - began
    size = f" and {gib(most)} at most" if most else ""
    length = shape.prompt + shape.completion
    job.log(f"A dry step over the longest rows ({shape.rows} × {length:,} tokens) took {seconds:.1f} s{size}.")


def _forward_and_backward(trainer: Any, shape: Any, *, moments: int) -> int:
    """Bytes at the moment of most; 0 on a processor."""
    model, device = trainer.model, trainer.accelerator.device
    if trainer.args.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    # The optimiser has no moments before the first step, and has them at every other.
    ballast = torch.empty(moments, dtype=torch.uint8, device=device) if on_gpu else None
    ids = torch.zeros(shape.rows, shape.prompt + shape.completion, dtype=torch.long, device=device)
    labels = ids.clone()
    labels[:, : shape.prompt] = -100
    mask = torch.ones_like(ids)
    was_training = model.training
    model.train()
    try:
        with trainer.accelerator.autocast():
            loss = loss_like(model, shape.completion, input_ids=ids, attention_mask=mask, labels=labels)
        trainer.accelerator.backward(loss)
        return int(torch.cuda.max_memory_allocated(device)) if on_gpu else 0
    finally:
        model.zero_grad(set_to_none=True)
        model.train(was_training)
        del ballast
        if on_gpu:
            torch.cuda.empty_cache()


def _moments(model: Any, optimizer: str) -> int:
    """Bytes that the optimiser keeps on a GPU."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
    weights = (Weight(tuple(p.shape), p.element_size(), id(p) in tables) for p in trained)
    return kept_by(optimizer, weights, on_gpu=True).here


def _cuda_devices(trainer: Any) -> list[Any]:
    device = trainer.accelerator.device
    return [device] if device.type == "cuda" else []


@contextmanager
def named_shortage(config: JobConfig, model: Any) -> Iterator[None]:
    """Turns an out-of-memory error of the block into ``MemoryShort``, which names the largest term and a change."""
    try:
        yield
    except Exception as exc:
        if not is_out_of_memory(exc):
            raise
        raise shortage(config, verdict_here(config, model)) from exc


def shortage(config: JobConfig, verdict: Verdict | None) -> MemoryShort:
    """What is said when memory ran out while the model was learning."""
    if verdict is None:
        return MemoryShort(sentence(_("Memory ran out while the model was learning.")), hint=_hint(config, None))
    need = verdict.need
    term = max((term for term in need.terms if term.key in LEARNING), key=_size)
    text = _("Memory ran out while the model was learning. Most of it goes to {term}: {size} for {why}.")
    message = sentence(text, term=sentence(term.title), size=gib(term.bytes), why=term.why)
    return MemoryShort(message, hint=_hint(config, verdict))


def device_fault(error: BaseException) -> TiltyardError | None:
    """The name of an error that the device is the cause of, wherever it came from; ``None`` for all others."""
    if is_out_of_memory(error):
        text = sentence(_("Memory ran out on the device: {why}."), why=_first_line(error))
        return MemoryShort(text, hint=_("Look what else holds memory there (nvidia-smi), then resume."))
    if isinstance(error, RuntimeError) and _BROKEN.search(str(error)):
        return DeviceFault(
            sentence(_("The GPU or its driver failed: {why}."), why=_first_line(error)),
            hint=_("nvidia-smi and the kernel's log (dmesg) say more. A resumed run starts at its last checkpoint."),
        )
    return None


def _first_line(error: BaseException) -> str:
    """What PyTorch says, without its advice on how to look for bugs."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].split(". GPU ")[0].rstrip(".")[:200]


def _size(term: Term) -> int:
    return term.bytes


def _hint(config: JobConfig, verdict: Verdict | None) -> str:
    if verdict is not None and not verdict.fits:
        return verdict.hint
    change = halved(config)
    if change is None:
        return _("Something else may hold memory on this device: look there, then resume.")
    text = _("Set {options}, and look whether something else holds memory on this device; then resume.")
    return sentence(text, options=change)
