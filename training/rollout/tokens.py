"""Token carry-through: the ids that were sampled are the ids that are trained on.

A conversation is tokenised once, at its prompt. What the model samples afterwards is kept id by id; what the
environment says is appended as the chat template's own suffix, tokenised alone. Re-tokenising a whole conversation
instead would replace sampled ids by others with the same text and make the policy ratio meaningless.

The template must render earlier messages the same whatever follows (*prefix-preserving*); ``templates.py`` checks that
and finds another one where it does not.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from envs.wire import Message
from training.dialects import CALL_MARKS
from training.dialects.base import MARKS, open_thought, opens_thought
from training.errors import ModelError, TemplateError
from training.plain import READ_BY_TEMPLATES
from training.rollout.family import Family, family_of, prompt_end, render_with_tools, turn_end
from training.rollout.session import OutOfTime, deadline
from training.words import _, sentence

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tools = list[dict[str, Any]]
CACHE = 256
PROBES_S = 20.0
"""Seconds for all probes of a chat template. Of a hundred published ones the slowest takes 0.13 of processor time."""
REASONING_KEY = READ_BY_TEMPLATES[0]
"""The field of a message's reasoning until a template's own style renames it."""
ROLES = {"<|start|>", "<|end|>", "<|eom|>"}
"""Marks of thoughts and calls that open or end a message, too."""
KEPT = CALL_MARKS | set(MARKS) | set(MARKS.values()) | ROLES
"""Control tokens that a turn's text keeps, because dialects read them."""

_ANCHOR = "probe_end"
HINT = "Choose a model whose chat template keeps earlier turns as they were, such as Qwen2.5, Qwen3 or Llama 3.1."


class Template(Protocol):
    """How a conversation becomes ids, and what was written becomes text; ``eos_id`` ends a turn."""

    eos_id: int

    def prompt_ids(self, messages: list[Message], tools: Tools | None) -> list[int]: ...

    def suffix_ids(self, messages: list[Message]) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...

    def ends(self, token: int) -> bool: ...


class ChatTemplate:
    """A tokenizer's chat template as the rollout loop needs it: ids of a prompt and ids of an environment's answer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.eos_id = _eos_id(tokenizer)
        self.control = control_texts(tokenizer)
        self._special = _special_texts(tokenizer)
        # A group's rollouts share their prompt, and often the environment's answers too.
        self._ids_of = lru_cache(maxsize=CACHE)(self._tokenise)
        self._text_of = lru_cache(maxsize=CACHE)(self._apply_template)

    @cached_property
    def family(self) -> Family:
        """How the template writes calls, thoughts and results, found by rendering probes.

        Raises ``TemplateError``, and ``ModelError`` where that takes longer than ``PROBES_S``: a template is a program,
        which may loop.
        """
        try:
            with deadline(PROBES_S):
                return family_of(self._rendered, self.control)
        except OutOfTime:
            text = _("The chat template takes more than %(seconds)s seconds to render a few short messages.")
            raise ModelError(sentence(text, seconds=f"{PROBES_S:g}"), hint=HINT) from None

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Ids of the tokens that end a turn: the tokenizer's own, and those that the template ends turns with."""
        found = (self.tokenizer.convert_tokens_to_ids(text) for text in self.family.ends)
        return frozenset({self.eos_id, *(token for token in found if isinstance(token, int))})

    def ends(self, token: int) -> bool:
        """Whether a turn that stops at this token came to its end."""
        return token in self.stop_ids

    def prompt_ids(self, messages: list[Message], tools: Tools | None) -> list[int]:
        """Ids of the prompt, ending where the model's first turn begins. Raises ``TemplateError``."""
        return self.encode(self._render(self._rows(messages), tools, generate=True))

    def text_of(self, messages: list[Message], tools: Tools | None = None, *, generate: bool = False) -> str:
        """A conversation as the model would read it, up to where its next turn begins with ``generate``.

        Raises ``TemplateError``.
        """
        return self._render(self._rows(messages), tools, generate=generate)

    def suffix_ids(self, messages: list[Message]) -> list[int]:
        """Ids that continue a conversation whose last sampled id ends a turn, up to where the next model turn begins.

        Shape: flat list, to be appended with mask 0. Raises ``TemplateError`` if the template rewrites the past.
        """
        return self.encode(self.suffix_text(messages))

    def suffix_text(self, messages: list[Message], tools: Tools | None = None) -> str:
        """The same as text, in a conversation with ``tools``. Raises ``TemplateError``."""
        probe = [{"role": "user", "content": "probe"}, self._probe_turn(messages)]
        before = self.raw(self._styled(probe), tools, generate=False)
        after = self.raw(self._styled([*probe, *self._messages(messages)]), tools, generate=True)
        anchor = before.rfind(_ANCHOR)
        end = turn_end(after, anchor + len(_ANCHOR), self.control) if anchor >= 0 else None
        if end is None:
            raise TemplateError("The chat template does not end a model turn with a control token.", hint=HINT)
        if after[: end[0]] != before[: end[0]]:
            raise TemplateError("The chat template rewrites earlier turns when a message is added.", hint=HINT)
        return after[end[1] :]

    def decode(self, ids: list[int]) -> str:
        """Text of sampled ids, without the token that ended the turn and control tokens that no dialect reads."""
        shown = ids[:-1] if ids and self.ends(ids[-1]) else ids
        kept = [token for token in shown if token not in self._dropped]
        return str(self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    @cached_property
    def _dropped(self) -> frozenset[int]:
        special = zip(self.tokenizer.all_special_ids, self.tokenizer.all_special_tokens, strict=True)
        return frozenset(token for token, text in special if text not in KEPT)

    def _probe_turn(self, messages: list[Message]) -> dict[str, Any]:
        """The model's turn before ``messages``: with the calls that its first ones answer, if they answer any."""
        answers = []
        for message in messages:
            if message.role != "tool":
                break
            answers.append(message)
        if not answers or not self.family.dialect:
            return {"role": "assistant", "content": _ANCHOR}
        calls = [
            {
                "type": "function",
                "id": message.tool_call_id or f"call_{place}",
                "function": {"name": message.name or "probe", "arguments": {"probe": _ANCHOR}},
            }
            for place, message in enumerate(answers if self.family.parallel else answers[:1])
        ]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    def _rows(self, messages: list[Message]) -> list[dict[str, Any]]:
        return self._styled(self._messages(messages))

    def _messages(self, messages: list[Message]) -> list[dict[str, Any]]:
        return messages_to_template(messages, self._special)

    def _styled(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return self.family.style.rows(rows)

    def _render(self, messages: list[dict[str, Any]], tools: Tools | None, *, generate: bool) -> str:
        return self._text_of(json.dumps(messages), json.dumps(tools) if tools else None, generate)

    def raw(self, messages: list[dict[str, Any]], tools: Tools | None, generate: bool) -> str:
        """What the template makes of messages that are in its own style already. Raises ``TemplateError``.

        A template that is for conversations with tools alone gets two probes, where it is asked without any.
        """
        return render_with_tools(self._rendered, messages, tools, generate)

    def _rendered(self, messages: list[dict[str, Any]], tools: Tools | None, generate: bool) -> str:
        return self._render(messages, tools, generate=generate)

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

    def defused(self, text: str) -> str:
        """A text that others wrote, with the texts of control tokens in it broken up."""
        return _defuse(text, self._special)

    def encode(self, text: str) -> list[int]:
        """Ids of a piece of a conversation, tokenised alone."""
        return list(self._ids_of(text))

    def _tokenise(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def messages_to_template(messages: list[Message], special: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Wire messages in the shape that chat templates expect.

    ``special`` are texts of control tokens; inside contents and arguments they are broken up by a space, so that a
    tool's answer or a dataset row cannot end a turn or open another role.
    """
    rows: list[dict[str, Any]] = []
    for message in messages:
        row: dict[str, Any] = {"role": message.role, "content": _defuse(message.content, special)}
        if message.reasoning:
            row[REASONING_KEY] = _defuse(message.reasoning, special)
        if message.tool_calls:
            row["tool_calls"] = [
                {
                    "type": "function",
                    "id": call.id,
                    "function": {"name": call.name, "arguments": _defused(call.arguments, special)},
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            row["tool_call_id"] = message.tool_call_id
        if message.name is not None:
            row["name"] = message.name
        rows.append(row)
    return rows


def turn_ends(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids at which a model's turn ends; without a chat template the tokenizer's own end alone."""
    return ChatTemplate(tokenizer).stop_ids if tokenizer.chat_template else frozenset({_eos_id(tokenizer)})


def _eos_id(tokenizer: PreTrainedTokenizerBase) -> int:
    eos = tokenizer.eos_token_id
    if not isinstance(eos, int):
        raise TemplateError("The tokenizer has no end-of-turn token.", hint=HINT)
    return eos


def control_texts(tokenizer: PreTrainedTokenizerBase) -> frozenset[str]:
    """Texts of all control tokens: special ones, and others that were added to the vocabulary."""
    return frozenset(text for text in (*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()) if len(text) > 1)


def _special_texts(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Texts of the tokens that open a role or end a turn.

    Those that a tokenizer names are few: Llama's and Gemma's are special without a name, DeepSeek's are plain tokens
    that its template writes. Marks of calls and thoughts are no part of it: a row may hold them as text.
    """
    added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    written = {text for text in tokenizer.get_added_vocab() if text in str(tokenizer.chat_template or "")}
    found = {*tokenizer.all_special_tokens, *((added | written) - (KEPT - ROLES))}
    return tuple(sorted(text for text in found if len(text) > 1))


def _defuse(text: str, special: tuple[str, ...]) -> str:
    return _any_of(special).sub(lambda found: f"{found[0][0]} {found[0][1:]}", text) if special else text


@lru_cache
def _any_of(special: tuple[str, ...]) -> re.Pattern[str]:
    """One look at a text for all of them: some tokenizers have a thousand. Of any two that match, the first sign is
    parted from the rest, and so is that of the other."""
    return re.compile("|".join(map(re.escape, special)))


def _defused(value: Any, special: tuple[str, ...]) -> Any:
    """The same in every text of a JSON value."""
    if isinstance(value, str):
        return _defuse(value, special)
    if isinstance(value, dict):
        return {_defuse(key, special): _defused(item, special) for key, item in value.items()}
    return [_defused(item, special) for item in value] if isinstance(value, list) else value


# A conversation cut into what the model reads and what it writes, by the chat template alone.
#
# It is built as a rollout is: a turn begins where its prompt ends and ends with the token that ends turns, and what
# others say in between is appended to it. So a demonstration teaches what will be sampled, under any template, with or
# without marks of its own. Each piece is tokenised alone, as in a rollout.


@dataclass(frozen=True)
class Piece:
    """A text of a conversation; ``turn`` is the place of the assistant's message that it is, ``None`` for what is
    read."""

    text: str
    turn: int | None = None


def pieces_of(template: ChatTemplate, messages: list[Message], tools: Tools | None) -> list[Piece]:
    """All pieces in order, up to the end of the last turn.

    A first turn that answers nothing is read with what follows it, where the template cannot begin with it. Raises
    ``TemplateError`` where a turn does not follow its prompt, or has no token that ends it.
    """
    pieces: list[Piece] = []
    after, stem = 0, ""  # where the messages behind the last turn begin, and all text up to its end
    for place, message in enumerate(messages):
        prompt = _prompt(template, messages[:place], tools) if message.role == "assistant" else None
        if prompt is None:
            continue
        alone = template.text_of(messages[: place + 1], tools)
        between = messages[after:place] if stem else None
        context, begin = _context(template, between, tools, stem, prompt, alone)
        stem, turn = _turn(template, message, alone, begin)
        thought = template.defused(message.reasoning or "").strip()
        pieces += [Piece(context), Piece(_behind(context, alone[:begin], turn, thought), place)]
        after = place + 1
    return pieces


def _context(
    template: ChatTemplate, between: list[Message] | None, tools: Tools | None, stem: str, prompt: str, alone: str
) -> tuple[str, int]:
    """What is read between two turns, or before the first one (``between`` is ``None``), and where the next turn begins
    in ``alone``, the conversation that ends with it."""
    begin = prompt_end(prompt, alone)
    if begin is not None and between is None:
        return prompt, begin
    end = turn_end(prompt, len(stem), template.control) if begin is not None and prompt.startswith(stem) else None
    if begin is not None and end is not None and end[0] == len(stem):
        return prompt[end[1] :], begin
    # The template writes the past in another way now: a rollout would continue with what it has.
    suffix = template.suffix_text(between, tools) if between is not None else ""
    at = alone.rfind(suffix) if suffix else -1
    if at < 0:
        raise TemplateError("The chat template rewrites earlier turns when a message is added.")
    return suffix, at + len(suffix)


def _behind(context: str, rendered: str, turn: str, thought: str) -> str:
    """A turn as it continues a prompt whose thought the template writes in another way once it is said.

    DeepSeek's templates leave a thought out and Nemotron's write an empty one without a line break, so that what comes
    before the turn (``rendered``) ends in front of it. What is sampled continues inside the thought, and closes it.
    """
    opened = open_thought(context)
    if not opened or opens_thought(rendered):
        return turn
    return turn.removeprefix(opened) if turn.startswith(opened) else f"{thought}\n{MARKS[opened]}\n\n{turn}"


def _prompt(template: ChatTemplate, messages: list[Message], tools: Tools | None) -> str | None:
    """The prompt of the turn behind ``messages``; ``None`` where nothing can be rendered before a first one."""
    try:
        return template.text_of(messages, tools, generate=True)
    except TemplateError:
        if messages:
            raise
        return None


def _turn(template: ChatTemplate, message: Message, alone: str, begin: int) -> tuple[str, str]:
    """All of a conversation before the end of its last turn, and that turn with the token that ends it."""
    ends = template.family.ends
    found = [(at, mark) for mark in ends if (at := alone.find(mark, begin)) >= 0]
    if found:
        at, mark = min(found)
        return alone[:at], alone[begin:at] + mark
    if not ends:
        raise TemplateError("The chat template does not end a model turn with a control token.")
    # The end comes with the next message, and is another one behind a call.
    return alone, alone[begin:] + ends[-1 if message.tool_calls else 0]
