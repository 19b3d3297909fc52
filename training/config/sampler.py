"""The vLLM that samples where ``rollout.engine`` says so."""

from __future__ import annotations

from typing import Any, Literal

from training.config.option import Group, option
from training.words import OptionError, _, sentence

MAX_TEMPERATURE, MIN_TEMPERATURE = 2.0, 0.01
"""What vLLM samples at: it refuses more, and draws what is below as if it were the least."""


class VllmConfig(Group):
    """The vLLM server that samples, used where the sampler is `vllm`."""

    mode: Literal["managed", "server"] = option(
        "managed",
        title=_("vLLM server"),
        help=_("A managed one is started on the run's own devices, and ends with it. Others need their addresses."),
        choices={
            "managed": _("started by the run"),
            "server": _("running already"),
        },
    )
    urls: list[str] = option(
        list,
        title=_("Server addresses"),
        help=_(
            "http:// or https:// addresses of vLLM servers, one a line. Episodes go to the one with the fewest. Each "
            "must see the run's folder under the same path: that is how it gets new weights."
        ),
        max_length=64,
    )
    gpu_memory_share: float = option(
        0.4,
        title=_("GPU memory share"),
        help=_("Part of the GPU's memory that a managed vLLM takes; the rest is for training."),
        unit=_("share"),
        gt=0,
        le=0.95,
    )
    sleep: bool = option(
        False,
        title=_("Sleep while training"),
        help=_(
            "A managed vLLM gives its GPU memory to training and takes it back to sample: on one card they take "
            "turns. An adapter's base waits in the processor's memory; when all weights are trained, nothing is "
            "kept, since new ones follow. Costs seconds a step. Needs a CUDA GPU."
        ),
    )
    quantization: Literal["none", "fp8", "bitsandbytes"] = option(
        "none",
        title=_("Quantised sampler"),
        help=_(
            "vLLM holds its weights in 8 or 4 bits: less memory, faster turns, and samples that the loss has to "
            "correct for. Servers that run already must have been started this way."
        ),
        choices={
            "none": _("no"),
            "fp8": _("8 bits (FP8), a byte a weight"),
            "bitsandbytes": _("4 bits (bitsandbytes), half a byte; below an adapter"),
        },
    )
    tensor_parallel: int = option(
        1,
        title=_("Tensor parallel"),
        help=_("GPUs that a managed vLLM splits the model over."),
        ge=1,
        le=64,
    )
    max_model_len: int = option(
        0,
        title=_("Window"),
        help=_("Longest text that vLLM makes room for; 0 takes the longest prompt and the longest episode together."),
        unit=_("tokens"),
        ge=0,
        le=1_048_576,
    )
    start_timeout_s: float = option(
        600.0, title=_("Start limit"), help=_("Longest wait until vLLM is ready."), unit=_("seconds"), gt=0, le=7200
    )
    turn_timeout_s: float = option(
        600.0,
        title=_("Turn limit"),
        help=_("Longest wait for one turn, or for new weights to be taken; then vLLM counts as hung."),
        unit=_("seconds"),
        gt=0,
        le=7200,
    )


# --- Sampler rules --------------------------------------------------------------------------------------------------
# What a vLLM cannot sample for, or would sample otherwise than the trainer computes it.

Job = Any
"""A ``JobConfig``, which asks these rules and so cannot be imported here."""


def check_vllm(job: Job) -> None:
    """Raise ``OptionError`` at the option that a vLLM cannot be asked for."""
    rollout = job.rollout
    if not MIN_TEMPERATURE <= rollout.temperature <= MAX_TEMPERATURE:
        text = _("vLLM samples at temperatures from {least} to {most}")
        why = sentence(text, least=f"{MIN_TEMPERATURE:g}", most=f"{MAX_TEMPERATURE:g}")
        raise OptionError("rollout.temperature", why)
    for name, cuts in (("top_p", rollout.top_p < 1), ("top_k", rollout.top_k > 0)):
        if cuts:
            text = _("vLLM reports log-probabilities after this cut, and those before it are needed: turn it off")
            raise OptionError(f"rollout.{name}", sentence(text))
    if 0 < job.vllm.max_model_len < job.longest_text:
        text = _("a window of {window} tokens is shorter than prompt and episode together: {needed}")
        why = sentence(text, window=job.vllm.max_model_len, needed=job.longest_text)
        raise OptionError("vllm.max_model_len", why)
    if job.vllm.mode == "server" and not job.vllm.urls:
        raise OptionError("vllm.urls", sentence(_("name the address of at least one server")))
    if job.vllm.sleep:
        _check_sleep(job)
    if job.vllm.quantization != "none":
        _check_quantization(job)


def _check_sleep(job: Job) -> None:
    """Who sleeps leaves the device to somebody, and is asked for nothing meanwhile."""
    path = "vllm.sleep"
    if job.vllm.mode != "managed":
        text = _("only a vLLM that the run starts sleeps for it: others may sample for other users")
        raise OptionError(path, sentence(text))
    if job.method.learns_from != "rollouts":
        raise OptionError(path, sentence(_("nothing is trained meanwhile, so nothing needs its memory: turn it off")))
    if job.rollout.max_staleness:
        text = _("while it sleeps nothing can be played ahead: turn it off, or set rollout.max_staleness to 0")
        raise OptionError(path, sentence(text))
    if job.run.device == "cpu":
        raise OptionError(path, sentence(_("vLLM can sleep on a CUDA GPU only: turn it off, or choose another device")))


def _check_quantization(job: Job) -> None:
    path, managed = "vllm.quantization", job.vllm.mode == "managed"
    if job.method.learns_from != "rollouts":
        text = _("the measurement would be of weights other than the model's: choose none")
        raise OptionError(path, sentence(text))
    if managed and job.run.device == "cpu":
        text = _("vLLM quantises on a CUDA GPU only: choose none, or another device")
        raise OptionError(path, sentence(text))
    if job.vllm.quantization == "bitsandbytes" and not job.model.lora_rank:
        text = _("vLLM takes no new weights into 4 bits: train an adapter, or choose fp8")
        raise OptionError(path, sentence(text))
    check_quantized_sampling(job, path)


def check_quantized_sampling(job: Job, path: str) -> None:
    """Where one side has rounded its weights, the sampler draws from another distribution than the loss knows."""
    if job.gradient.sampler_correction == "off":
        text = _("the sampler then draws from other weights than are trained: turn {option} on, or choose none")
        raise OptionError(path, sentence(text, option=f"{job.method.gradient}.sampler_correction"))
