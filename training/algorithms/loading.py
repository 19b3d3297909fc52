"""From ``model.source`` to a model and a tokenizer that are safe to open and fit to train."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

from training.algorithms.job import Job
from training.children import MODEL_CACHE, MODEL_TOKEN
from training.config import JobConfig
from training.data.reader import load_rows
from training.data.schema import Row
from training.errors import ConfigError, ModelError, TiltyardError
from training.garbage import no_collections
from training.machine import compute_threads
from training.model_check import check_model_folder
from training.rollout.templates import use_training_template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STARTER = "starter"
BITSANDBYTES = "pip install bitsandbytes==0.50.2"
_WANTED = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "tokenizer*"]
_UNWANTED = ["*.py", "*.bin", "*.pt", "*.pth", "*.pkl", "*.h5", "*.msgpack", "onnx/*", "original/*"]


def prepare_device(config: JobConfig) -> str:
    """Choose the device and the number of CPU threads. Raises ``ConfigError`` for a GPU that is not there."""
    with no_collections():
        import torch
        from transformers.utils import logging

    logging.set_verbosity_error()  # what matters is journalled; progress bars would only fill the supervisor's log
    logging.disable_progress_bar()
    torch.set_num_threads(config.run.threads or compute_threads())
    available = torch.cuda.is_available()
    if config.run.device == "cuda" and not available:
        raise ConfigError("there is no usable GPU.", option="run.device", hint="Set run.device to auto or cpu.")
    return "cuda" if available and config.run.device != "cpu" else "cpu"


def autocast_dtype(device: str) -> Any:
    """The precision of the device's computing: bfloat16 where it can, else ``None`` for the weights' own precision.

    Older GPUs would only emulate bfloat16, and float16 needs its loss scaled, so they compute in float32.
    """
    import torch

    able = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if able else None


def fetch_model(config: JobConfig, rows: Sequence[Row], run_dir: Path) -> Path:
    """A checked local folder with the base model: built, already here, or fetched from Hugging Face."""
    source = config.model.source
    if source == STARTER:
        from training.starter import build_starter

        folder = run_dir / "starter"
        build_starter(rows, folder, seed=config.run.seed)
        return folder
    folder = Path(source).expanduser()
    if folder.is_dir():
        check_model_folder(folder)
        return folder
    if not config.model.from_hub:
        hint = "Name a folder that holds a model, or a model of Hugging Face such as Qwen/Qwen3-0.6B."
        raise ModelError(f"There is no model folder {source}.", hint=hint)
    return _download(source, config.model.revision)


def _download(source: str, revision: str) -> Path:
    """Fetch weights and tokenizer of a Hugging Face model, never its code. Raises ``ModelError``.

    A project's token is forgotten here: neither libraries nor what is started later have any use for it.
    """
    # Without these a missing network is noticed only after minutes of retries.
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "5")
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "30")
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE

    token, cache = os.environ.pop(MODEL_TOKEN, None), os.environ.get(MODEL_CACHE, HF_HUB_CACHE)
    try:
        folder = snapshot_download(
            source,
            revision=revision or None,
            token=token,
            cache_dir=cache,
            allow_patterns=_WANTED,
            ignore_patterns=_UNWANTED,
            max_workers=4,
        )
    except Exception as exc:  # the hub's client raises a dozen types, httpx's among them
        reason = shorten(str(exc).replace(token, "***") if token else str(exc), 200, placeholder=" …")
        raise ModelError(
            f"The model {source} could not be fetched from Hugging Face: {type(exc).__name__}: {reason}",
            hint="Check the name and the network, and for a gated or private model the project's Hugging Face token; "
            "or set model.source to a local folder.",
        ) from (None if token else exc)
    check_model_folder(Path(folder), links_within=Path(cache))
    return Path(folder)


def fetch_base(job: Job, rows: Sequence[Row]) -> Path:
    """The checked folder of the job's model, kept as ``job.base``; of a hub's model at the commit that the run began
    with, which is recorded."""
    config = job.config
    if pinned := job.first_revision():
        config = config.model_copy(update={"model": config.model.model_copy(update={"revision": pinned})})
    job.base = fetch_model(config, rows, job.run_dir)
    job.resolved |= revision_of(job.base)
    return job.base


class Lessons(NamedTuple):
    """The inputs of SFT and DPO: the rows, and the checked model that learns them."""

    rows: list[Row]
    device: str
    checkpoint: Path | None
    folder: Path
    tokenizer: PreTrainedTokenizerBase


def load_lessons(job: Job) -> Lessons:
    """The rows of a job's dataset with its device, checkpoint, model folder and tokenizer. Raises ``ConfigError``,
    ``DataError``, ``ModelError`` and ``StopRequested``."""
    config = job.config
    job.enter("preparing", 0)
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
    return Lessons(rows, device, checkpoint, folder, tokenizer)


def revision_of(folder: Path) -> dict[str, str]:
    """The commit of a model that came from Hugging Face, as ``Job.resolved`` has it; empty for any other folder."""
    return {"model.revision": folder.name} if folder.parent.name == "snapshots" else {}


def load_tokenizer(folder: Path) -> tuple[PreTrainedTokenizerBase, str | None]:
    """The tokenizer with a template fit for training, and a sentence when the template was swapped."""
    with no_collections():
        from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as exc:  # anything that a broken tokenizer file makes the library raise
        raise ModelError(f"The tokenizer cannot be loaded: {type(exc).__name__}: {str(exc)[:200]}") from exc
    note = use_training_template(tokenizer)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer, note


def four_bits(device: str) -> Any:
    """QLoRA's base (Dettmers et al. 2023): NF4, its constants quantised too. Raises ``ConfigError``."""
    if device != "cuda":
        raise ConfigError(
            "bitsandbytes' 4-bit layers need a CUDA GPU, and there is none here.",
            option="model.quantization",
            hint="Set model.quantization to none, or run it on a worker with a GPU.",
        )
    if find_spec("bitsandbytes") is None:
        raise ConfigError(
            "A base of 4 bits needs bitsandbytes, which is not installed.",
            option="model.quantization",
            hint=f"Install it next to the trainer: {BITSANDBYTES}.",
        )
    import torch
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=autocast_dtype(device) or torch.float32,
    )


def attention_of(config: JobConfig, device: str) -> dict[str, str]:
    """The argument that transformers gets for ``model.attention``. Raises ``ConfigError`` where it cannot be had."""
    chosen = config.model.attention
    if chosen == "auto":
        return {}
    if chosen == "flash_attention_2":
        option = "model.attention"
        if device != "cuda" or autocast_dtype(device) is None:
            what = "FlashAttention computes in bfloat16 on a CUDA GPU, and there is none here that can."
            raise ConfigError(what, option=option, hint="Set model.attention to auto.")
        if find_spec("flash_attn") is None:
            hint = "Install it next to the trainer (pip install flash-attn), or set model.attention to auto."
            raise ConfigError("FlashAttention needs flash-attn, which is not installed.", option=option, hint=hint)
    return {"attn_implementation": chosen}


def load_model(config: JobConfig, folder: Path, device: str) -> Any:
    """The causal language model, on the CPU; the trainer moves it to its device. Raises ``ModelError``.

    A base of 4 bits is on its GPU at once. Raises ``ConfigError`` where that is asked for and cannot be.
    """
    import torch
    from transformers import AutoModelForCausalLM

    wanted = config.model.dtype
    if wanted == "auto":
        # A GPU computes in bfloat16 either way (autocast); what is trained keeps the bits that an update needs.
        wanted = "bfloat16" if autocast_dtype(device) is not None and config.model.lora_rank else "float32"
    quantized = config.method.trains and config.model.quantization != "none"
    more = {"quantization_config": four_bits(device)} if quantized else {}
    more |= attention_of(config, device)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, wanted),
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=True,
            **more,
        )
    except TiltyardError:
        raise
    except ValueError as exc:
        if "attn_implementation" not in more or "ttention" not in str(exc):
            raise ModelError(f"The model cannot be loaded: {type(exc).__name__}: {str(exc)[:200]}") from exc
        what = f"This model has no attention by {config.model.attention}."
        raise ConfigError(what, option="model.attention", hint="Set model.attention to auto.") from exc
    except Exception as exc:  # anything that a broken weight file makes the library raise
        raise ModelError(f"The model cannot be loaded: {type(exc).__name__}: {str(exc)[:200]}") from exc
    disable_router_logits(model)
    return model


def disable_router_logits(model: Any) -> None:
    """Let a mixture of experts give the logits of its router only where a call asks for them.

    With ``output_router_logits`` in its config each forward computes a loss that only training needs, over a mask that
    does not fit the new tokens of a decode step: sampling fails. TRL sets it, and asks for it in its own calls too; a
    model that others trained may bring it.
    """
    config = model.config.get_text_config()
    if getattr(config, "output_router_logits", False):
        config.output_router_logits = False
