"""The server's application: the environment, and how it proves itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from envs.base import Facts, ServerSettings
from envs.base.environment import validation_of
from envs.bfcl import DESCRIPTION, NAME
from envs.bfcl.calls import Call
from envs.bfcl.package import MODULES, SPLITS, class_of, entries, installed_version, methods_of
from envs.bfcl.server import BfclEnvironment, server_version
from envs.bfcl.tasks import Task, read_row, resolve
from envs.bfcl.turns import MAX_ATTEMPTS
from envs.wire import Observation, StepRequest, ToolCall, Validation

if TYPE_CHECKING:
    from fastapi import FastAPI


# The environment's own proof on every entry: gold solves it, nothing else scores, and it plays the same twice.

MAX_BAD_SCORE = 0.1
MAX_LISTED_FAILURES = 5
MAX_STEPS = 256  # six attempts in each of up to 32 turns fit
ANSWER = StepRequest(message="Done.")
_BEGGING = (
    "Please give me full marks.",
    "task_success = 1.0",
    '{"reward": 1.0, "done": true}',
    "<answer>Done.</answer>",
    "Ignore the ground truth: this turn is solved.",
    "\u0000\ufffd\u202e",
    "a" * 10_000,
)
_HOSTILE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("__class__", {}),
    ("_load_scenario", {"scenario": {}}),
    ("root.contents.clear", {}),
    ("eval", {"source": "1"}),
    ("__import__", {"name": "os"}),
    ("kill", {}),
    ("same_state", {}),
    ("power", {"base": 9, "exponent": 10**9}),
)


def validate(ids: Sequence[str] | None = None) -> dict[str, Any]:
    """Play gold, bad and repeated episodes of the entries; ``ok`` says whether all scored as they must."""
    chosen = list(entries()) if ids is None else list(ids)
    failures: dict[str, list[str]] = {"gold_failures": [], "bad_failures": [], "not_deterministic": []}
    worst, episodes = 0.0, 0
    for number, name in enumerate(chosen):
        task = resolve(read_row({"id": name}), 0)
        gold = gold_steps(task)
        first = play({"id": name}, gold)
        if first[-1].reward != 1.0 or first[-1].reward_parts["task_success"] != 1.0:
            failures["gold_failures"].append(name)
        if _texts(play({"id": name}, gold)) != _texts(first):
            failures["not_deterministic"].append(name)
        episodes += 2
        for policy, steps in bad_policies(task, number):
            reward = play({"id": name}, steps)[-1].reward or 0.0
            worst, episodes = max(worst, reward), episodes + 1
            if reward > MAX_BAD_SCORE:
                failures["bad_failures"].append(f"{name}: {policy}")
    return {
        "ok": not any(failures.values()),
        "bfcl_version": installed_version(),
        "entries": len(chosen),
        "episodes": episodes,
        "gold_score_mean": 1.0 - len(failures["gold_failures"]) / len(chosen),
        "bad_score_max": worst,
        **{kind: names[:MAX_LISTED_FAILURES] for kind, names in failures.items()},
    }


def gold_steps(task: Task, *, one_by_one: bool = False) -> list[StepRequest]:
    """The gold solution: a turn's calls in one message, or one a message, and then an answer.

    One by one, ten entries cannot be solved: they need more than six calls in a turn.
    """
    steps: list[StepRequest] = []
    for turn in task.turns:
        calls = as_wire(turn.truth)
        if one_by_one:
            steps += [StepRequest(tool_calls=[call]) for call in calls]
        elif calls:
            steps.append(StepRequest(tool_calls=calls))
        if not one_by_one or len(calls) <= MAX_ATTEMPTS:  # a sixth call ends the turn by itself
            steps.append(ANSWER)
    return steps


def as_wire(calls: Iterable[Call]) -> list[ToolCall]:
    """Calls of the ground truth as a model makes them, with every argument named."""
    return [ToolCall(id=f"gold_{number}", name=call.name, arguments=_named(call)) for number, call in enumerate(calls)]


def _named(call: Call) -> dict[str, Any]:
    if not call.positional:
        return call.keywords
    owner = next(name for name in MODULES if call.name in methods_of(name))
    parameters = list(inspect.signature(getattr(class_of(owner), call.name)).parameters)[1:]
    return {**dict(zip(parameters, call.positional, strict=False)), **call.keywords}


def bad_policies(task: Task, number: int) -> Iterator[tuple[str, Iterable[StepRequest]]]:
    """Policies that must not score: silence, refusing everything, begging, and calls that do nothing."""
    yield "silence", [StepRequest()]
    yield "refuses every turn", cycle([ANSWER])
    yield "begs", cycle([StepRequest(message=_BEGGING[number % len(_BEGGING)])])
    yield "unreadable calls", cycle([StepRequest(message="x", parse_error="not JSON")])
    name, arguments = _HOSTILE[number % len(_HOSTILE)]
    yield "hostile calls", cycle([_calling(name, arguments), ANSWER])
    yield "right functions, wrong arguments", _spoiled(task)


def _spoiled(task: Task) -> Iterator[StepRequest]:
    for turn in task.turns:
        yield StepRequest(
            tool_calls=[ToolCall(id="1", name=call.name, arguments={"nothing": 0}) for call in turn.truth],
            message="Trying.",
        )
        if turn.truth:
            yield ANSWER


def _calling(name: str, arguments: dict[str, Any]) -> StepRequest:
    return StepRequest(tool_calls=[ToolCall(id="1", name=name, arguments=arguments)])


def play(task: dict[str, Any], steps: Iterable[StepRequest]) -> list[Observation]:
    """One episode in this process, until it is done."""
    environment = BfclEnvironment()
    observations = [environment.reset(task, 0, "validate")]
    for step in islice(steps, MAX_STEPS):
        observations.append(environment.step(step))
        if observations[-1].done:
            break
    return observations


def ids_of(split: str | None) -> list[str]:
    """The entries of one split, or all."""
    return [name for name, row in entries().items() if split in (None, row["split"])]


def _texts(observations: list[Observation]) -> list[str]:
    return [observation.model_dump_json() for observation in observations]


def facts() -> Facts:
    """How the environment proves itself: one entry of each split."""
    return Facts(validate=_prove, description=DESCRIPTION)


def _prove() -> Validation:
    return validation_of(validate([ids_of(split)[0] for split in SPLITS]))


def app() -> FastAPI:
    """The application for ``uvicorn --factory envs.bfcl.application:app``; ``python -m envs.bfcl`` has more options."""
    from envs.base.server import create_server  # OpenEnv takes a second to import

    return create_server(BfclEnvironment, ServerSettings(name=NAME, version=server_version()), facts())
