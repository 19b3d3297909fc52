from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest

from envs.bfcl.application import ANSWER
from envs.bfcl.calls import Call, CallError, parse_call
from envs.bfcl.execution import MAX_FILES, Toolbox, contains, failed, files_in, same_state
from envs.bfcl.package import MODULES, class_of, entries
from envs.bfcl.server import BfclEnvironment
from envs.wire import StepRequest, ToolCall
from tests.growth import assert_quick

ALL = tuple(MODULES)
FILES = {"root": {"home": {"type": "directory", "contents": {"a": {"type": "directory", "contents": {}}}}}}


def toolbox(**more: Any) -> Toolbox:
    options: dict[str, Any] = {"long_context": False, **more}
    return Toolbox({"GorillaFileSystem": json.dumps(FILES)}, ALL, **options)


def result(name: str, box: Toolbox | None = None, **arguments: Any) -> str:
    return (box or toolbox()).run([Call(name, arguments)])[0]


HOSTILE: dict[str, tuple[str, dict[str, Any], str]] = {
    **{
        name: (name, {}, f"Function call {name} is not allowed.")
        for name in ("kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run")
    },
    **{
        name: (name, {}, f"name '{name}' is not defined")
        for name in (
            "__class__",
            "__init__",
            "_load_scenario",
            "_navigate_to_directory",
            "root.contents.clear",
            "eval",
            "__import__('os').system",
            "ls;pwd",
            "ls()",
            "",
            "ＬＳ",
        )
    },
    "missing argument": ("cd", {}, "GorillaFileSystem.cd() missing 1 required positional argument: 'folder'"),
    "unknown argument": ("ls", {"x": 1}, "GorillaFileSystem.ls() got an unexpected keyword argument 'x'"),
    "self": ("ls", {"self": 1}, "got multiple values for argument 'self'"),
    "ten megabytes": ("echo", {"content": "x" * 10_000_000}, "the arguments are too long."),
    "ten megabytes deep": ("echo", {"content": [{"x": ["y" * 10_000_000]}]}, "the arguments are too long."),
    "endless power": ("power", {"base": 9, "exponent": 10**9}, "the numbers are too large."),
    "endless precision": ("logarithm", {"value": 2, "base": 3, "precision": 10**9}, "the precision is larger"),
    "endless root": ("square_root", {"number": 2, "precision": 10**9}, "the precision is larger"),
    "endless round": ("round_number", {"number": 2, "decimal_places": -(10**9)}, "the precision is larger"),
    "wrong type": ("fillFuelTank", {"fuelAmount": "x"}, "not supported between instances"),
    "a long name": ("x" * 10_000_000, {}, f"name '{'x' * 64}' is not defined"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_call_is_a_failed_call_and_answered_at_once(name: str) -> None:
    method, arguments, text = HOSTILE[name]
    answer = result(method, **arguments)
    assert_quick(lambda: result(method, **arguments), 0.25)
    assert answer.startswith("Error during execution: ") and text in answer
    assert len(answer) < 300 and failed([answer])


def test_folders_that_hold_themselves_do_not_stop_the_server() -> None:
    box = toolbox()
    steps = [
        ("mkdir", {"dir_name": "p"}),
        ("cd", {"folder": "p"}),
        ("mkdir", {"dir_name": "x"}),
        ("cd", {"folder": ".."}),
    ]
    steps += [("cp", {"source": "p", "destination": "q"}), ("mv", {"source": "q", "destination": "p"})]
    steps += [("cd", {"folder": "p"}), ("mv", {"source": "q", "destination": "x"})]
    for name, arguments in steps:
        assert "rror" not in result(name, box, **arguments)
    assert result("find", box).startswith("Error during execution: maximum recursion depth")
    assert not same_state(box, toolbox())
    assert files_in(box.instances["GorillaFileSystem"].root) > MAX_FILES


def test_copies_of_copies_end_when_the_file_system_is_full() -> None:
    def fill() -> None:
        box, answers = toolbox(), []
        for number in range(40):
            answers.append(result("cp", box, source="a", destination=f"b{number}"))
            result("mv", box, source=f"b{number}", destination="a")
        assert answers[-1] == "Error during execution: the file system is full."

    assert_quick(fill, 1.0)


def test_a_flood_of_calls_is_cut() -> None:
    results = toolbox().run([Call("ls")] * 10_000)
    assert len(results) == 65 and "more than 64 calls" in results[-1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ls",
        "a.b()",
        "ls()()",
        "ls(x)",
        "ls(*[1])",
        "ls(**{})",
        "ls(1 + 1)",
        "ls(lambda: 1)",
        "ls(f'{1}')",
        "[ls()]",
        "ls() or 1",
        "import os",
        "ls(" * 5_000,
        "ls('" + "x" * 100_000 + "')",
        "\x00",
    ],
    ids=range(16),
)
def test_text_that_is_no_call_of_literals_is_refused(text: str) -> None:
    with pytest.raises(CallError):
        parse_call(text)


def test_calls_mix_positional_and_named_literals() -> None:
    call = parse_call(" f('x', -1.5, door=['a', {'b': (1, None, True)}]) ")
    assert (call.name, call.positional) == ("f", ("x", -1.5))
    assert call.keywords == {"door": ["a", {"b": (1, None, True)}]}


def test_responses_are_a_multiset() -> None:
    assert contains(["a", "b", "a"], ["a", "a"])
    assert not contains(["a", "b"], ["a", "a"])
    assert contains([], [])


AUGMENTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "paths": ("cat", {"file_name": "a/b"}, "Paths are not allowed: 'a/b' must be a name in the current directory."),
    "no file": ("sort", {"file_name": "nothing"}, "Use 'ls' to list this directory;"),
    "weather": ("get_outside_temperature_from_weather_com", {}, "try using get_outside_temperature_from_google()"),
    "airports": (
        "get_flight_cost",
        {"travel_from": "Paris", "travel_to": "LHR", "travel_date": "2024-01-01", "travel_class": "first"},
        "Error during execution: Invalid airport code(s): Paris. You can use 'list_all_airports'",
    ),
    "doors": ("lockDoors", {"unlock": True, "door": ["trunk"]}, "is not a door"),
    "engine": ("startEngine", {"ignitionMode": "START"}, "Lock them with 'lockDoors'"),
    "booking": ("contact_customer_support", {"booking_id": "1", "message": "x"}, "that 'book_flight' returned"),
}


@pytest.mark.parametrize("name", AUGMENTED)
def test_augmented_errors_say_what_to_do_instead(name: str) -> None:
    method, arguments, text = AUGMENTED[name]
    plain, hinted = result(method, **arguments), result(method, toolbox(errors="augmented"), **arguments)
    assert text in hinted and text not in plain
    assert failed([plain]) == failed([hinted])


def test_what_succeeds_reads_the_same_in_both_variants() -> None:
    for box in (toolbox(), toolbox(errors="augmented")):
        assert result("ls", box) == '{"current_directory_content": ["a"]}'
        assert result("mkdir", box, dir_name="b") == "None"


def test_sessions_share_nothing() -> None:
    """Upstream's sessions share cards, bookings and default lists: paying in one changes all others."""
    config = {"TravelAPI": json.dumps(entries()["multi_turn_long_context_150"]["initial_config"].get("TravelAPI", {}))}
    one, two = (Toolbox(config, ("TravelAPI", "TwitterAPI"), long_context=True) for _ in range(2))
    for card in one.instances["TravelAPI"].credit_card_list.values():
        card["balance"] = -1.0
    assert all(card["balance"] != -1.0 for card in two.instances["TravelAPI"].credit_card_list.values())
    for box in (one, two):
        box.instances["TwitterAPI"].authenticated = True
    given = ["@a"]
    one.run([Call("post_tweet", {"content": "x"}), Call("post_tweet", {"content": "y", "mentions": given})])
    for tweet in one.instances["TwitterAPI"].tweets.values():
        tweet["mentions"].append("@mine")
    assert given == ["@a"]
    assert '"mentions": []' in two.run([Call("post_tweet", {"content": "z"})])[0]


def test_an_episode_cannot_fill_its_state_until_showing_it_takes_seconds() -> None:
    """60 long posts a message, and then 60 looks at all of them: 17 MB of posts held the server for three seconds."""
    environment = BfclEnvironment()
    environment.reset({"id": "multi_turn_base_0"}, 0, "e")
    episode = environment._episode
    assert episode is not None and "TwitterAPI" in episode.model.instances
    posts = episode.model.instances["TwitterAPI"]
    posts.authenticated, posts.username = True, "me"
    post = [ToolCall(id="1", name="post_tweet", arguments={"content": "aĀ" * 7000})] * 60
    look = [ToolCall(id="1", name="get_user_tweets", arguments={"username": "me"})] * 60
    seen = environment.step(StepRequest(tool_calls=post))
    assert sum("too long" in message.content for message in seen.messages) == 51
    seen = environment.step(StepRequest(tool_calls=look))
    assert seen.messages[0].content.count("aĀ") + seen.messages[0].content.count("a\\u0100") == 9 * 7000
    assert_quick(lambda: environment.step(StepRequest(tool_calls=look)), 0.25)


def test_instances_go_with_their_episode() -> None:
    environment = BfclEnvironment()
    gone = []
    for step in (ANSWER, StepRequest(), StepRequest(tool_calls=[ToolCall(id="1", name="ls")])):
        environment.reset({"id": "multi_turn_base_0"}, 0, "e")
        episode = environment._episode
        assert episode is not None
        gone += [weakref.ref(box.instances[name]) for box in (episode.model, episode.truth) for name in box.instances]
        environment.step(step)
        del episode
    environment.close()
    gc.collect()
    assert len(gone) == 12 and all(reference() is None for reference in gone)


def living_instances() -> list[object]:
    """Every instance of a BFCL API class that this process holds; other tests may hold some of their own."""
    kinds = tuple(class_of(name) for name in MODULES)
    gc.collect()
    return [item for item in gc.get_objects() if type(item) in kinds]


@pytest.mark.slow
def test_a_thousand_episodes_leave_no_instance_behind() -> None:
    before = living_instances()
    seen = 0
    for number in range(1000):
        environment = BfclEnvironment()
        environment.reset({"id": f"multi_turn_base_{number % 200}"}, 0, "e")
        if number == 500:
            seen = len(living_instances()) - len(before)
        environment.step(ANSWER)
        del environment
    assert seen > 0  # an open episode is found, so the next line can fail
    assert {id(item) for item in living_instances()} <= {id(item) for item in before}
