"""Settings that are allowed and yet known to go wrong, each with the option it belongs to.

They were paid for by others: a learning rate that collapses a model, a batch whose rewards cannot differ, a chat
template that writes what the environment forbids. ``hard`` ones cannot work at all; any other is said and may be
overridden. Each looks at the config and at the first rows of the data, and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from training.config import JobConfig
from training.errors import TiltyardError
from training.model_check import MAX_CONFIG_BYTES, check_model_folder, read_json
from training.words import Sentence, _, sentence

if TYPE_CHECKING:
    from training.data.schema import Row

LOOKED_AT_ROWS = 200
# Published: full GRPO fine-tuning of Qwen3-0.6B at 5e-5 took GSM8K from 57.0% to 2.4%; 1e-6 is stable.
COLLAPSING_RATE = 5e-5
# Models that are smaller were made here, from scratch, and need large steps.
PRETRAINED_FROM = 50_000_000
FROZEN_TEMPERATURE = 0.05
# What these say without an answer of the environment is the same for every rollout.
NEED_ANSWERS = frozenset({"result_use", "coherence", "toolbench_call_share"})
NEED_ENVIRONMENT = ("task_success", "bfcl_", "webshop_", "toolbench_")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
CATEGORY = re.compile(r"G[123]_(category|instruction|tool)")


class Trap(NamedTuple):
    """One finding."""

    option: str
    sentence: Sentence
    hint: str = ""
    hard: bool = False


def traps(config: JobConfig, *, load_template: bool = True) -> list[Trap]:
    """The known traps of this job. ``load_template`` False leaves out what needs the model's tokenizer."""
    if config.method.learns_from != "rollouts":
        return []
    rows = _rows(config)
    found = [*_window(config), *_rate(config), *_equal_rewards(config), *_unplayed(config), *_categories(rows)]
    found += _guarded(lambda: _versions(config, rows))
    if load_template:
        found += _guarded(lambda: _thoughts(config, rows))
    return found


def _guarded(look: Callable[[], Iterator[Trap]]) -> list[Trap]:
    """The findings of a check; none where a server or a tokenizer failed, which other checks say."""
    try:
        return list(look())
    except TiltyardError:
        return []


def _rows(config: JobConfig) -> list[Row]:
    from training.data.reader import load_rows

    try:
        return load_rows(Path(config.data.train), LOOKED_AT_ROWS) if config.data.train else []
    except TiltyardError:
        return []


def _folder(config: JobConfig) -> Path | None:
    folder = Path(config.model.source).expanduser()
    return folder if config.model.source != "starter" and folder.is_dir() else None


def model_window(config: JobConfig) -> int | None:
    """The longest text that the model was made for, in tokens; ``None`` where that is not known yet."""
    if config.model.source == "starter":
        from training.starter import MAX_POSITIONS

        return MAX_POSITIONS
    folder = _folder(config)
    try:
        raw = read_json(folder / "config.json", MAX_CONFIG_BYTES) if folder else None
    except TiltyardError:
        return None
    value = raw.get("max_position_embeddings") if isinstance(raw, dict) else None
    return value if isinstance(value, int) and value > 0 else None


def _window(config: JobConfig) -> Iterator[Trap]:
    window, prompt, episode = (
        model_window(config),
        config.rollout.max_prompt_tokens,
        config.rollout.max_completion_tokens,
    )
    if window is None or prompt + episode <= window:
        return
    hard = episode >= window
    text = _("Prompt (%(prompt)s) and episode (%(episode)s) can exceed the model's window of %(window)s tokens.")
    yield Trap(
        "rollout.max_completion_tokens",
        sentence(text, prompt=prompt, episode=episode, window=window),
        _("Lower one of the two limits."),
        hard,
    )


def _rate(config: JobConfig) -> Iterator[Trap]:
    if config.model.lora_rank or config.learning_rate < COLLAPSING_RATE or not _pretrained(config):
        return
    text = _("Full GRPO training of a pretrained model at a learning rate of %(rate)s is known to collapse it.")
    hint = _("1e-6 is stable; or set a LoRA rank.")
    yield Trap("optim.learning_rate", sentence(text, rate=f"{config.learning_rate:g}"), hint)


def _pretrained(config: JobConfig) -> bool:
    """Whether the model is a real one; one that a run is still to make is not known, so nothing is said."""
    folder = _folder(config)
    if folder is None:
        return HUB_ID.fullmatch(config.model.source) is not None
    try:
        return check_model_folder(folder).parameters >= PRETRAINED_FROM
    except TiltyardError:
        return False


def _equal_rewards(config: JobConfig) -> Iterator[Trap]:
    """Rewards that cannot differ within a group, so that every advantage is 0."""
    rollout, names = config.rollout, [item.registered for item in config.rewards.components if item.weight]
    hint = _("Equal rewards within a group give no learning signal.")
    if rollout.top_k == 1 or rollout.temperature < FROZEN_TEMPERATURE:
        option = "rollout.top_k" if rollout.top_k == 1 else "rollout.temperature"
        yield Trap(option, sentence(_("With these sampling settings all rollouts of a group are identical.")), hint)
    constant = [name for name in names if name in NEED_ANSWERS]
    if rollout.max_turns == 1 and constant:
        text = _("In episodes of one turn these components are the same for every rollout: %(names)s.")
        yield Trap("rollout.max_turns", sentence(text, names=", ".join(constant)), hint)


def _unplayed(config: JobConfig) -> Iterator[Trap]:
    if config.environment.url or config.environment.name:
        return
    names = [item.registered for item in config.rewards.components if item.registered.startswith(NEED_ENVIRONMENT)]
    if names:
        text = _("Without an environment these components have no value: %(names)s.")
        hint = _("Choose an environment, or other rewards.")
        yield Trap("environment.name", sentence(text, names=", ".join(names)), hint, True)


def _categories(rows: list[Row]) -> Iterator[Trap]:
    for row in rows:
        extra = row.extra.get("extra_info")
        named = (row.extra.get("category"), extra.get("category") if isinstance(extra, dict) else None)
        wrong = next((name for name in named if isinstance(name, str) and CATEGORY.fullmatch(name)), None)
        if wrong and not row.extra.get("api_list"):
            text = _("The rows' category “%(name)s” names a test set: no tool document or recorded response has it.")
            yield Trap("data.train", sentence(text, name=wrong), _("Use rows that carry their api_list."))
            return


def _versions(config: JobConfig, rows: list[Row]) -> Iterator[Trap]:
    """BFCL's rows of one version, played by the other's classes, go wrong without an error."""
    from training.rollout.protocols import check_environment

    versions = {str(row.extra["bfcl_version"]).lower() for row in rows if row.extra.get("bfcl_version")}
    if len(versions) > 1:
        text = _("The rows are of BFCL %(names)s, which do not mix.")
        yield Trap("data.train", sentence(text, names=", ".join(sorted(versions))), _("Keep one version."), True)
    if len(versions) != 1 or not config.environment.url:
        return
    for facts in check_environment(config.environment):
        played = "" if isinstance(facts, TiltyardError) else (facts.version or "").rpartition("bfcl.")[2].lower()
        if played in ("v3", "v4") and played not in versions:
            text = _("The rows are of BFCL %(rows)s and the environment plays %(server)s.")
            hint = _("A quarter of such tasks fails. Choose rows of the matching version.")
            yield Trap("data.train", sentence(text, rows=versions.pop(), server=played), hint, True)
            return


def _thoughts(config: JobConfig, rows: list[Row]) -> Iterator[Trap]:
    """An environment that wants exactly one thought, and a template that writes one of its own."""
    folder = _folder(config)
    if folder is None or not any(wants_a_thought(row) for row in rows):
        return
    check_model_folder(folder)  # the tokenizer's files are as hostile as the weights until checked
    from training.algorithms.loading import load_tokenizer

    if writes_thoughts(load_tokenizer(folder)[0]):
        text = _("The chat template writes <think> by itself; the environment expects exactly one in each reply.")
        hint = _("Every reply would count as malformed. Qwen2.5's template does not do this.")
        yield Trap("model.source", sentence(text), hint)


def wants_a_thought(row: Row) -> bool:
    """Whether the row's rules ask for one ``<think>`` pair."""
    return any(message.role == "system" and "<think></think>" in message.content for message in row.messages)


def writes_thoughts(tokenizer: object) -> bool:
    """Whether a rendered reply, or the beginning of one, holds another thought than the model's own."""
    from envs.wire import Message
    from training.rollout.tokens import ChatTemplate

    template = ChatTemplate(tokenizer)  # type: ignore[arg-type]
    asked = [Message(role="user", content="probe")]
    answer = Message(role="assistant", content="<think>one</think><answer>two</answer>")
    begun = template.text_of(asked, generate=True)
    whole = template.text_of([*asked, answer], generate=False)
    plain = template.text_of([*asked, Message(role="assistant", content="two")], generate=False)
    return "<think>" in begun or whole.count("<think>") != 1 or "<think>" in plain
