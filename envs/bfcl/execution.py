"""The instances of one session, and calls dispatched to their documented methods by name.

Results are BFCL's: an object becomes JSON, anything else ``str()``, and what raises ``Error during execution: ...``.
The classes are benchmark code that trusts its caller, so calls that could stop the server are refused beforehand:
powers and precisions without end, and copies of folders that share their content until a walk through them never ends.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from envs.bfcl import hints
from envs.bfcl.calls import FORBIDDEN, MAX_CALLS, MAX_NAME, Call
from envs.bfcl.package import load_instance, methods_of, mutable_defaults

Errors = Literal["standard", "augmented"]
ERROR_PREFIX = "Error during execution: "
MAX_RESULT_CHARS = 262_144
MAX_POWER_BITS = 14_000  # Python writes integers of up to 4,300 digits
MAX_PRECISION = 1_000
MAX_FILES = 2_000  # the largest entry has 126
# What all calls of an episode may carry into its state: a function that shows the state may be called 64 times in one
# message, and 20 MB of posts took three seconds of everybody's. The longest gold episode carries 6,985 characters.
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
        # A later class wins a name, as in BFCL; none of the 129 names stands twice.
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
                text = ERROR_PREFIX + hints.for_exception(call.name, call.keywords, str(error))
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
            result = {**result, "error": hints.for_error(call.name, call.keywords, result["error"], instance)}
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
