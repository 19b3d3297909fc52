"""What a chat template makes of tools, calls, results, thoughts and ends of turns is known before a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import TOOLS, demonstration_rows, job_config, write_rows
from tests.training.rollout.templates import HEADER, SILENT, model_with, text_of, tokenizer_for
from training.algorithms.lessons import encode_rows
from training.errors import DataError
from training.preflight import Check, preflight
from training.rollout.templates import facts_of, one_template, use_training_template
from training.rollout.tokens import ChatTemplate

ROOT = Path(__file__).resolve().parents[3]
STRANGE = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    "((call {{ c.function.name }} with {{ c.function.arguments | tojson }})){% endfor %}"
    "<|im_end|>\n{% endfor %}" + HEADER
)
"""Writes calls in a form that no model uses."""


def facts(name: str) -> dict[str, bool]:
    return {fact.aspect: fact.holds for fact in facts_of(ChatTemplate(tokenizer_for(text_of(name))))}


ALL = dict.fromkeys(("tools", "call", "pair", "result", "thought", "prefix", "stop"), True)


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("qwen3", {"prefix", "stop"}),  # its own template rewrites earlier turns
        ("qwen3_training", set()),
        ("qwen2_5", {"thought"}),
        ("qwen3_5_think_training", set()),
        ("nemotron_3_nano", set()),
        ("glm4moe", set()),
        ("gemma4", set()),
        ("lfm2_2_5", set()),
        ("gptoss", {"pair"}),
        ("llama3_1", {"pair", "thought"}),
        ("deepseekv3_training", {"tools", "thought"}),
        ("llama3", {"tools", "call", "pair", "result", "thought"}),
        ("phi3", {"tools", "call", "pair", "result", "thought"}),
        ("lfm2", {"call", "pair", "result", "thought"}),
    ],
)
def test_what_holds_of_real_templates(name: str, lacking: set[str]) -> None:
    found = facts(name)
    assert {aspect for aspect in ALL if not found.get(aspect)} == lacking


def template_check(folder: Path, data: Path, **over: Any) -> Check:
    job = job_config(data={"train": str(data)}, model={"source": str(folder)}, **over)
    return next(check for check in preflight(job) if check.check == "template")


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (SILENT, "The chat template leaves tool calls out."),
        (STRANGE, "The chat template writes tool calls in a form that no dialect reads."),
        (
            SILENT.replace("<|im_end|>", "{{ m.tool_calls[0].nothing.there if m.tool_calls else '' }}<|im_end|>"),
            "The chat template writes no tool calls: ",
        ),
    ],
)
def test_a_template_without_readable_calls_blocks_a_run_with_tools(
    template: str, says: str, starter_folder: Path, tmp_path: Path
) -> None:
    folder = model_with(template, starter_folder, tmp_path / "model")
    data = write_rows(tmp_path / "rows.jsonl", demonstration_rows())
    place = {"name": "tools", "url": "http://127.0.0.1:9"}
    for over in ({}, {"environment": place}):  # the rows bring tools, or the environment may
        found = template_check(folder, data, **over)
        assert (found.ok, found.hard, found.option) == (False, True, "model.source")
        assert found.message.startswith(says) and "rollout.dialect" in found.hint
    assert "dialect" not in template_check(folder, data, rollout={"dialect": "text"}).option
    assert template_check(folder, data, environment=place | {"protocol": "agentgym"}).hard is False


def test_the_dialect_of_a_run_is_named_and_another_one_is_remarked(starter_folder: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", demonstration_rows(), prompts_only=True)
    found = template_check(starter_folder, data)
    assert found.ok and found.message.endswith("calls are read in the dialect hermes.")
    found = template_check(starter_folder, data, rollout={"dialect": "llama"})
    assert (found.ok, found.hard, found.option) == (False, False, "rollout.dialect")
    assert "writes calls as hermes, and rollout.dialect reads llama" in found.message


def test_a_template_that_does_not_list_tools_is_remarked(starter_folder: Path, tmp_path: Path) -> None:
    silent = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    silent += (
        '<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>'
    )
    silent += "{% endfor %}<|im_end|>\n{% endfor %}" + HEADER
    folder = model_with(silent, starter_folder, tmp_path / "model")
    data = write_rows(tmp_path / "rows.jsonl", demonstration_rows())
    found = template_check(folder, data)
    assert (found.ok, found.hard) == (False, False) and "does not show the model its tools" in found.message
    plain = write_rows(
        tmp_path / "plain.jsonl", [row.model_copy(update={"tools": None}) for row in demonstration_rows()]
    )
    assert template_check(folder, plain).ok


def test_demonstrations_with_calls_do_not_teach_silence(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target of a calling turn was the end of the turn alone."""
    monkeypatch.setattr(tokenizer, "chat_template", SILENT)
    with pytest.raises(DataError, match="leaves out their tool calls"):
        encode_rows(demonstration_rows(3), tokenizer, 512)


def test_of_named_templates_the_one_for_tools_is_used(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tokenizer.chat_template
    for named, kept in (
        ({"default": SILENT, "tool_use": own}, own),
        ({"default": own, "rag": SILENT}, own),
    ):
        monkeypatch.setattr(tokenizer, "chat_template", named)
        one_template(tokenizer)
        assert tokenizer.chat_template == kept


def test_a_template_for_tools_alone_can_be_used() -> None:
    """Several models ship one that loops over the tools without asking whether there are any."""
    call = '<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>'
    body = "{{ m.content }}{% for c in m.tool_calls or [] %}" + call + "{% endfor %}"
    only = "{% for t in tools %}{{ t | tojson }}{% endfor %}" + SILENT.replace("{{ m.content }}", body)
    tokenizer = tokenizer_for(only)
    assert use_training_template(tokenizer) is None and ChatTemplate(tokenizer).family.dialect == "hermes"
    template = ChatTemplate(tokenizer)
    assert "probe_tool" not in template.tokenizer.decode(
        template.prompt_ids(demonstration_rows()[0].messages[:1], TOOLS)
    )


@pytest.mark.parametrize("name", ["qwen3", "qwen3_5_think", "qwen3_6"])
def test_trls_variant_is_known_by_what_it_renders(name: str) -> None:
    """Files of one family differ in spaces and comments: a variant was found for the very same text alone."""
    other = "{#- as somebody saved it -#}\n" + text_of(name)
    tokenizer = tokenizer_for(other)
    note = use_training_template(tokenizer)
    assert note is not None and tokenizer.chat_template == text_of(f"{name}_training")


def test_the_command_says_what_holds(tmp_path: Path) -> None:
    for name, code in (("llama3_1", 0), ("llama3", 1)):
        tokenizer_for(text_of(name)).save_pretrained(tmp_path / name)
        command = [sys.executable, "-m", "training", "template", str(tmp_path / name), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
        found = {fact["aspect"]: fact["holds"] for fact in json.loads(done.stdout)["facts"]}
        assert (done.returncode, found["call"], found["stop"]) == (code, code == 0, True)
    done = subprocess.run(
        [sys.executable, "-m", "training", "template", str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "tokenizer cannot be loaded" in done.stderr and "Traceback" not in done.stderr
