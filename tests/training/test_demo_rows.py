"""The rows of each demo fit its windows: prompts and whole episodes, in tokens of the model that its warm-up makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.demos import DEMOS, make_rows
from training.data.reader import load_rows
from training.data.schema import Row
from training.presets import presets
from training.rollout.tokens import messages_to_template
from training.starter import build_tokenizer

SOME = 80


@pytest.mark.parametrize("name", DEMOS)
def test_the_rows_of_a_demo_fit(name: str, tmp_path: Path) -> None:
    preset = presets()[name]
    start = preset.needs_for("demo").start
    assert start is not None
    warm_up = presets()[start.preset]
    for item in (warm_up, preset):
        make_rows(item, tmp_path / f"{item.id}.jsonl", SOME)
    shown, tasks = (load_rows(tmp_path / f"{item.id}.jsonl") for item in (warm_up, preset))
    tokenizer = build_tokenizer(shown)

    def length(row: Row, messages: int | None = None) -> int:
        shown_messages = messages_to_template(row.messages[:messages])
        return len(tokenizer.apply_chat_template(shown_messages, tools=row.tools, tokenize=True)["input_ids"])

    rollout = preset.config_for("demo").rollout
    longest = 0
    for row in shown[: 2 * SOME]:
        *_before, last = (place for place, message in enumerate(row.messages) if message.role == "assistant")
        longest = max(longest, length(row, last + 1))
    assert longest <= rollout.max_prompt_tokens + rollout.max_completion_tokens
    # The warm-up leaves out what is longer: it would learn from little but the short careless rows.
    assert longest <= warm_up.config_for("demo").sft.max_length
    # What a server adds to a row (its tools) is in the demonstrations' prompts; task rows alone are shorter.
    opening = min(next(i for i, m in enumerate(row.messages) if m.role == "assistant") for row in shown[: 2 * SOME])
    assert max(length(row, opening) for row in shown[: 2 * SOME]) < rollout.max_prompt_tokens
    assert 0 < len(tasks) <= 1000
