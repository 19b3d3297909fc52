"""Chat templates as their makers published them, which come with llama-cpp-python's source package.

Slow: the package is downloaded. Nothing of it is kept.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from training.errors import TemplateError
from training.rollout.family import family_of_text

PACKAGE = "llama-cpp-python==0.3.36"
WRITES = {
    "ByteDance-Seed-OSS": "xml",
    "Cohere2MoE": "command",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "command",
    "GLM-4.6": "glm",
    "GLM-4.7-Flash": "glm",
    "GigaChat3.1-10B-A1.8B": "json-list",
    "LFM2.5-8B-A1B": "lfm2-raw",
    "MiMo-VL": "hermes",
    "MiniMax-M1": "json-list",
    "MiniMax-M2": "invoke",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "xml",
    "NVIDIA-Nemotron-Nano-v2": "json-list",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen-QwQ-32B": "hermes",
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    "Qwen3-Coder": "xml",
    "Qwen3.5-4B": "xml",
    "StepFun3.5-Flash": "xml",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek",
    "deepseek-ai-DeepSeek-V3.1": "deepseek",
    "deepseek-ai-DeepSeek-V3.2": "invoke",
    "google-gemma-4-31B-it": "gemma",
    "ibm-granite-granite-4.0": "hermes",
    "inclusionai-ling-3.0-flash": "glm",
    "meetkai-functionary-medium-v3.1": "function-tag",
    "meta-llama-Llama-3.1-8B-Instruct": "llama",
    "meta-llama-Llama-3.2-3B-Instruct": "llama",
    "meta-llama-Llama-3.3-70B-Instruct": "llama",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral",
    "moonshotai-Kimi-K2": "kimi",
    "muse-glimmer": "invoke",
    "openai-gpt-oss-120b": "harmony",
    "openbmb-MiniCPM5-1B": "invoke",
    "poolside-Laguna-XS.2": "glm",
    "tencent-Hy3": "glm",
    "unsloth-Apriel-1.5": "json-list",
    "unsloth-mistral-Devstral-Small-2507": "mistral",
    "upstage-Solar-Open-100B": "solar",
    "Apertus-8B-Instruct": "json-list",
}
SILENT = {
    "HuggingFaceTB-SmolLM3-3B",
    "LFM2-8B-A1B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "google-gemma-2-2b-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
}
"""Templates that leave calls out: refused for runs with tools."""


@pytest.mark.slow
def test_published_templates_are_read_in_their_own_dialects(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--quiet",
        "-d",
        str(tmp_path),
    ]
    subprocess.run([*command, PACKAGE], check=True, timeout=600)
    (archive,) = tmp_path.glob("*.tar.gz")
    found: dict[str, str] = {}
    with tarfile.open(archive) as package:
        for member in package:
            path = Path(member.name)
            if path.parent.name == "templates" and path.suffix == ".jinja":
                file = package.extractfile(member)
                assert file is not None
                try:
                    found[path.stem] = family_of_text(file.read().decode()).dialect
                except TemplateError:
                    found[path.stem] = "refused"
    assert {name: found[name] for name in WRITES} == WRITES
    assert {found[name] for name in SILENT} == {""}
