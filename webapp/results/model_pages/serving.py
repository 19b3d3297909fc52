"""How a model is served once it was downloaded: commands for vLLM, and a short script for transformers."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from django.utils.translation import gettext as _

from webapp.results.model_pages.lineage import Origins
from webapp.runs.registry.models import ModelKind, RegisteredModel
from webapp.runs.registry.selectors import weights_of_run

ADAPTER_CONFIG = "adapter_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
DEFAULT_MAX_LORA_RANK = 16  # of vLLM; a larger rank must be named
MAX_CONFIG_BYTES = 1 << 20

SCRIPT = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = {folder}
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()

messages = [{{"role": "user", "content": "What is 2 + 3?"}}]
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
outputs = model.generate(**inputs, max_new_tokens=64, do_sample=False)
print(tokenizer.decode(outputs[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
"""
ADAPTER_SCRIPT = """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base, folder = {base}, {folder}
tokenizer = AutoTokenizer.from_pretrained(folder)
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype="auto"), folder).eval()

messages = [{{"role": "user", "content": "What is 2 + 3?"}}]
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
outputs = model.generate(**inputs, max_new_tokens=64, do_sample=False)
print(tokenizer.decode(outputs[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
"""


class Way(NamedTuple):
    """One way to serve a model: a title, its requirements, and the text to copy."""

    id: str
    title: str
    about: str
    text: str


def ways(model: RegisteredModel, origins: Origins, address: str) -> list[Way]:
    """Commands for this model; none while its files cannot be had. ``address`` is that of this site."""
    if model.kind == ModelKind.HUB:
        at = model.revision
        return [
            _vllm_way(model.source, f" --revision {shlex.quote(at)}" if at else ""),
            _transformers_way(model.source),
        ]
    folder = model.folder
    if folder is None or not folder.is_dir():
        return []
    name = folder_name(model)
    found = [_download_way(model, name, address)]
    if (folder / ADAPTER_CONFIG).is_file():
        return [*found, *_adapter_ways(_base_of(origins), name, folder)]
    found += [_vllm_way(f"./{name}", _template_option(name, folder)), _transformers_way(f"./{name}")]
    beside = model.adapter
    if beside is not None and (beside / ADAPTER_CONFIG).is_file():
        words = {"base": _base_of(origins)}
        about = _("its adapter alone, downloaded with ?part=adapter, on its base model: %(base)s") % words
        found.append(_lora_way(_base_of(origins), f"./{name}", beside, about))
    return found


def folder_name(model: RegisteredModel) -> str:
    """The folder that a download unpacks into."""
    return model.name.replace(" ", "-")


def _download_way(model: RegisteredModel, name: str, address: str) -> Way:
    tar = shlex.quote(f"{name}.tar")
    text = (
        f'curl --fail --header "Authorization: Bearer $TOKEN" --output {tar} \\\n'
        f"  {address}/api/v1/models/{model.pk}/download\n"
        f"tar --extract --file {tar}\n"
        f"(cd {shlex.quote(name)} && sha256sum --check SHA256SUMS)\n"
    )
    return Way("serve-download", _("1 · Download"), _("with an API token of yours in TOKEN"), text)


def _vllm_way(source: str, more: str = "") -> Way:
    text = f"vllm serve {shlex.quote(source)}{more} --served-model-name {_served_name(source)}\n"
    return Way("serve-vllm", "vLLM", _("an OpenAI-compatible server on port 8000"), text)


def _transformers_way(source: str) -> Way:
    return Way("serve-transformers", "transformers", _("a Python script"), SCRIPT.format(folder=json.dumps(source)))


def _adapter_ways(base: str, name: str, folder: Path) -> list[Way]:
    script = ADAPTER_SCRIPT.format(base=json.dumps(base), folder=json.dumps(f"./{name}"))
    return [
        _lora_way(base, f"./{name}", folder, _("this checkpoint is a LoRA adapter: its base model is needed as well")),
        Way("serve-transformers", "transformers", _("a Python script, with peft"), script),
    ]


def _lora_way(base: str, source: str, folder: Path, about: str) -> Way:
    rank = _adapter_rank(folder)
    rank_words = f" --max-lora-rank {rank}" if rank > DEFAULT_MAX_LORA_RANK else ""
    module = f"{_served_name(source)}={source}"
    text = f"vllm serve {shlex.quote(base)} --enable-lora{rank_words} --lora-modules {shlex.quote(module)}\n"
    return Way("serve-lora", _("vLLM with a LoRA adapter"), about, text)


def _base_of(origins: Origins) -> str:
    """Where the serving program finds the base model: its id, or a folder of that name next to the adapter."""
    base = weights_of_run(origins.stages[0].run) if origins.stages else None
    if base is not None and base.kind == ModelKind.HUB:
        return base.name
    if base is not None and base.kind == ModelKind.FOLDER:
        return f"./{base.name}"
    return "./base-model"


def _template_option(name: str, folder: Path) -> str:
    return f" --chat-template {shlex.quote(f'./{name}/{CHAT_TEMPLATE}')}" if (folder / CHAT_TEMPLATE).is_file() else ""


def _served_name(source: str) -> str:
    """A simple name that clients use for the model."""
    return re.sub(r"[^\w.-]+", "-", source.rsplit("/", 1)[-1]).strip("-") or "model"


def _adapter_rank(folder: Path) -> int:
    try:
        with (folder / ADAPTER_CONFIG).open("rb") as file:
            found = json.loads(file.read(MAX_CONFIG_BYTES))
        return int(found.get("r") or 0)
    except (OSError, ValueError, AttributeError, TypeError):
        return 0
