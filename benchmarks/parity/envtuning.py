"""EnvTuning's own parser and interaction against ours in ``compat`` mode, over random messages and episodes."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from benchmarks.parity.bfcl import pristine, written
from benchmarks.parity.upstream import Tally, folder, importable, quiet
from envs.bfcl.application import as_wire
from envs.bfcl.execution import Errors
from envs.bfcl.package import MODULES, SOURCES, entries
from envs.bfcl.server import BfclEnvironment
from envs.bfcl.speech import parse_text
from envs.bfcl.tasks import Task, read_row, resolve
from envs.wire import StepRequest

OWN_SOURCES = "bfcl_env.func_source_code"
MAX_STEPS = 200
SEED = 5
_PIECES = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<answer>", "</answer>"),
    *("<think>plan</think>", "<think>", "</think>", "<answer>Done.</answer>", "<tool_call>", "</tool_call>"),
    *('{"name": "ls", "arguments": {}}', '[{"name": "cd", "arguments": {"folder": "a"}}]', '{"name": "x"', "[]", "{}"),
    *('{"name": " f ", "arguments": null}', '[1, {"name": 5}, {"name": "g", "arguments": {"a": [1, {"b": null}]}}]'),
    *("null", '"text"', "NaN", " ", "\n", "\t", "\u3000", "\u00a0", "hi", "é", "<", ">", "</", "< think>", "<THINK>"),
    *("<think/>", "\x00", "\ud800", '{"name": "h", "arguments": {"t": "</tool_call>"}}', "1e999", "-0"),
)


def measure(upstream: Path | None, messages: int, passes: int) -> dict[str, Any]:
    """``messages`` for the parser; ``passes`` random episodes of each entry for the interaction."""
    root = folder(upstream, "AWorld-RL", "EnvTuning")
    verl: dict[str, Any] = {"BaseInteraction": _Base}
    with importable(root, verl={}, verl__interactions={}, verl__interactions__base=verl):
        parser = importlib.import_module("env_tuning.interaction.utils")
        interaction = importlib.import_module("env_tuning.interaction.new_multi_turn_fc")
        rewards = [importlib.import_module(f"env_tuning.{name}") for name in ("bfcl_reward", "format_reward")]
        with quiet():
            return {
                "parser, random messages": random_messages(parser, messages).report(),
                "interaction, random episodes": random_episodes(interaction, rewards, passes, "standard").report(),
                "interaction, its own classes: codes and rewards": random_episodes(
                    interaction, rewards, passes, "augmented"
                ).report(),
            }


class _Base:
    """In place of verl's base class, of which the interaction uses nothing."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config


def random_messages(parser: ModuleType, count: int) -> Tally:
    """The kind of a message: its calls as text, an answer, or the sentence that the model reads."""
    rng, tally = random.Random(SEED), Tally()
    for _ in range(count):
        text = _message(rng)
        ours, theirs = _ours(text), _theirs(parser, text)
        tally.add(ours == theirs, {"text": ascii(text)[:300], "ours": ours, "upstream": theirs})
    return tally


def _message(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return "".join(rng.choices(_PIECES, k=rng.randint(0, 9)))
    body = "".join(rng.choices(_PIECES, k=rng.randint(0, 3)))
    tag = rng.choice(("tool_call", "answer"))
    gap = rng.choice(("", "", "\n", " ", " hi "))
    return f"{gap}<think>{rng.choice(_PIECES)}</think>{gap}<{tag}>{body}</{tag}>{rng.choice(('', '', gap))}"


def _ours(text: str) -> tuple[str, str]:
    action = parse_text(text)
    if action.kind == "call":
        return "call", f"[{', '.join(map(written, action.calls))}]"
    return action.kind, action.error or ""


def _theirs(parser: ModuleType, text: str) -> tuple[str, str]:
    content, found = parser.parse_model_response(text)
    if found == "tool_call":
        return "call", parser.parse_tool_calls(content)
    return ("answer", "") if found == "answer" else ("error", found)


def random_episodes(interaction: ModuleType, rewards: list[ModuleType], passes: int, errors: Errors) -> Tally:
    """Every message, code and reward of episodes that are partly right."""
    rng, tally = random.Random(SEED), Tally()
    # One long-lived interaction with all its states: upstream finds the ground truth of a turn by the state's address.
    server = interaction.MultiTurnFunctionCallInteraction({})
    with own_or_bfcl_classes(errors) as sources:
        for name in entries():
            task = resolve(read_row({"id": name}), 0)
            for number in range(passes):
                texts = list(_said(task, random.Random(rng.random())))
                with pristine(sources):
                    theirs = asyncio.run(_upstream(server, task, f"{name}_{number}", texts))
                ours, parts = _own(name, texts, errors)
                if errors == "augmented":  # the hints are our own texts, so they differ
                    ours, theirs = _without_hints(ours), _without_hints(theirs)
                tally.add(*_compared(name, ours, parts, theirs, rewards))
    return tally


@contextlib.contextmanager
def own_or_bfcl_classes(errors: Errors) -> Iterator[str]:
    """EnvTuning ships only classes with more helpful error texts; ``standard`` puts BFCL's own in their place."""
    utils = importlib.import_module("bfcl_env.multi_turn_utils")
    before = dict(utils.CLASS_FILE_PATH_MAPPING)
    sources = OWN_SOURCES if errors == "augmented" else SOURCES
    utils.CLASS_FILE_PATH_MAPPING.update({kind: f"{sources}.{file}" for kind, file in MODULES.items()})
    made = set(vars(utils))
    try:
        yield sources
    finally:
        utils.CLASS_FILE_PATH_MAPPING.update(before)
        for name in set(vars(utils)) - made:
            delattr(utils, name)


Step = tuple[str, int, bool]
"""What was answered, the code, and whether the episode is over."""


async def _upstream(server: Any, task: Task, instance: str, texts: list[str]) -> list[Step]:
    entry = copy.deepcopy(entries()[task.id])
    kwargs = {
        "id": task.id,
        "initial_config": json.dumps(entry["initial_config"]),
        "involved_classes": entry["involved_classes"],
        "ground_truth": entry["ground_truth"],
        "processed_question": [turn.text for turn in task.turns[1:]],
        "question": entry["question"],
    }
    await server.start_interaction(instance, **kwargs)
    steps: list[Step] = []
    for text in texts:
        over, content, score, _ = await server.generate_response(
            instance, [{"role": "assistant", "content": text}], id=task.id
        )
        steps.append((content, int(score), over))
        if over:
            break
    return steps


def _own(name: str, texts: list[str], errors: Errors) -> tuple[list[Step], dict[str, float]]:
    environment = BfclEnvironment()
    environment.reset({"id": name, "speech": "text", "compat": True, "errors": errors}, 0, "parity")
    steps: list[Step] = []
    parts: dict[str, float] = {}
    for text in texts:
        seen = environment.step(StepRequest(message=text))
        steps.append(("".join(message.content for message in seen.messages), seen.info["code"], seen.done))
        if seen.done:
            parts = {**seen.reward_parts, "reward": seen.reward or 0.0}
            break
    return steps, parts


def _without_hints(steps: list[Step]) -> list[Step]:
    return [("", code, over) for _, code, over in steps]


def _compared(
    name: str, steps: list[Step], parts: dict[str, float], theirs: list[Step], rewards: list[ModuleType]
) -> tuple[bool, Any]:
    first = next((pair for pair in zip(steps, theirs, strict=False) if pair[0] != pair[1]), None)
    if steps != theirs:
        return False, {"id": name, "first difference": [str(part)[-400:] for part in first or ("length",)]}
    codes = [code for _, code, _ in theirs]
    progress, stage_one = (module.compute_score({"user_turn_rewards": codes}, []) for module in rewards)
    own_stage_one = parts["is_tool_call"] * (parts["format_reward"] + parts["tool_call_reward"])
    same = (parts["reward"], own_stage_one) == (progress["score"], stage_one["score"])
    shared = ("format_reward", "tool_call_reward", "is_tool_call")
    return same and all(parts[key] == progress[key] for key in shared), {"id": name, "codes": codes, "parts": parts}


def _said(task: Task, rng: random.Random) -> Iterator[str]:
    """A policy that mostly follows the gold answer; more messages than any episode can use."""
    skill = rng.choice((0.0, 0.6, 0.9, 1.0))
    for turn in task.turns:
        calls, size = list(turn.truth), rng.choice((1, 2, 64))
        while calls and rng.random() < 0.97:
            if rng.random() > skill:
                yield rng.choice(_SLIPS)(task, rng)
                continue
            yield _call_text(calls[:size])
            del calls[:size]
        yield "<think>done</think>\n<answer>Done.</answer>"
    yield from ["<answer>no thought</answer>", "<think>a</think><answer>b</answer>"] * MAX_STEPS


def _call_text(calls: Any) -> str:
    body = [{"name": call.name, "arguments": call.arguments} for call in as_wire(calls)]
    return f"<think>plan</think>\n<tool_call>\n{json.dumps(body[0] if len(body) == 1 else body)}\n</tool_call>"


def _slip(
    kind: Literal["wrong", "unknown", "empty", "broken", "tags", "answer"],
) -> Callable[[Task, random.Random], str]:
    def text(task: Task, rng: random.Random) -> str:
        call = rng.choice([call for turn in task.turns for call in turn.truth])
        if kind == "wrong":
            spoiled = {key: f"{value}_x" for key, value in as_wire([call])[0].arguments.items()}
            return f"<think>p</think><tool_call>{json.dumps({'name': call.name, 'arguments': spoiled})}</tool_call>"
        if kind == "tags":
            return "".join(rng.choices(_PIECES, k=4))
        return {
            "unknown": '<think>p</think><tool_call>{"name": "no_such", "arguments": {}}</tool_call>',
            "empty": "<think>p</think><tool_call>[]</tool_call>",
            "broken": '<think>p</think><tool_call>{"name": </tool_call>',
            "answer": "<think>p</think><answer>I am done.</answer>",
        }[kind]

    return text


_SLIPS = tuple(_slip(kind) for kind in ("wrong", "wrong", "unknown", "empty", "broken", "tags", "answer"))
