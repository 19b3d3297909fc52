"""The vLLM that samples where ``rollout.engine`` says so."""

from __future__ import annotations

from typing import Literal

from training.config.option import Group, option
from training.words import _

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
