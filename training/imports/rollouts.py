"""Recorded rollouts of verl and TRL, and what readers of rollouts share.

verl's ``{step}.jsonl`` has ``input``, ``output``, ``score``, ``step`` and all that the reward function returned. TRL's
``completions_*.parquet`` has ``step``, ``prompt``, ``completion``, a column for each reward function, what the run
logged besides, and ``advantage``; ms-swift's ``completions.jsonl`` the same as columns, a row a step; verifiers'
``results.jsonl`` a reward and its parts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from envs.wire import Message, ToolCall
from training.data.files import parquet
from training.data.files.sniff import open_regular
from training.data.native import ROLE, ROLES, Markup, markup_of, pieces
from training.data.problems import CheckLimits
from training.dialects import json_calls
from training.dialects.base import json_decoder
from training.errors import DataError
from training.imports.base import BadRow, Item, Notes, Reader, Sampled, known, number_of, shown, step_of
from training.imports.rows import Row, check, read_json_lines, read_parquet
from training.plain import REASONING
from training.words import _, counted, ngettext, sentence

# Which rollouts of a step belong together: those with the same id, or else with the same prompt.
#
# A prompt that a step draws twice gives twice as many rollouts as the others have. Its rollouts are split then, in the
# order of their rows, into groups as large as those of the others; where that does not come out even, the report says
# so.

GROUP_KEYS = ("uid", "group_id", "prompt_id", "example_id", "_ng_task_index", "task_idx", "group_index")
"""Columns that say which rollouts belong together."""
_NAMED = "#"
"""Before the key of rollouts whose row says which belong together."""
_SPLIT = ngettext(
    "One prompt occurs several times in a step: its rollouts were split into groups of {size}, as the others have.",
    "{n} prompts occur several times in a step: their rollouts were split into groups of {size}, as the others have.",
)
_ODD = ngettext(
    "In step {step} one prompt has {rows} rollouts, where others have {size}: they are one group, whose advantages may "
    "not be those of the run.",
    "{n} prompts have more rollouts than others, which have {size}: in step {step} one has {rows}. Each is one group, "
    "whose advantages may not be those of the run.",
)


def group_key(row: dict[str, Any], prompt: str) -> str:
    """The part that the rollouts of a group have in common."""
    named = next((str(row[name]) for name in GROUP_KEYS if row.get(name) not in (None, "")), None)
    found = hashlib.blake2b((named or prompt).encode(), digest_size=12).hexdigest()
    return _NAMED + found if named is not None else found


class Sizes:
    """How large the groups of an import are that only their prompt holds together: in each step as most of its prompts
    have it, the smaller of two that are as frequent; where a step has one prompt, as in all steps."""

    def __init__(self, groups: Counter[tuple[int, str]]) -> None:
        by_prompt = {place: count for place, count in groups.items() if not place[1].startswith(_NAMED)}
        in_step: dict[int, list[int]] = {}
        for (step, _key), count in by_prompt.items():
            in_step.setdefault(step, []).append(count)
        usual = _usual(by_prompt.values())
        self.of = {step: _usual(sizes) if len(sizes) > 1 else usual for step, sizes in in_step.items()}
        larger = {place: count for place, count in by_prompt.items() if count > self.of[place[0]] > 1}
        self.split = {place for place, count in larger.items() if count % self.of[place[0]] == 0}
        self.odd = {place: count for place, count in larger.items() if place not in self.split}
        self.seen: Counter[tuple[int, str]] = Counter()

    def say(self, notes: Notes) -> None:
        """Say what was done about prompts that a step has drawn several times."""
        if self.split:
            notes.say(counted(_SPLIT, len(self.split), size=self.of[min(self.split)[0]]))
        if self.odd:
            (step, _key), rows = max(self.odd.items(), key=lambda item: item[1])
            notes.say(counted(_ODD, len(self.odd), rows=rows, step=step, size=self.of[step]))


def _usual(sizes: Iterable[int]) -> int:
    found = Counter(sizes)
    most = max(found.values(), default=0)
    return min((size for size, count in found.items() if count == most), default=0)


def placed(value: Sampled, notes: Notes) -> Sampled:
    """A rollout in its group."""
    if notes.shared.sizes is None:
        notes.shared.sizes = Sizes(notes.shared.groups)
    sizes: Sizes = notes.shared.sizes
    place = (value.step, value.key)
    if place in sizes.odd or place in sizes.split:
        sizes.say(notes)
    if place not in sizes.split:
        return value
    number = sizes.seen[place] // sizes.of[value.step]
    sizes.seen[place] += 1
    return value._replace(key=f"{value.key}/{number}") if number else value


# One text as the chat that it was made from.
#
# Trainers record what the tokenizer decoded: a whole conversation as a text. Where it has the marks of a chat template
# (ChatML, Llama 3) it is split there. Where special tokens were left out of the text, as verl does, a line that is
# nothing but a role begins a turn; a model that writes such a line itself then looks like the template.

PLAIN = Markup(_("plain roles"), re.compile(rf"\n{ROLE}(?=\n)"), lead="\n", tail=1, repeats=False)


def split_texts(prompt: str, completion: str) -> tuple[list[Message], int, str]:
    """Messages of a prompt and what followed it, how many of them are the prompt, and which marks showed it.

    Without marks: one user message and one assistant message.
    """
    markup = _markup(prompt)
    if markup is None:
        return [Message(role="user", content=prompt), _assistant_message(completion, 0)], 1, ""
    begun = pieces(markup, prompt, "")
    if begun and begun[-1][0] == "assistant" and not begun[-1][1].strip():
        begun.pop()  # the mark that asks the model to speak
    followed = pieces(markup, completion, "assistant")
    messages = [Message(role=role, content=text) for role, text in begun]  # type: ignore[arg-type]
    number = len(messages)
    for index, (role, text) in enumerate(followed):
        if role == "assistant":
            messages.append(_assistant_message(text, index))
        elif text or index:
            messages.append(Message(role=role, content=text))  # type: ignore[arg-type]
    return messages, number, markup.name


def _markup(prompt: str) -> Markup | None:
    """The marks that the prompt has. Plain roles count only where it begins with one and asks for an answer."""
    if (markup := markup_of(prompt)) is not None:
        return markup
    begins_so = PLAIN.begins.match(PLAIN.lead + prompt) is not None
    return PLAIN if begins_so and prompt.endswith("\nassistant\n") else None


def _assistant_message(text: str, turn: int) -> Message:
    """The model's message, with the calls in it; a call that cannot be read, or too many of them, stay text."""
    parsed = (
        json_calls.parse_hermes(text, f"call_{turn}_")
        if 0 < text.count(json_calls.OPEN) <= json_calls.MAX_CALLS
        else None
    )
    if parsed is None or parsed.parse_error or not parsed.tool_calls:
        return Message(role="assistant", content=text)
    return parsed.message()


def messages_of(value: Any, role: str) -> list[Message]:
    """Messages of a column that holds a text or a list of chat messages. Raises ``BadRow``."""
    if isinstance(value, str):
        return [_assistant_message(value, 0) if role == "assistant" else Message(role=role, content=value)]  # type: ignore[arg-type]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadRow(_("it holds neither a text nor a list of messages"))
    return [_message(item, number) for number, item in enumerate(value, 1)]


def _message(item: dict[str, Any], number: int) -> Message:
    role = ROLES.get(str(item.get("role") or item.get("from") or "")[:20])
    if role is None:
        raise BadRow(sentence(_("message {number} has no role that is known"), number=number))
    text = shown_text(item.get("content") if item.get("content") is not None else item.get("value"))
    calls = [call_of(call, f"call_{number}_{index}") for index, call in enumerate(item.get("tool_calls") or [])]
    reasoning = (
        next((shown_text(item[key]) for key in REASONING if item.get(key)), None) if role == "assistant" else None
    )
    if role == "assistant" and not calls:
        message = _assistant_message(text, number)
        return message.model_copy(update={"reasoning": reasoning or message.reasoning})
    name = item.get("name")
    return Message(
        role=role,  # type: ignore[arg-type]
        content=text,
        reasoning=reasoning,
        tool_calls=calls or None,
        name=name if isinstance(name, str) and role == "tool" else None,
    )


def shown_text(content: Any) -> str:
    """A message's text, which may be in parts there; what is no text is named in its place."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        parts = [part if isinstance(part, dict) else {"text": str(part)} for part in content]
        return "\n".join(str(part.get("text") or f"[{part.get('type', 'part')}]") for part in parts)
    return str(content)


def call_of(call: Any, call_id: str) -> ToolCall:
    """A call; the whole of it, or its arguments, may be JSON in a text."""
    if isinstance(call, str):
        try:
            call = json_decoder.decode(call)
        except (ValueError, RecursionError):
            raise BadRow(_("a tool call is not valid JSON")) from None
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRow(_("a tool call has no name"))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json_decoder.decode(arguments)
            check(arguments)
        except (ValueError, RecursionError):
            arguments = {"arguments": function["arguments"]}
    if not isinstance(arguments, dict):
        arguments = {}
    # Parquet gives every call of a column the arguments of all of them, those of others as null.
    return ToolCall(id=call_id, name=function["name"], arguments={k: v for k, v in arguments.items() if v is not None})


MAX_PARTS = 64
MAX_EXPECTED_CHARS = 4_000
EXPECTED = ("gts", "ground_truth", "expected_answer", "answer", "expected_output", "solution")
"""Columns of the answer that was wanted, the most specific first."""
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_TIMES = ("generation_ms", "scoring_ms", "total_ms", "is_completed", "is_truncated")
_NO_PARTS = {"prompt", "completion", "reward", "advantage", "advantages", *_TIMES}
"""Columns of completions that are no parts of a reward; verifiers writes times and states next to its own."""
_NUMBERS = ("_id", "_index", "_idx")
"""Ends of the names of columns that number something."""
STEP_KEYS = ("step", "global_step", "gen_step")
Place = tuple[int, str]
FIRST = 1
"""The step of rollouts that name none."""
_STEP_IN_NAME = re.compile(r"(\d{1,9})(?=\D*$)")
_STEP_AT_END = re.compile(r"(?:^|step|[-_])(\d{1,9})$")
Take = Callable[[dict[str, Any], Notes], Iterable[Sampled]]


def first_row(path: Path) -> dict[str, Any]:
    """The first row of JSON Lines that can be read; empty where there is none."""
    with open_regular(path) as file:
        if b"{" not in file.read(4096):
            return {}
    for number, row in enumerate(read_json_lines(path)):
        if row.value is not None:
            return row.value
        if number == 20:
            break
    return {}


def _is_parquet(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(4) == b"PAR1"


def _recognise_dump(path: Path) -> str:
    names = first_row(path)
    return "Its rows have input, output and score." if {"input", "output"} <= names.keys() else ""


def _recognise_completions(path: Path) -> str:
    is_parquet = _is_parquet(path)
    names = parquet.columns(path) if is_parquet else list(first_row(path))
    if {"prompt", "completion"} <= set(names):
        return "Its columns include prompt and completion."
    if is_parquet:
        raise DataError(
            sentence(
                _("The parquet file has no columns prompt and completion; it has {columns}."),
                columns=shown(", ".join(names)),
            ),
            hint=_("Give TRL's completions_*.parquet."),
        )
    return ""


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of parquet or JSON Lines."""
    return read_parquet(path, CheckLimits.max_rows) if _is_parquet(path) else read_json_lines(path)


def reading(take: Take) -> Callable[[Path, Notes], Iterator[Item]]:
    """What reads files of which each row gives the rollouts that ``take`` finds in it."""

    def read(path: Path, notes: Notes) -> Iterator[Item]:
        for row in rows_of(path):
            try:
                if row.value is None:
                    raise BadRow(row.reason)
                for value in take(row.value, notes):
                    yield Item(row.line, row.offset, placed(value, notes))
            except BadRow as exc:
                yield Item(row.line, row.offset, reason=exc.sentence)

    return read


def looking(place: Callable[[dict[str, Any], Notes], Iterable[Place]]) -> Callable[[Path, Notes], None]:
    """The first look of such a reader: how many rollouts each prompt has in each step. ``place`` gives step and key of
    each rollout of a row."""

    def look(path: Path, notes: Notes) -> None:
        for row in rows_of(path):
            try:
                notes.shared.groups.update(place(row.value or {}, Notes(notes.name)))
            except BadRow:
                continue

    return look


def _dump_places(row: dict[str, Any], notes: Notes) -> Iterator[Place]:
    yield row_step(row, notes), group_key(row, str(row.get("input")))


def _dumped(row: dict[str, Any], notes: Notes) -> Iterator[Sampled]:
    """A row of verl's. ``score`` is its reward, every other number a part that the reward function returned."""
    prompt, output = row.get("input"), row.get("output")
    if not isinstance(prompt, str) or not isinstance(output, str):
        raise BadRow(_("`input` or `output` is not text"))
    messages, length, marks = split_texts(prompt, output)
    split, whole = _("Texts were split into turns at the markers of {marks}."), _("Texts contain no turn markers.")
    notes.say(sentence(split, marks=sentence(marks)) if marks else sentence(whole))
    taken = {"input", "output", "score", "step", *GROUP_KEYS} | ({"reward"} if "score" not in row else set())
    ((step, key),) = _dump_places(row, notes)
    yield Sampled(
        step=step,
        key=key,
        messages=messages,
        prompt=length,
        reward=known(number_of(row.get("score", row.get("reward")))),
        parts=parts_of(row, taken | expected_in(row), notes),
        expected=expected_of(row),
    )


def _completions(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The completions of a row: one of TRL's, or as many of ms-swift's as its columns are long."""
    prompt, completion = row.get("prompt"), row.get("completion")
    if not isinstance(prompt, list) or not isinstance(completion, list) or not completion:
        return [row]
    size = len(completion)
    if len(prompt) != size or not all(isinstance(text, str) for text in completion):
        return [row]
    listed = {name for name, value in row.items() if isinstance(value, list) and len(value) == size}
    return [{name: value[at] if name in listed else value for name, value in row.items()} for at in range(size)]


def _completion_places(row: dict[str, Any], notes: Notes) -> Iterator[Place]:
    for each in _completions(row):
        prompt = json.dumps(each.get("prompt"), ensure_ascii=False, sort_keys=True, default=str)
        yield row_step(each, notes), group_key(each, prompt)


def _completed(row: dict[str, Any], notes: Notes) -> Iterator[Sampled]:
    """A row of TRL's, ms-swift's or verifiers'."""
    found = _completions(row)
    if found != [row]:
        notes.tool = "ms-swift"
    for each, (step, key) in zip(found, _completion_places(row, notes), strict=True):
        yield _completion(each, step, key, notes)


def _completion(row: dict[str, Any], step: int, key: str, notes: Notes) -> Sampled:
    """One completion. Where no reward is recorded, the parts are summed with the run's weights, or with 1."""
    prompt, completion = row.get("prompt"), row.get("completion")
    if isinstance(prompt, str) and isinstance(completion, str):
        messages, length, _marks = split_texts(prompt, completion)
    else:
        begun = messages_of(prompt, "user")
        messages, length = [*begun, *messages_of(completion, "assistant")], len(begun)
    parts = parts_of(row, {*_NO_PARTS, *STEP_KEYS, *GROUP_KEYS} | expected_in(row), notes)
    if "example_id" in row and "reward" in row:
        notes.tool = "verifiers"
    return Sampled(
        step=step,
        key=key,
        messages=messages,
        prompt=length,
        reward=known(number_of(row.get("reward"))) if "reward" in row else _summed(parts, notes),
        parts=parts,
        advantage=known(number_of(row.get("advantage", row.get("advantages")))),
        summed="reward" not in row,
        expected=expected_of(row),
    )


def _summed(parts: dict[str, float | None], notes: Notes) -> float | None:
    """The sum of the parts by weight. TRL writes its rewards in the order of the weights, before other numbers."""
    weights = notes.weights
    if not weights:
        notes.say(sentence(_("The reward of a rollout is the sum of its parts, each with weight 1 (TRL's default).")))
        weights = [1.0] * len(parts)
    elif len(weights) > len(parts):
        raise BadRow(
            sentence(_("it has {count} parts, and there are {weights} weights"), count=len(parts), weights=len(weights))
        )
    else:
        pairs = ", ".join(f"{weight:g} × {name}" for name, weight in zip(parts, weights, strict=False))
        notes.say(sentence(_("The reward of a rollout is the sum of its parts by `reward_weights`: {sum}."), sum=pairs))
    values = [value * weight for value, weight in zip(parts.values(), weights, strict=False) if value is not None]
    return sum(values) if values else None


def row_step(row: dict[str, Any], notes: Notes, *, default: int | None = None) -> int:
    """The row's step, or the number in the file's name, or ``default``. Raises ``BadRow``."""
    named = next((row[name] for name in STEP_KEYS if row.get(name) is not None), None)
    if named is not None:
        return step_of(named)
    if {"completion", "reward"} <= row.keys():  # an evaluation's
        default = FIRST
    name = notes.name.rsplit("/", 1)[-1]
    found = _STEP_IN_NAME.search(name) if default is None else _STEP_AT_END.search(name.partition(".")[0])
    if found is not None:
        return step_of(found[1])
    if default is None:
        raise BadRow(_("it has no step number, and neither has the file's name"))
    notes.say(sentence(_("Its rollouts name no step: they are those of step {step}."), step=default))
    return default


def expected_in(row: dict[str, Any]) -> set[str]:
    """The column of the answer that was wanted, and those of its names that are empty."""
    return {_expected(row)} | {name for name in EXPECTED if row.get(name) in _EMPTY}


def _expected(row: dict[str, Any]) -> str:
    return next((name for name in EXPECTED if row.get(name) not in _EMPTY), "")


def expected_of(row: dict[str, Any]) -> str:
    """The answer that was wanted, as text; empty where none is given."""
    found = row.get(_expected(row), "")
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return text[:MAX_EXPECTED_CHARS]


def parts_of(row: dict[str, Any], taken: set[str], notes: Notes) -> dict[str, float | None]:
    """Numbers by name; a column of anything else is named as left out."""
    parts: dict[str, float | None] = {}
    for name, value in row.items():
        if name in taken:
            continue
        if name.lower().endswith(_NUMBERS) and isinstance(value, int):
            notes.left_out.setdefault(name[:120], _("it is a number for counting, not a figure"))
        elif value is None or isinstance(value, bool | int | float):
            if len(parts) < MAX_PARTS:
                parts[name[:120]] = known(number_of(value))
        else:
            notes.left_out.setdefault(name[:120], _("it holds texts or lists, which a rollout cannot store"))
    return {name: value for name, value in parts.items() if name[:120] not in notes.left_out}


DUMP_READER = Reader(
    "verl_rollouts",
    _("recorded rollouts"),
    "verl",
    "`{step}.jsonl` of `trainer.rollout_data_dir`: `input` and `output` become turns, `score` the reward, `gts` the "
    "expected answer, every other number a part of it. Rollouts of a step with the same input (or `uid`) are a group.",
    _recognise_dump,
    reading(_dumped),
    looking(_dump_places),
)
COMPLETIONS_READER = Reader(
    "trl_completions",
    _("completions"),
    "TRL",
    "`completions_*.parquet` (or its rows as JSON Lines): prompts and completions are texts or message lists, every "
    "number a reward function's, their sum the reward, `advantage` as it is. ms-swift's `completions.jsonl`, a row "
    "a step, and verifiers' `results.jsonl` are read too.",
    _recognise_completions,
    reading(_completed),
    looking(_completion_places),
)
