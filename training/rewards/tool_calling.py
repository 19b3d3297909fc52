"""The five components of multi-turn tool calling."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from training.rewards.base import Component, Episode, Example, Params, Span, played, says, tool
from training.rewards.text import (
    answer_at,
    literal_mentions,
    literal_share,
    mentions,
    overlap_share,
    piece,
    placed_turns,
    whole,
)
from training.rewards.turns import call_outcomes, outcomes_of, question
from training.words import OptionError, _, sentence

# The five components of multi-turn tool calling.
#
# source: SEED 2 (huangweiding/demo, multiturn_with_toolcall); every constant of its formula is a parameter with the
# seed's value as default. Differs, in all components:
#
# - Words are compared without regard to case, and Chinese text by character n-grams (``training/rewards/text.py``);
#   ``words: literal`` compares them as the seed does.
# - Surrounding white space never counts as length.
# - English error wordings are added to the seed's Chinese ones.
# - A turn whose call could not be parsed counts as a call of its own (``unparsed_score``); the seed overlooked it.


def _part(default: float, title: str, help: str) -> Any:
    """A value that a component gives or adds, from 0 to 1."""
    return Field(default, title=title, description=help, ge=0, le=1, allow_inf_nan=False)


def _count(default: int, title: str, help: str, *, low: int = 0, high: int = 100_000) -> Any:
    """A whole-number bound, in characters or words as the help text says."""
    return Field(default, title=title, description=help, ge=low, le=high)


def _words(default: list[str], title: str, help: str) -> Any:
    """A list of up to 200 words to look for; each is found anywhere in the text, whatever its case."""
    return Field(default_factory=lambda: list(default), title=title, description=help, max_length=200)


def holds(words: list[str], text: str) -> bool:
    """Whether a non-empty word of the list is in the text."""
    folded = text.casefold()
    return any(word and word.casefold() in folded for word in words)


class CorrectnessParams(Params):
    """Parameters of ``tool_call_correctness``."""

    no_calls_score: float = _part(0.5, _("No calls"), _("Value of an episode without any call."))
    argument_error_score: float = _part(0.3, _("Argument error"), _("Value of a call refused for its arguments."))
    unknown_tool_score: float = _part(0.1, _("Unknown tool"), _("Value of a well-formed call of a missing tool."))
    other_error_score: float = _part(
        0.0, _("Other error"), _("Value of a call that failed otherwise or was not answered.")
    )
    unparsed_score: float = _part(0.0, _("Unreadable call"), _("Value of a turn whose call could not be parsed."))
    argument_words: list[str] = _words(
        ["参数", "缺少", "argument", "parameter", "missing"],
        _("Argument error words"),
        _("An error text that contains one of these is an argument error."),
    )
    unknown_tool_words: list[str] = _words(
        ["未知工具", "unknown tool"],
        _("Unknown tool words"),
        _("An error text that contains one of these is an unknown tool; checked first."),
    )


def tool_call_correctness(episode: Episode, params: CorrectnessParams) -> float:
    """Mean value of the calls: 1 for one that worked, else by the kind of its error."""

    def value(error: str | None) -> float:
        if error is None:
            return 1.0
        if holds(params.unknown_tool_words, error):
            return params.unknown_tool_score
        return params.argument_error_score if holds(params.argument_words, error) else params.other_error_score

    outcomes = call_outcomes(episode)
    values = [params.other_error_score if item.result is None else value(item.error) for item in outcomes]
    values += [params.unparsed_score] * max(0, episode.parse_errors)
    return sum(values) / len(values) if values else params.no_calls_score


class NecessityParams(Params):
    """Parameters of ``tool_necessity``."""

    keywords: list[str] = _words(
        [
            "计算",
            "算",
            "天气",
            "查询",
            "搜索",
            "查找",
            "时间",
            "现在几点",
            "calculate",
            "weather",
            "search",
            "time",
            "what time",
        ],
        _("Keywords"),
        _("A question that contains one of these needs a tool."),
    )
    unused_score: float = _part(0.3, _("Needed, not used"), _("Value when a tool was needed and none was called."))
    unneeded_long_score: float = _part(
        0.7, _("Not needed, long answer"), _("Value of an unneeded call that led to a long answer.")
    )
    unneeded_short_score: float = _part(
        0.4, _("Not needed, short answer"), _("Value of an unneeded call with a short answer or none.")
    )
    long_answer_chars: int = _count(20, _("Long answer"), _("An answer with more characters than this is long."))


def tool_necessity(episode: Episode, params: NecessityParams) -> float:
    """1 when tools were called exactly when the question needed one, else a part."""
    needed, used = holds(params.keywords, question(episode)), bool(call_outcomes(episode))
    if needed == used:
        return 1.0
    if needed:
        return params.unused_score
    is_long = len(episode.final_answer.strip()) > params.long_answer_chars
    return params.unneeded_long_score if is_long else params.unneeded_short_score


class TextParams(Params):
    """How texts are compared, shared by the components that look for tool results in the answer."""

    words: Literal["ngrams", "literal"] = Field(
        "ngrams",
        title=_("Words"),
        description=_("What is compared."),
        json_schema_extra={
            "choices": {
                "ngrams": _("words, and pieces of Chinese text"),
                "literal": _("the original rule: text between spaces, so a Chinese sentence is one word"),
            }
        },
    )
    ngram: int = _count(2, _("CJK n-gram"), _("Length of one piece of Chinese text, in characters."), low=1, high=4)
    cjk_share: float = Field(
        0.3,
        title=_("CJK share"),
        description=_("Share of a Chinese result's first pieces that the answer must contain to have used it."),
        gt=0,
        le=1,
    )


class ResultUseParams(TextParams):
    """Parameters of ``result_use``."""

    no_results_score: float = _part(0.5, _("No results"), _("Value of an episode in which no tool answered."))
    long_answer_score: float = _part(0.7, _("Long answer"), _("Value of an unquoted result when the answer is long."))
    short_answer_score: float = _part(0.3, _("Short answer"), _("Value of an unquoted result otherwise."))
    quoted_error_score: float = _part(
        0.5, _("Quoted error"), _("Value of a failed call whose error the answer reports.")
    )
    long_answer_chars: int = _count(50, _("Long answer length"), _("An answer with more characters than this is long."))
    key_words: int = _count(3, _("Key words"), _("Words at the beginning of a result that count."), low=1, high=100)
    min_word_chars: int = _count(
        3, _("Shortest key word"), _("Minimum length of a key word, in characters."), low=1, high=100
    )


def result_use(episode: Episode, params: ResultUseParams) -> float:
    """Mean over tool results: 1 when the final answer takes one up, else a part by the answer's length."""
    answer = episode.final_answer.strip()
    values: list[float] = []
    for item in call_outcomes(episode):
        if item.result is None:
            continue
        if item.error is not None:
            quoted = bool(item.error) and item.error.casefold() in answer.casefold()
            values.append(params.quoted_error_score if quoted else 0.0)
        elif takes_up(answer, item.result, params):
            values.append(1.0)
        else:
            is_long = len(answer) > params.long_answer_chars
            # Without a result text there is nothing to take up; the seed gives nothing for it.
            values.append((params.long_answer_score if is_long else params.short_answer_score) if item.result else 0.0)
    return sum(values) / len(values) if values else params.no_results_score


def takes_up(answer: str, result: str, params: ResultUseParams | FinalAnswerParams) -> bool:
    """Whether the answer takes up the beginning of a result."""
    if params.words == "literal":
        return literal_mentions(result, answer, words=params.key_words, min_chars=params.min_word_chars)
    return mentions(
        result,
        answer,
        words=params.key_words,
        min_chars=params.min_word_chars,
        n=params.ngram,
        share=params.cjk_share,
    )


class FinalAnswerParams(TextParams):
    """Parameters of ``final_answer``."""

    empty_score: float = _part(0.1, _("Empty answer"), _("Value of an answer too short to be one."))
    base_score: float = _part(0.5, _("Base"), _("Base value of every real answer."))
    length_bonus: float = _part(0.2, _("Length bonus"), _("Added when the length is within the bounds."))
    short_penalty: float = _part(0.2, _("Short penalty"), _("Penalty when the answer is below the lower bound."))
    overlap_bonus: float = _part(
        0.3, _("Overlap bonus"), _("Added in full when the answer uses all words of the question.")
    )
    result_bonus: float = _part(0.1, _("Result bonus"), _("Added for each tool result that the answer uses."))
    empty_chars: int = _count(5, _("Empty below"), _("Answers with fewer characters are empty."))
    min_chars: int = _count(20, _("Length from"), _("Lower bound of a good length, in characters."))
    max_chars: int = _count(500, _("Length to"), _("Upper bound of a good length, in characters."))
    key_words: int = _count(5, _("Key words"), _("Words at the beginning of a result that count."), low=1, high=100)
    min_word_chars: int = _count(
        4, _("Shortest key word"), _("Minimum length of a key word, in characters."), low=1, high=100
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> FinalAnswerParams:
        if self.min_chars > self.max_chars:
            raise OptionError("min_chars", sentence(_("the lower bound of the length is above the upper one")))
        return self


def final_answer(episode: Episode, params: FinalAnswerParams) -> float:
    """Length, likeness to the question, and use of tool results, added up and kept in [0, 1]."""
    answer = episode.final_answer.strip()
    if len(answer) < max(1, params.empty_chars):
        return params.empty_score
    value = params.base_score
    if len(answer) < params.min_chars:
        value -= params.short_penalty
    elif len(answer) <= params.max_chars:
        value += params.length_bonus
    asked = question(episode)
    literal = params.words == "literal"
    share = literal_share(asked, answer) if literal else overlap_share(asked, answer, params.ngram)
    value += params.overlap_bonus * share
    for item in call_outcomes(episode):
        if item.result and item.error is None and takes_up(answer, item.result, params):
            value += params.result_bonus
    return min(1.0, max(0.0, value))


class CoherenceParams(Params):
    """Parameters of ``coherence``."""

    single_turn_score: float = _part(0.8, _("Single turn"), _("Value of an episode with fewer than two turns."))
    base_score: float = _part(0.5, _("Base"), _("Base value of every longer episode."))
    text_bonus: float = _part(0.3, _("Text bonus"), _("Added in full when every turn has text besides its calls."))
    follow_bonus: float = _part(0.1, _("Follow-up bonus"), _("Added for each turn with calls before a turn with text."))


def coherence(episode: Episode, params: CoherenceParams) -> float:
    """Whether turns say something and calls lead to an answer, kept in [0, 1]."""
    turns = episode.policy_messages
    if len(turns) < 2:
        return params.single_turn_score
    says = [bool(turn.content.strip()) for turn in turns]
    followed = sum(bool(turn.tool_calls) and after for turn, after in zip(turns, says[1:], strict=False))
    return min(1.0, params.base_score + params.text_bonus * sum(says) / len(says) + params.follow_bonus * followed)


# Where the five components of tool calling look: calls, results that were taken up, the final answer.


def calls(episode: Episode, params: Params) -> list[Span]:
    """Every turn with calls, by how each of them ended."""
    spans = []
    for place, turn in placed_turns(episode):
        for item in outcomes_of(turn):
            worked = item.result is not None and item.error is None
            spans.append(whole(place, _("a call that worked") if worked else _("a call that failed")))
    return spans


def necessity(episode: Episode, params: NecessityParams) -> list[Span]:
    """The question that needs a tool, and the calls."""
    asked = question(episode)
    places = [i for i, message in enumerate(episode.messages) if message.role == "user" and message.content == asked]
    needs = bool(places) and holds(params.keywords, asked)
    spans = [whole(places[-1], _("the question needs a tool"))] if needs else []
    return spans + [whole(place, _("a call")) for place, turn in placed_turns(episode) if turn.said.tool_calls]


def results(episode: Episode, params: ResultUseParams | FinalAnswerParams) -> list[Span]:
    """The results, by whether the final answer takes them up, and that answer."""
    answer, spans = episode.final_answer.strip(), []
    for place, turn in placed_turns(episode):
        for item in outcomes_of(turn):
            if item.result is None or item.error is not None:
                continue
            used = takes_up(answer, item.result, params)
            at = next(i for i in range(place + 1, len(episode.messages)) if episode.messages[i].content == item.result)
            spans.append(whole(at, _("used by the answer") if used else _("not used by the answer")))
    return spans + final(episode, params)


def final(episode: Episode, params: Params) -> list[Span]:
    """The final answer."""
    found = answer_at(episode)
    return piece(*found, _("the final answer")) if found else []


SOURCE = "multi-turn tool calling (huangweiding/demo), `reward_functions.py`"

_ASKED = "What is 25 * 37 + 128? Calculate it"
GOOD = played(_ASKED, says("Let me see.", "calculator"), tool("1053"), says("25 * 37 + 128 is 1053, as you asked."))
UNKNOWN = played(_ASKED, says("", "abacus"), tool("Error: unknown tool: abacus"), says("It is about 1000 I think."))
MISSING = played(_ASKED, says("", "calculator"), tool("错误: 缺少表达式参数"), says("It is about 1000 I think."))
GUESSED = played(_ASKED, says("1053"))
GREETED = played("Hello", says("Hello, how can I help you today?"))
CHINESE = played(
    "北京今天的天气怎么样？",
    says("", "weather"),
    tool("北京在今天的天气：温度15°C，天气晴朗"),
    says("北京今天天气晴朗，15度。"),
)

TOOL_CALLING = (
    Component(
        "tool_call_correctness",
        _("Tool call correctness"),
        _("Calls that the tools accepted."),
        tool_call_correctness,
        CorrectnessParams,
        0.30,
        spans=calls,
        source=SOURCE,
        formula="mean over calls: 1 worked; 0.3 wrong arguments; 0.1 unknown tool; else 0. 0.5 without a call",
        examples=(
            Example("one call that worked", GOOD, 1.0),
            Example("an unknown tool", UNKNOWN, 0.1),
            Example("a missing argument", MISSING, 0.3),
            Example("no call", GUESSED, 0.5),
        ),
    ),
    Component(
        "tool_necessity",
        _("Tool necessity"),
        _("Tools called when the question needs one, and only then."),
        tool_necessity,
        NecessityParams,
        0.20,
        spans=necessity,
        source=SOURCE,
        formula="1 needed and used, or neither; 0.3 needed and unused; 0.7 unneeded with a long answer, else 0.4",
        examples=(
            Example("needed and used", GOOD, 1.0),
            Example("needed and unused", GUESSED, 0.3),
            Example("neither", GREETED, 1.0),
        ),
    ),
    Component(
        "result_use",
        _("Use of results"),
        _("The final answer uses what the tools returned."),
        result_use,
        ResultUseParams,
        0.20,
        spans=results,
        source=f"{SOURCE}; differs: Chinese results are looked for by pieces of their text",
        formula="mean over results: 1 taken up; else 0.7 for a long answer, 0.3; failed: 0.5 reported; 0.5 for none",
        examples=(
            Example("the result is reported", GOOD, 1.0),
            Example("no result", GUESSED, 0.5),
            Example("Chinese, by pieces", CHINESE, 1.0),
            Example("Chinese, the seed's rule", CHINESE, 0.3, {"words": "literal"}),
        ),
    ),
    Component(
        "final_answer",
        _("Final answer"),
        _("Length of the answer and its similarity to the question."),
        final_answer,
        FinalAnswerParams,
        0.20,
        spans=results,
        source=f"{SOURCE}; differs: Chinese text is compared by pieces",
        formula="0.5, + 0.2 for 20 to 500 characters, − 0.2 below, + 0.3 · share of the question's words, "
        "+ 0.1 for each result taken up; 0.1 below 5 characters",
        examples=(
            Example("4 of 7 words recur, one result", GOOD, 0.5 + 0.2 + 0.3 * 4 / 7 + 0.1),
            Example("four characters", GUESSED, 0.1),
            Example("one word of one", GREETED, 1.0),
        ),
    ),
    Component(
        "coherence",
        _("Coherence"),
        _("Turns contain text, and calls lead to an answer."),
        coherence,
        CoherenceParams,
        0.10,
        source=SOURCE,
        formula="0.5 + 0.3 · share of turns with text + 0.1 for each call followed by text; 0.8 for one turn",
        examples=(
            Example("text, call, text", GOOD, 0.9),
            Example("a call without text, then text", UNKNOWN, 0.75),
            Example("one turn", GUESSED, 0.8),
        ),
    ),
)
