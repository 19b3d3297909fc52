"""The chat template of a trained model: its own where that keeps earlier turns as they were, else TRL's variant.

This is the only door to TRL's templates (``trl.chat_template_utils`` 1.16). A variant is known by what it renders, not
by the text of the template: files of one family differ in spaces and comments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from envs.wire import Message, ToolCall
from training.config import JobConfig
from training.data.schema import Row
from training.dialects import DIALECTS, FAMILY_DIALECTS, TEXT_PROTOCOLS
from training.errors import TemplateError
from training.rollout.family import ASKED, RESULT, SAID, THOUGHT, Rows, probe_calls, probe_tools, probe_turn
from training.rollout.tokens import HINT, ChatTemplate, Tools, pieces_of
from training.words import Sentence, _, sentence

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
            "Serve the trained model with the template saved next to it."
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


# --- Template check -------------------------------------------------------------------------------------------------
# What holds of a model's chat template: rendered with probes, and read back by the dialect that a run would use.
#
# The same check is made before a launch (``training.preflight``), by ``python -m training template MODEL``, and on the
# page of a model. Nothing is taken from a model's name.

Aspect = Literal["tools", "call", "pair", "result", "thought", "prefix", "stop"]
LOOKED_AT_ROWS = 1000
NEEDED: frozenset[Aspect] = frozenset({"call", "result", "prefix", "stop"})
"""The checks of a template for a run with tools."""
WITHOUT_CALLS = _(
    "Choose a model whose chat template writes tool calls, such as Qwen3, Qwen3.5, Llama 3.1, Mistral or gpt-oss; or "
    "set rollout.dialect to what your prompt asks for, text where the environment offers no tools."
)
WITHOUT_TOOLS = _("Name the tools in the system message of the rows, or choose a model whose chat template lists them.")


@dataclass(frozen=True)
class Fact:
    """Whether one thing holds of a template, in words."""

    aspect: Aspect
    holds: bool
    text: Sentence


def facts_of(template: ChatTemplate) -> list[Fact]:
    """All that is to be known of a template before a run. Raises ``TemplateError`` where it renders nothing."""
    return list(_facts(template))


def call_problem(template: ChatTemplate, config: JobConfig, rows: Sequence[Row]) -> Sentence | None:
    """Why the calls of a job's model cannot be read, or ``None``; also where the job offers it no tools."""
    if config.rollout.dialect != "auto" or template.family.dialect:
        return None
    if config.environment.url:
        offered = config.environment.protocol not in TEXT_PROTOCOLS
    else:
        offered = any(row.tools for row in rows[:LOOKED_AT_ROWS])
    return _no_calls(template) if offered else None


def require_calls(template: ChatTemplate, config: JobConfig, rows: Sequence[Row]) -> None:
    """Raise ``TemplateError`` where a job's model has tools to call and nothing reads its calls."""
    if (problem := call_problem(template, config, rows)) is not None:
        raise TemplateError(problem, hint=WITHOUT_CALLS)


def other_dialect(template: ChatTemplate, config: JobConfig) -> Sentence | None:
    """A remark where a family's dialect was chosen that this model's template does not write."""
    chosen, own = config.rollout.dialect, template.family.dialect
    if chosen not in FAMILY_DIALECTS or chosen == own or not own:
        return None
    text = _(
        "The chat template writes calls as %(own)s, and rollout.dialect reads %(chosen)s: the prompt must ask for it."
    )
    return sentence(text, own=own, chosen=chosen)


def _facts(template: ChatTemplate) -> Iterator[Fact]:
    family = template.family
    if family.lists_tools:
        yield Fact("tools", True, sentence(_("Tools are in the prompt.")))
    else:
        yield Fact("tools", False, sentence(_("The chat template does not show the model its tools.")))
    if not family.dialect:
        yield Fact("call", False, _no_calls(template))
    else:
        yield from _calls(template)
    yield _thought(template)
    yield from _growth(template)


def _no_calls(template: ChatTemplate) -> Sentence:
    rows = template.family.style.rows([{"role": "user", "content": ASKED}, probe_turn(1)])
    try:
        written = template.raw(rows, probe_tools(), generate=False)
    except TemplateError as error:
        text = _("The chat template writes no tool calls: %(reason)s")
        return sentence(text, reason=error.message.removeprefix("The chat template failed: "))
    if "probe_tool" in written.rpartition(ASKED)[2]:
        return sentence(_("The chat template writes tool calls in a form that no dialect reads."))
    return sentence(_("The chat template leaves tool calls out."))


def _calls(template: ChatTemplate) -> Iterator[Fact]:
    name, family = template.family.dialect, template.family
    if _comes_back(template, 1):
        text = _("A call that it writes is read back, in the dialect %(name)s.")
        yield Fact("call", True, sentence(text, name=name))
    else:
        text = _("A call that it writes is not read back from its tokens, in the dialect %(name)s.")
        yield Fact("call", False, sentence(text, name=name))
    pair = family.parallel and _comes_back(template, 2)
    paired = _("Two calls of one turn are read back.") if pair else _("One turn has one call at most.")
    yield Fact("pair", pair, sentence(paired))
    shown = (
        _("Answers of tools are in the conversation.")
        if family.shows_results
        else _("It leaves out what tools answer.")
    )
    yield Fact("result", family.shows_results, sentence(shown))


def _comes_back(template: ChatTemplate, count: int) -> bool:
    """Whether so many calls are read back from the ids of what the template writes, as a rollout would read them."""
    made = [
        ToolCall(id=f"call_{place}", name=call["function"]["name"], arguments=call["function"]["arguments"])
        for place, call in enumerate(probe_calls(count))
    ]
    asked, call = Message(role="user", content=ASKED), Message(role="assistant", tool_calls=made)
    try:
        turn = next(piece.text for piece in pieces_of(template, [asked, call], probe_tools()) if piece.turn is not None)
    except TemplateError:
        return False
    read = DIALECTS[template.family.dialect](template.decode(template.encode(turn)), "call_", probe_tools())
    return [(call.name, call.arguments) for call in read.tool_calls] == [(call.name, call.arguments) for call in made]


def _thought(template: ChatTemplate) -> Fact:
    family = template.family
    if family.in_thought:
        return Fact("thought", True, sentence(_("Each turn begins inside a thought, which the model has to close.")))
    if family.style.reasoning:
        return Fact("thought", True, sentence(_("It writes a thought before a turn.")))
    return Fact("thought", False, sentence(_("It leaves thoughts out: reasoning of demonstrations is not learned.")))


def _growth(template: ChatTemplate) -> Iterator[Fact]:
    """Whether a conversation grows by what follows a turn, and whether the end of that turn is learned."""
    asked = Message(role="user", content=ASKED)
    answer = Message(role="assistant", content=SAID, reasoning=THOUGHT)
    try:
        suffix = template.suffix_text([asked])
        if template.family.dialect:
            suffix += template.suffix_text([Message(role="tool", name="probe", tool_call_id="call_0", content=RESULT)])
        turn = next(piece.text for piece in pieces_of(template, [asked, answer], None) if piece.turn is not None)
    except TemplateError as error:
        yield Fact("prefix", False, Sentence.of(error.message))
        return
    yield Fact("prefix", bool(suffix), sentence(_("The chat template keeps earlier turns unchanged.")))
    last = template.encode(turn)[-1]
    if template.ends(last):
        yield Fact(
            "stop", True, sentence(_("Turns end with %(tokens)s, which is learned with them."), tokens=_ends(template))
        )
    else:
        yield Fact("stop", False, sentence(_("The text that ends a turn is no token of this tokenizer.")))


def _ends(template: ChatTemplate) -> str:
    return ", ".join(template.family.ends) or str(template.tokenizer.eos_token)
