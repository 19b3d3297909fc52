"""Token carry-through: the ids that were sampled are the ids that are trained on.

A conversation is tokenised once, at its prompt. What the model samples afterwards is kept id by id; what the
environment says is appended as the chat template's own suffix, tokenised alone. Re-tokenising a whole conversation
instead would replace sampled ids by others with the same text and make the policy ratio meaningless.

The template must render earlier messages the same whatever follows (*prefix-preserving*); ``check_prefix_preserving``
tells, and TRL's training templates (``trl/chat_template_utils.py``) replace the ones of known families that do not.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from envs.wire import Message
from training.errors import TemplateError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tools = list[dict[str, Any]]
CACHE = 256
REASONING_KEY = "reasoning_content"
"""The field of a message in which chat templates look for its reasoning (Qwen3, DeepSeek, GLM, Nemotron)."""

_PROBE_CALL = {"type": "function", "id": "call_0", "function": {"name": "probe", "arguments": {}}}
_PROBE: list[dict[str, Any]] = [
    {"role": "user", "content": "probe"},
    {"role": "assistant", "content": "", "tool_calls": [_PROBE_CALL]},
]
_HINT = "Choose a model whose chat template keeps earlier turns as they were, such as Qwen2.5, Qwen3 or Llama 3."


class Template(Protocol):
    """How a conversation becomes ids, and what was written becomes text; ``eos_id`` ends a turn."""

    eos_id: int

    def prompt_ids(self, messages: list[Message], tools: Tools | None) -> list[int]: ...

    def suffix_ids(self, messages: list[Message]) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...


class ChatTemplate:
    """A tokenizer's chat template as the rollout loop needs it: ids of a prompt and ids of an environment's answer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.eos_id = _eos_id(tokenizer)
        self._eos_text = str(tokenizer.convert_ids_to_tokens(self.eos_id))
        self._special = _special_texts(tokenizer)
        # A group's rollouts share their prompt, and often the environment's answers too.
        self._ids_of = lru_cache(maxsize=CACHE)(self._tokenise)
        self._text_of = lru_cache(maxsize=CACHE)(self._apply_template)

    def prompt_ids(self, messages: list[Message], tools: Tools | None) -> list[int]:
        """Ids of the prompt, ending where the model's first turn begins. Raises ``TemplateError``."""
        text = self._render(messages_to_template(messages, self._special), tools, generate=True)
        return self._encode(text)

    def text_of(self, messages: list[Message], *, generate: bool) -> str:
        """A conversation as the model would read it. Raises ``TemplateError``."""
        return self._render(messages_to_template(messages, self._special), None, generate=generate)

    def suffix_ids(self, messages: list[Message]) -> list[int]:
        """Ids that continue a conversation whose last sampled id is EOS, up to where the next model turn begins.

        Shape: flat list, to be appended with mask 0. Raises ``TemplateError`` if the template rewrites the past.
        """
        before = self._render(_PROBE, None, generate=False)
        after = self._render([*_PROBE, *messages_to_template(messages, self._special)], None, generate=True)
        cut = before.rfind(self._eos_text)
        if cut < 0:
            raise TemplateError("The chat template does not end a model turn with the end-of-turn token.", hint=_HINT)
        head = before[: cut + len(self._eos_text)]
        if not after.startswith(before):
            raise TemplateError("The chat template rewrites earlier turns when a message is added.", hint=_HINT)
        return self._encode(after[len(head) :])

    def decode(self, ids: list[int]) -> str:
        """Text of sampled ids without special tokens; ``<tool_call>`` must therefore be a normal token."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _render(self, messages: list[dict[str, Any]], tools: Tools | None, *, generate: bool) -> str:
        return self._text_of(json.dumps(messages), json.dumps(tools) if tools else None, generate)

    def _apply_template(self, messages: str, tools: str | None, generate: bool) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    json.loads(messages),
                    tools=json.loads(tools) if tools else None,
                    tokenize=False,
                    add_generation_prompt=generate,
                )
            )
        except Exception as exc:  # a template is a program that others wrote: it may raise anything
            raise TemplateError(f"The chat template failed: {type(exc).__name__}: {str(exc)[:200]}") from exc

    def _encode(self, text: str) -> list[int]:
        return list(self._ids_of(text))

    def _tokenise(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def messages_to_template(messages: list[Message], special: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Wire messages in the shape that chat templates expect.

    ``special`` are texts of control tokens; inside contents they are broken up by a space, so that a tool's answer
    or a dataset row cannot end a turn or open another role.
    """
    rows: list[dict[str, Any]] = []
    for message in messages:
        row: dict[str, Any] = {"role": message.role, "content": _defuse(message.content, special)}
        if message.reasoning:
            row[REASONING_KEY] = _defuse(message.reasoning, special)
        if message.tool_calls:
            row["tool_calls"] = [
                {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            row["tool_call_id"] = message.tool_call_id
        if message.name is not None:
            row["name"] = message.name
        rows.append(row)
    return rows


def check_prefix_preserving(tokenizer: PreTrainedTokenizerBase, tools: Tools | None = None) -> None:
    """Raise ``TemplateError`` unless tool answers and user turns can be appended without touching what came before.

    Checked by rendering, with and without ``tools``, a conversation that grows by a tool answer and a user turn.
    """
    if not tokenizer.chat_template:
        raise TemplateError("The model has no chat template.", hint=_HINT)
    template = ChatTemplate(tokenizer)
    tool = Message(role="tool", name="probe", tool_call_id="call_0", content="probe")
    user = Message(role="user", content="probe again")
    for messages in ([tool], [tool, tool], [user], [tool, user]):
        template.suffix_ids(messages)
    grown = [Message(role="user", content="probe"), Message(role="assistant", content="done"), user]
    short = template._render(messages_to_template(grown[:2]), tools, generate=False)
    if not template._render(messages_to_template(grown), tools, generate=True).startswith(short):
        raise TemplateError("The chat template rewrites earlier turns when a user turn is added.", hint=_HINT)


def use_training_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Swap in TRL's training template when the tokenizer's own cannot be trained with.

    Returns a sentence for the log when a swap happened, else ``None``. Raises ``TemplateError`` when the own template
    does not preserve prefixes and TRL has no replacement for this family.
    """
    try:
        check_prefix_preserving(tokenizer)
    except TemplateError:
        from trl.chat_template_utils import get_training_chat_template

        try:
            replacement = get_training_chat_template(tokenizer)
        except ValueError:
            replacement = None
        if replacement is None:
            raise
        tokenizer.chat_template = replacement
        check_prefix_preserving(tokenizer)
        return (
            "The model's chat template rewrites earlier turns, so TRL's training variant of it is used. "
            "Serve the trained model with the template saved beside it."
        )
    return None


def _eos_id(tokenizer: PreTrainedTokenizerBase) -> int:
    eos = tokenizer.eos_token_id
    if not isinstance(eos, int):
        raise TemplateError("The tokenizer has no end-of-turn token.", hint=_HINT)
    return eos


def _special_texts(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    return tuple(sorted((text for text in tokenizer.all_special_tokens if len(text) > 1), key=len, reverse=True))


def _defuse(text: str, special: tuple[str, ...]) -> str:
    for token in special:
        if token in text:
            text = text.replace(token, f"{token[0]} {token[1:]}")
    return text
