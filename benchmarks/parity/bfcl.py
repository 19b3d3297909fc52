"""BFCL: recorded episodes, the gold answers, and the official checker on trajectories that are nearly right."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from benchmarks.parity.upstream import Skipped, Tally, folder
from envs.bfcl.application import ANSWER, as_wire, gold_steps, play
from envs.bfcl.calls import Call
from envs.bfcl.package import MODULES, SOURCES, class_of, entries, installed_version
from envs.bfcl.server import BfclEnvironment
from envs.bfcl.tasks import Task, read_row, resolve
from envs.wire import StepRequest

GOLDENS = ("seed1_envtuning_bfcl", "golden_interaction_transcripts.jsonl")
VARIANTS = 9
SEED = 4
Plan = list[list[list[Call]]]
"""Calls by message by turn; a turn without messages is answered at once."""


def measure(data: Path) -> dict[str, Any]:
    """Every comparison that needs only the package bfcl-eval and the recorded episodes."""
    if installed_version() != "v3":
        raise Skipped("bfcl-eval 2025.6.8 (v3) is not installed")
    found: dict[str, Any] = {"gold answers of score 1.0": gold_answers().report()}
    found["official checker, perturbed trajectories"] = official_checker()
    try:
        found["recorded episodes"] = recorded_episodes(folder(data, *GOLDENS)).report()
    except Skipped as reason:
        found["recorded episodes"] = {"skipped": str(reason)}
    return found


def recorded_episodes(path: Path) -> Tally:
    """Message for message, code for code and reward for reward."""
    tally = Tally()
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        environment = BfclEnvironment()
        environment.reset({"id": row["id"], "speech": "text", "compat": True}, 0, "parity")
        seen = [environment.step(StepRequest(message=step["assistant"])) for step in row["steps"]]
        ours = [("".join(m.content for m in item.messages), item.info["code"], item.done) for item in seen]
        theirs = [(step["user"], step["score"], step["terminate"]) for step in row["steps"]]
        same = ours == theirs and seen[-1].reward == row["bfcl_reward"]["score"]
        tally.add(same, f"{row['id']}, {row['policy']}")
    return tally


def gold_answers() -> Tally:
    """The published solution of every entry."""
    tally = Tally()
    for name in entries():
        end = play({"id": name}, gold_steps(resolve(read_row({"id": name}), 0)))[-1]
        tally.add(end.reward == end.reward_parts["task_success"] == 1.0, name)
    return tally


def official_checker() -> dict[str, Any]:
    """Whether an entry is solved, by us and by BFCL's own checker, over trajectories derived from gold answers."""
    checker = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
    utils = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")
    rng, tally, solved = random.Random(SEED), Tally(), 0
    for number, name in enumerate(entries()):
        task = resolve(read_row({"id": name}), 0)
        for variant in range(VARIANTS):
            plan = perturbed(task, rng)
            ours = play({"id": name}, _steps(plan))[-1].reward_parts["task_success"] == 1.0
            before = set(vars(utils))
            with pristine():
                theirs = _official(checker.multi_turn_checker, name, plan, f"m{number}v{variant}")
            for made in set(vars(utils)) - before:
                delattr(utils, made)  # upstream never frees an instance
            solved += theirs
            tally.add(ours == theirs, {"id": name, "ours": ours, "official": theirs, "plan": str(plan)[:600]})
    return tally.report(solved_by_the_official_checker=solved)


def _official(check: Callable[..., dict[str, Any]], name: str, plan: Plan, model: str) -> bool:
    entry = copy.deepcopy(entries()[name])
    calls = [[[written(call) for call in message] for message in turn] for turn in plan]
    return bool(check(calls, entry["ground_truth"], entry, entry["split"], model)["valid"])


def _steps(plan: Plan) -> Iterator[StepRequest]:
    for turn in plan:
        yield from (StepRequest(tool_calls=as_wire(message)) for message in turn if message)
        yield ANSWER


def perturbed(task: Task, rng: random.Random) -> Plan:
    """The gold answer with up to two changes, its calls in one message a turn or in several."""
    turns = [list(turn.truth) for turn in task.turns]
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        _change(turns, rng)
    return [_messages(calls, rng) for calls in turns]


def _messages(calls: list[Call], rng: random.Random) -> list[list[Call]]:
    """At most five, so that no turn is forced to its end."""
    cuts = sorted(rng.sample(range(1, len(calls)), k=min(len(calls) - 1, rng.choice((0, 0, 2, 4))))) if calls else []
    edges = [0, *cuts, len(calls)]
    return [calls[start:end] for start, end in itertools.pairwise(edges) if calls[start:end]]


def _change(turns: list[list[Call]], rng: random.Random) -> None:
    full = [calls for calls in turns if calls]
    if full:
        calls = rng.choice(full)
        place = rng.randrange(len(calls))
        rng.choice((_drop, _repeat, _swap, _spoil, _borrow, _look, _clear))(turns, calls, place, rng)


def _drop(_turns: list[list[Call]], calls: list[Call], place: int, _rng: random.Random) -> None:
    del calls[place]


def _repeat(_turns: list[list[Call]], calls: list[Call], place: int, _rng: random.Random) -> None:
    calls.insert(place, calls[place])


def _swap(_turns: list[list[Call]], calls: list[Call], place: int, rng: random.Random) -> None:
    other = rng.randrange(len(calls))
    calls[place], calls[other] = calls[other], calls[place]


def _spoil(_turns: list[list[Call]], calls: list[Call], place: int, rng: random.Random) -> None:
    """Another value in one argument, of the same kind."""
    call = as_wire([calls[place]])[0]
    if call.arguments:
        name = rng.choice(sorted(call.arguments))
        calls[place] = Call(call.name, {**call.arguments, name: _other(call.arguments[name], rng)})


def _other(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + rng.choice((1, -1, 0.5))
    if isinstance(value, str):
        return rng.choice((value.upper(), value.lower(), f"{value}x", value[:-1], ""))
    return value[:-1] if isinstance(value, list) else None


def _borrow(turns: list[list[Call]], calls: list[Call], place: int, rng: random.Random) -> None:
    """A call of another turn."""
    other = rng.choice([number for number, known in enumerate(turns) if known])
    calls.insert(place, rng.choice(turns[other]))


def _look(_turns: list[list[Call]], calls: list[Call], place: int, rng: random.Random) -> None:
    """Calls that mostly change nothing, or do not exist for the entry."""
    name = rng.choice(("ls", "pwd", "displayCarStatus", "get_account_info", "list_users", "no_such_function"))
    calls.insert(place, Call(name, {"option": "doors"} if name == "displayCarStatus" else {}))


def _clear(_turns: list[list[Call]], calls: list[Call], _place: int, _rng: random.Random) -> None:
    calls.clear()


def written(call: Call) -> str:
    """A call as BFCL's answers spell it."""
    keywords = [f"{name}={value!r}" for name, value in call.keywords.items()]
    return f"{call.name}({', '.join([*map(repr, call.positional), *keywords])})"


@contextlib.contextmanager
def pristine(sources: str = SOURCES) -> Iterator[None]:
    """Copies of module constants and of defaults for a while: published code stores both in its states."""
    modules = [importlib.import_module(f"{sources}.{name}") for name in {*MODULES.values()}]
    constants = {(m, n): v for m in modules for n, v in vars(m).items() if _is_state(n, v)}
    functions = [f for kind in MODULES for f in vars(_class(sources, kind)).values() if inspect.isfunction(f)]
    defaults: dict[FunctionType, Any] = {f: f.__defaults__ for f in functions if f.__defaults__}
    for (module, name), value in constants.items():
        setattr(module, name, copy.deepcopy(value))
    for function, values in defaults.items():
        function.__defaults__ = copy.deepcopy(values)
    try:
        yield
    finally:
        for (module, name), value in constants.items():
            setattr(module, name, value)
        for function, values in defaults.items():
            function.__defaults__ = values


def _class(sources: str, kind: str) -> type[Any]:
    if sources == SOURCES:
        return class_of(kind)
    found: type[Any] = getattr(importlib.import_module(f"{sources}.{MODULES[kind]}"), kind)
    return found


def _is_state(name: str, value: Any) -> bool:
    return isinstance(value, dict | list | set) and not name.startswith("__")
