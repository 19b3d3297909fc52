"""The five components of multi-turn tool calling.

source: SEED 2 (huangweiding/demo, multiturn_with_toolcall); every constant of its formula is a parameter with the
seed's value as default. Differs, in all components:

- Words are compared without regard to case, and Chinese text by character n-grams (``training/rewards/text.py``);
  ``words: literal`` compares them as the seed does.
- Surrounding white space never counts as length.
- English error wordings stand beside the seed's Chinese ones.
- A turn whose call could not be parsed counts as a call of its own (``unparsed_score``); the seed overlooked it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from training.rewards.base import Episode, Params
from training.rewards.text import literal_mentions, literal_share, mentions, overlap_share
from training.rewards.turns import call_outcomes, question
from training.words import OptionError, _, sentence


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
    """Whether a non-empty word of the list stands in the text."""
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
