"""The instances of one session, and calls dispatched to their documented methods by name.

Results are BFCL's: an object becomes JSON, anything else ``str()``, and what raises ``Error during execution: ...``.
The classes are benchmark code that trusts its caller, so calls that could stop the server are refused beforehand:
powers and precisions without end, and copies of folders that share their content until a walk through them never ends.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from envs.bfcl.calls import FORBIDDEN, MAX_CALLS, MAX_NAME, Call
from envs.bfcl.package import load_instance, methods_of, mutable_defaults

# The "augmented" error texts: what a failed call should have done instead, for a policy that still has to learn it.
#
# EnvTuning's middle stages train on hint-rich errors for the file system, travel and vehicle classes, and its last on
# BFCL's plain ones. The sentences are ours, in the manner of the published examples. They are added to the text only:
# a call has the same effect, and fails in the same way, in both variants.

MAX_SHOWN = 80


class Hint(NamedTuple):
    """``text`` follows an error that matches ``pattern``; ``methods`` are those it is said for."""

    methods: frozenset[str]
    pattern: re.Pattern[str]
    text: str


def _hint(methods: str, pattern: str, text: str) -> Hint:
    return Hint(frozenset(methods.split()), re.compile(pattern), text)


_FILES = "cat cd cp diff echo grep mkdir mv rm rmdir sort tail touch wc"
_BOOKED = "book_flight cancel_booking retrieve_invoice purchase_insurance contact_customer_support"
_TRAVEL = f"{_BOOKED} get_credit_card_balance register_credit_card set_budget_limit"
_HINTS = (
    _hint("cd", "already the root", "Use 'pwd' to see where you are and 'ls' to see what is here."),
    _hint("cd", "No such directory", "Use 'ls' to list this directory, or 'find' to locate the one you mean."),
    _hint(
        "cat diff grep sort tail wc rm mv cp",
        "No such file or directory",
        "Use 'ls' to list this directory; if the file is elsewhere, find it with 'find' and go there with 'cd'.",
    ),
    _hint("cat", "Is a directory", "Only files can be shown; enter the directory with 'cd' and list it with 'ls'."),
    _hint(
        "mkdir touch echo cat",
        "Invalid character",
        "Names must not contain any of | / \\ ? % * : \" > <; go to the directory with 'cd' first.",
    ),
    _hint("mkdir touch", "File exists", "It is already there: use it, or choose another name."),
    _hint("mv cp", "File exists", "The destination already has a file of that name; remove or rename one of them."),
    _hint("mv cp", "Not a directory", "The destination is an existing file; choose a directory or a new name."),
    _hint("mv cp", "path", "Give a name in this directory; to go further, enter the directory with 'cd' first."),
    _hint("rmdir", "not empty", "Enter it with 'cd', remove what it holds with 'rm', and come back with 'cd ..'."),
    _hint("rmdir", "Not a directory", "Use 'rm' for files."),
    _hint("rmdir", "No such file", "Use 'ls' to see which directories are here."),
    _hint("wc", "invalid mode", "The mode is 'l' for lines, 'w' for words or 'c' for characters."),
    _hint(_TRAVEL, "Token (expired|not initialized)", "Get a new access token with 'authenticate_travel' first."),
    _hint(_TRAVEL, "Invalid access token", "Use the access_token that 'authenticate_travel' returned."),
    _hint(
        _TRAVEL,
        "[Cc]ard not registered|Balance not found",
        "Use 'get_all_credit_cards' to see the registered cards, or 'register_credit_card' to add one.",
    ),
    _hint("register_credit_card", "already registered", "The card can be used as it is."),
    _hint("book_flight", "Insufficient funds", "Check 'get_credit_card_balance' and try a cheaper class or card."),
    _hint("book_flight purchase_insurance", "budget limit", "Ask the user, or change it with 'set_budget_limit'."),
    _hint(_BOOKED, "Booking not found", "Use the booking_id that 'book_flight' returned."),
    _hint("startEngine", "doors must be locked", "Lock them with 'lockDoors' (unlock=False) and start again."),
    _hint("startEngine", "[Bb]rake", "Call 'pressBrakePedal' with pedalPosition=1 and start again."),
    _hint("startEngine fillFuelTank", "tank is empty", "Use 'fillFuelTank' to add fuel."),
    _hint("startEngine", "Invalid ignition mode", "The ignition mode is 'START' or 'STOP'."),
    _hint(
        "fillFuelTank", "above the tank capacity", "The tank holds 50 gallons: see 'displayCarStatus' for its level."
    ),
    _hint("fillFuelTank", "negative", "Give the gallons to add, 0 or more."),
    _hint("adjustClimateControl", "Fan speed", "Give a fanSpeed from 0 to 100."),
    _hint("setHeadlights", "Invalid headlight mode", "The mode is 'on', 'off' or 'auto'."),
    _hint(
        "displayCarStatus",
        "Invalid option",
        "Options: 'fuel', 'battery', 'doors', 'climate', 'headlights', 'parkingBrake', 'brakePedal', 'engine'.",
    ),
    _hint("activateParkingBrake", "Invalid mode", "The mode is 'engage' or 'release'."),
    _hint("pressBrakePedal", "between 0 and 1", "1 presses it fully."),
    _hint("setCruiseControl", "Start the engine", "Use 'startEngine'; it needs locked doors and a pressed brake."),
    _hint("setCruiseControl", "Invalid speed", "The speed is a multiple of 5 from 0 to 120."),
    _hint("estimate_distance", "not found", "Give zip codes: 'get_zipcode_based_on_city' knows those of cities."),
)


def for_error(method: str, arguments: dict[str, Any], error: Any, instance: Any) -> Any:
    """The text of ``{"error": ...}`` in this variant."""
    if method == "get_outside_temperature_from_weather_com":
        return (
            "Weather.com service is currently unavailable. "
            "Please try using get_outside_temperature_from_google() instead."
        )
    text = str(error)
    if method in _FILES.split() and (path := _path_in(arguments)) is not None:
        return (
            f"{text} Paths are not allowed: '{path}' must be a name in the current directory. "
            "Go to its directory with 'cd', one folder at a time."
        )
    hint = next((hint for hint in _HINTS if method in hint.methods and hint.pattern.search(text)), None)
    return error if hint is None else f"{text} {hint.text}"


def for_exception(method: str, arguments: dict[str, Any], error: str) -> str:
    """The text of a raised error in this variant."""
    explain = _EXCEPTIONS.get(method)
    return explain(arguments, error) if explain else error


def _path_in(arguments: dict[str, Any]) -> str | None:
    values = (value for key, value in arguments.items() if key not in ("content", "pattern"))
    return next((value[:MAX_SHOWN] for value in values if isinstance(value, str) and "/" in value), None)


def _flight_cost(arguments: dict[str, Any], error: str) -> str:
    codes = [str(arguments.get(key))[:MAX_SHOWN] for key in ("travel_from", "travel_to")]
    if "No available route" in error:
        wrong = [code for code in codes if not re.fullmatch(r"[A-Z]{3}", code)]
        if wrong:
            return (
                f"Invalid airport code(s): {', '.join(wrong)}. You can use 'list_all_airports' to see all codes, "
                "or 'get_nearest_airport_by_city' for that of a city."
            )
        return f"{error} There is no flight from {codes[0]} to {codes[1]}; 'list_all_airports' shows all codes."
    return error


def _exchange(arguments: dict[str, Any], error: str) -> str:
    if "No available exchange rate" not in error:
        return error
    return f"{error} One of the two currencies must be USD; convert in two steps otherwise."


def _doors(arguments: dict[str, Any], error: str) -> str:
    if not isinstance(arguments.get("door"), list):
        return f"{error}. Give 'door' as a list of 'driver', 'passenger', 'rear_left' and 'rear_right'."
    return f"{error} is not a door: they are 'driver', 'passenger', 'rear_left' and 'rear_right'."


_EXCEPTIONS: dict[str, Callable[[dict[str, Any], str], str]] = {
    "get_flight_cost": _flight_cost,
    "compute_exchange_rate": _exchange,
    "lockDoors": _doors,
}


Errors = Literal["standard", "augmented"]
ERROR_PREFIX = "Error during execution: "
MAX_RESULT_CHARS = 262_144
MAX_POWER_BITS = 14_000  # Python writes integers of up to 4,300 digits
MAX_PRECISION = 1_000
MAX_FILES = 2_000  # the largest entry has 126
# What all calls of an episode may carry into its state: a function that shows the state may be called 64 times in one
# message, and 20 MB of posts took three seconds of all sessions. The longest gold episode carries 6,985 characters.
MAX_EPISODE_CHARS = 131_072
# Where these functions take their digits: position and name.
_PRECISION = {"logarithm": (2, "precision"), "square_root": (1, "precision"), "round_number": (1, "decimal_places")}


class Refused(Exception):
    """A call that is not run; the text becomes its result."""


class Toolbox:
    """One set of instances: the model's, or the ground truth's."""

    def __init__(
        self, configs: Mapping[str, str], classes: Sequence[str], *, long_context: bool, errors: Errors = "standard"
    ) -> None:
        self.instances = {
            name: load_instance(name, configs.get(name, "{}"), long_context=long_context) for name in classes
        }
        self._errors = errors
        self._carried = 0
        # A later class wins a name, as in BFCL; none of the 129 names occurs twice.
        self._owners = {method: name for name in classes for method in methods_of(name)}

    def run(self, calls: Sequence[Call]) -> list[str]:
        """The result of each call, in order."""
        results = [self._run(call) for call in calls[:MAX_CALLS]]
        return results + [f"{ERROR_PREFIX}more than {MAX_CALLS} calls in one message."] * (len(calls) > MAX_CALLS)

    def _run(self, call: Call) -> str:
        try:
            text = _as_text(self._call(call))
        except Exception as error:  # a failed call is a result, whatever BFCL's class raised
            text = f"{ERROR_PREFIX}{error}"
            if self._errors == "augmented":
                text = ERROR_PREFIX + for_exception(call.name, call.keywords, str(error))
            return text[:MAX_RESULT_CHARS]
        if len(text) > MAX_RESULT_CHARS:
            return f"{ERROR_PREFIX}the result is longer than {MAX_RESULT_CHARS} characters."
        return text

    def _call(self, call: Call) -> Any:
        if call.name in FORBIDDEN:
            raise Refused(f"Function call {call.name} is not allowed.")
        owner = self._owners.get(call.name)
        if owner is None:
            raise Refused(f"name '{call.name[:MAX_NAME]}' is not defined")
        if call.too_large():
            raise Refused("the arguments are too long.")
        if self._carried + call.size() > MAX_EPISODE_CHARS:
            raise Refused("the arguments of this episode are too long.")
        self._carried += call.size()
        instance = self.instances[owner]
        _check(instance, call)
        # Copies: the classes keep lists that they are given, and change them later.
        positional, keywords = copy.deepcopy((call.positional, {**_defaults(owner, call), **call.keywords}))
        result = getattr(instance, call.name)(*positional, **keywords)
        if self._errors == "augmented" and isinstance(result, dict) and "error" in result:
            result = {**result, "error": for_error(call.name, call.keywords, result["error"], instance)}
        return result


def failed(results: Sequence[str]) -> bool:
    """Whether a result is an exception's; ``{"error": ...}`` of a function is an answer like any other."""
    return any(result.startswith(ERROR_PREFIX.strip()) for result in results)


def same_state(model: Toolbox, truth: Toolbox) -> bool:
    """BFCL's state check: every public attribute of every instance is equal."""
    try:
        return all(_equal(model.instances[name], instance) for name, instance in truth.instances.items())
    except Exception:  # states that cannot be compared (a folder inside itself) are not equal
        return False


def contains(results: Sequence[str], wanted: Sequence[str]) -> bool:
    """BFCL's response check: every wanted result was seen, as often as it is wanted."""
    return not Counter(wanted) - Counter(results)


def _equal(model: Any, truth: Any) -> bool:
    return all(getattr(model, name, None) == value for name, value in vars(truth).items() if not name.startswith("_"))


def _defaults(owner: str, call: Call) -> dict[str, Any]:
    """Defaults that every session would share if Python filled them in."""
    return {
        name: default
        for name, (position, default) in mutable_defaults(owner, call.name).items()
        if position >= len(call.positional)
    }


def _as_text(result: Any) -> str:
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError, RecursionError):  # numbers of mpmath and decimal
            return str(result)
    return str(result)


def _check(instance: Any, call: Call) -> None:
    if call.name == "power":
        _check_power([*call.positional, *call.keywords.values()])
    elif call.name in _PRECISION:
        position, name = _PRECISION[call.name]
        given = [call.keywords.get(name), *call.positional[position:]]
        if any(isinstance(value, int) and abs(value) > MAX_PRECISION for value in given):
            raise Refused(f"the precision is larger than {MAX_PRECISION}.")
    elif call.name == "cp":
        _check_copy(instance, [*call.positional, *call.keywords.values()])


def _check_power(values: list[Any]) -> None:
    if len(values) == 2 and all(isinstance(value, int) for value in values):
        sizes = [value.bit_length() for value in values]
        if max(sizes) > MAX_POWER_BITS or any(sizes[0] * abs(value) > MAX_POWER_BITS for value in values[1:]):
            raise Refused("the numbers are too large.")


def _check_copy(instance: Any, values: list[Any]) -> None:
    """Copies share what they hold: each may double the paths, and ``find`` walks every one of them."""
    here = instance._current_dir.contents
    copied = [here[value] for value in values if isinstance(value, str) and value in here]
    if files_in(instance.root) + sum(files_in(item) for item in copied[:1]) > MAX_FILES:
        raise Refused("the file system is full.")


def files_in(item: Any) -> int:
    """Paths below a folder, counted until there are too many."""
    count, waiting = 0, [item]
    while waiting and count <= MAX_FILES:
        contents = getattr(waiting.pop(), "contents", None) or {}
        count += len(contents)
        waiting += contents.values()
    return count
