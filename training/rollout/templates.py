"""Which chat template a model is trained with: its own where that keeps earlier turns as they were, else TRL's variant.

This is the only door to TRL's templates (``trl.chat_template_utils`` 1.16). A variant is known by what it renders, not
by the text of the template: files of one family differ in spaces and comments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from envs.wire import Message
from training.errors import TemplateError
from training.rollout.family import SAID, Rows, probe_calls, probe_tools
from training.rollout.tokens import HINT, ChatTemplate, Tools

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_USER = {"role": "user", "content": "probe asks"}
_SYSTEM = {"role": "system", "content": "probe rules"}
_LAST_TURNS: Rows = [
    {"role": "assistant", "content": SAID},
    {"role": "assistant", "content": SAID, "reasoning_content": "probe thinks"},
    {"role": "assistant", "content": "", "tool_calls": probe_calls(1)},
]


def one_template(tokenizer: PreTrainedTokenizerBase) -> None:
    """Of several named templates keep the one for tools, or the default: a conversation is rendered by one alone."""
    named = tokenizer.chat_template
    if isinstance(named, dict):
        tokenizer.chat_template = named.get("tool_use") or named.get("default") or next(iter(named.values()), None)


def check_prefix_preserving(tokenizer: PreTrainedTokenizerBase, tools: Tools | None = None) -> None:
    """Raise ``TemplateError`` unless user turns can be appended without touching what came before, and answers of tools
    too where the template writes calls that are read.

    Checked by rendering, with and without ``tools``, a conversation that grows by a tool answer and a user turn.
    """
    if not tokenizer.chat_template:
        raise TemplateError("The model has no chat template.", hint=HINT)
    template = ChatTemplate(tokenizer)
    tool = Message(role="tool", name="probe", tool_call_id="call_0", content="probe")
    other = tool.model_copy(update={"tool_call_id": "call_1"})
    user = Message(role="user", content="probe again")
    grown = [[tool], [tool, other]] if template.family.dialect else []
    for messages in ([user], *grown):
        template.suffix_text(messages)
        template.suffix_text(messages, tools)


def use_training_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Swap in TRL's training template when the tokenizer's own cannot be trained with.

    Returns a sentence for the log when a swap happened, else ``None``. Raises ``TemplateError`` when the own template
    does not preserve prefixes and TRL has none that renders the same.
    """
    one_template(tokenizer)
    try:
        check_prefix_preserving(tokenizer)
    except TemplateError:
        replacement = _variant(tokenizer)
        if replacement is None:
            raise
        tokenizer.chat_template = replacement
        check_prefix_preserving(tokenizer)
        return (
            "The model's chat template rewrites earlier turns, so TRL's training variant of it is used. "
            "Serve the trained model with the template saved beside it."
        )
    return None


def _variant(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """TRL's template that renders prompts and last turns as the tokenizer's own does."""
    own = tokenizer.chat_template
    wanted = [*_rendered(tokenizer)]
    if not any(wanted):
        return None
    try:
        for variant in _variants():
            tokenizer.chat_template = variant
            if [*_rendered(tokenizer)] == wanted:
                return variant
    finally:
        tokenizer.chat_template = own
    return None


def _variants() -> Iterator[str]:
    from trl import chat_template_utils

    for name in sorted(vars(chat_template_utils)):
        if name.endswith("_training_chat_template") and isinstance(text := getattr(chat_template_utils, name), str):
            yield text


def _rendered(tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Prompts and last turns; empty where the template fails."""
    asked: list[tuple[Rows, bool]] = [([_SYSTEM, _USER], True), *(([_USER, turn], False) for turn in _LAST_TURNS)]
    for tools in (None, probe_tools()):
        for rows, generate in asked:
            try:
                yield ChatTemplate(tokenizer).raw(rows, tools, generate)
            except TemplateError:
                yield ""
