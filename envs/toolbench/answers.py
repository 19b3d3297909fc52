"""The answer to a call of an API: from the cache, else by the simulators, else with the documented error.

Algorithm, for arguments in canonical form:
1. A recorded response, also one that is an error or was recorded for arguments that the document does not know.
2. The same with arguments in the types that the document declares: models write ``"5"`` for 5.
3. Arguments that the document refuses get the error that upstream's tools raise.
4. In a closed library (our own world, which is all recorded) nothing else exists: a message says so.
5. A shape in the document: the offline simulator. 6. The endpoint, where one is configured.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from envs.toolbench.documents import Api, ApiName, Parameter, standardize
from envs.toolbench.endpoint import Endpoint, EndpointFailure
from envs.toolbench.library import Library, Responses, find_response
from envs.toolbench.values import ValueFault, canonical

# The offline simulator: a made-up response in the shape that an API's document gives, the same each time.
#
# Shapes are trees whose leaves name types: ``str``, ``int``, ``float``, ``bool``, ``NoneType``, ``empty list``, or
# ``list of str with length 5``. A list of objects shows one of them, with its length as ``_list_length``. Long shapes
# are JSON text cut off after 1,000 characters, which is closed again here.

MAX_ITEMS = 3
MAX_NODES = 120
MAX_DEPTH = 10
LENGTH_KEY = "_list_length"

_LIST = re.compile(r"list of (\w+) with length (\d{1,9})")
_WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbor", "iris", "juniper", "kestrel", "linden"),
    *("maple", "nova", "onyx", "pine", "quartz", "river", "sable", "tundra", "umber", "violet", "willow", "zephyr"),
)


def simulate(api: Api, arguments: dict[str, Any], text: str) -> Any:
    """A response for ``arguments``, whose canonical form is ``text``. The API must have a template."""
    shape = read_template(api.document.template_response)
    return _Maker((*api.name, text), arguments).make(shape, "", 0)


def has_template(api: Api) -> bool:
    """Whether the document says anything about the shape of responses."""
    return api.document.template_response not in (None, "", {}, [])


def read_template(template: Any) -> Any:
    """A template as a tree; one that was cut off ends where its last whole value does."""
    if not isinstance(template, str) or template[:1] not in ("{", "["):
        return template
    for text in (template, _closed(template)):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    return "str"


def _closed(text: str) -> str:
    """The longest start of a cut JSON text that ends with a whole value, and the brackets that it lacks."""
    open_brackets: list[str] = []
    whole = ""
    inside = escaped = False
    for position, character in enumerate(text):
        if inside:
            inside = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            inside = True
        elif character in "{[":
            open_brackets.append("}" if character == "{" else "]")
        elif character in "}]":
            open_brackets = open_brackets[:-1]
            whole = text[: position + 1] + "".join(reversed(open_brackets))
        elif character == ",":
            whole = text[:position] + "".join(reversed(open_brackets))
    return whole


class _Maker:
    """Makes one response. Values depend on the API and all of its arguments, and on nothing else."""

    def __init__(self, seed: tuple[str, ...], arguments: Mapping[str, Any]) -> None:
        digest = hashlib.sha256("\0".join(seed).encode("utf-8", "replace")).digest()
        self._rng = random.Random(digest)  # noqa: S311 - reproducible on purpose
        self._arguments = {standardize(name): value for name, value in arguments.items()}
        self._nodes = 0

    def make(self, shape: Any, field: str, depth: int) -> Any:
        """A value of this shape; ``field`` is the name that it goes by."""
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            return None
        if isinstance(shape, dict):
            return {
                name: self.make(inner, name, depth + 1)
                for name, inner in shape.items()
                if name != LENGTH_KEY and self._nodes <= MAX_NODES
            }
        if isinstance(shape, list):
            return self._list(shape, field, depth)
        echoed = self._arguments.get(standardize(field)) if field else None
        if echoed is not None:
            return echoed
        return self._leaf(shape, field, depth) if isinstance(shape, str) else shape

    def _list(self, shape: list[Any], field: str, depth: int) -> list[Any]:
        if not shape:
            return []
        if len(shape) == 1 and isinstance(shape[0], str) and _LIST.fullmatch(shape[0]):
            # Upstream writes a list of plain values as a list with one sentence about them.
            made = self.make(shape[0], "", depth + 1)
            return made if isinstance(made, list) else []
        length = shape[0].get(LENGTH_KEY, 1) if isinstance(shape[0], dict) else len(shape)
        count = length if isinstance(length, int) else 1
        return [self.make(shape[0], field, depth + 1) for _ in range(max(min(count, MAX_ITEMS), 0))]

    def _leaf(self, kind: str, field: str, depth: int) -> Any:
        rng = self._rng
        listed = _LIST.fullmatch(kind)
        if listed:
            return [self.make(listed[1], "", depth + 1) for _ in range(min(int(listed[2]), MAX_ITEMS))]
        match kind:
            case "int":
                return rng.randrange(1, 10_000)
            case "float":
                return round(rng.uniform(0, 1000), 2)
            case "bool":
                return rng.random() < 0.5
            case "NoneType":
                return None
            case "list" | "empty list":
                return []
            case "dict":
                return {}
        return self._text(field.lower())

    def _text(self, field: str) -> str:
        rng = self._rng
        first, second = rng.choice(_WORDS), rng.choice(_WORDS)
        if any(part in field for part in ("url", "link", "image", "uri", "href")):
            return f"https://example.org/{first}/{rng.randrange(1000, 10_000)}"
        if "email" in field:
            return f"{first}.{second}@example.org"
        if "date" in field or "time" in field:
            return f"2023-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
        if field == "id" or field.endswith(("_id", "Id")):
            return str(rng.randrange(100_000, 1_000_000))
        return f"{first.capitalize()} {second}"


Source = Literal["cache", "simulator", "endpoint", "error"]
Dialect = Literal["stabletoolbench", "search-r1"]
DIALECTS: tuple[Dialect, ...] = ("stabletoolbench", "search-r1")

# Status codes of upstream's inference environment.
OK, UNKNOWN_FUNCTION, INPUT_ERROR, FINAL_ANSWER, GAVE_UP, TIMED_OUT = 0, 1, 2, 3, 4, 5
MESSAGE_ERROR, SEND_ERROR = 11, 12
_STATUS_OF_ERROR = {
    "API not working error...": 6,
    "Unauthorized error...": 7,
    "Unsubscribed error...": 8,
    "Too many requests error...": 9,
    "Rate limit per minute error...": 10,
    "Message error...": MESSAGE_ERROR,
}
PARSE_ERROR = "Tool input parse error...\n"
NOT_GENERATED: dict[Dialect, str] = {
    "stabletoolbench": "Failed to generate fake response",
    "search-r1": "The API call failed. Please try again later.",
}
MAX_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """``body`` is ``{"error", "response"}``, or what else a cache file holds; ``error`` its error text."""

    body: Any
    source: Source
    status: int

    @property
    def error(self) -> str:
        """The error text, empty where the call went well."""
        error = self.body.get("error", "") if isinstance(self.body, dict) else ""
        return error if isinstance(error, str) else str(error)


def failure(error: str, status: int) -> Answer:
    """An error of ours or upstream's in the wire's shape."""
    return Answer({"error": error, "response": ""}, "error", status)


class Answerer:
    """Answers calls from one library. Shared by all sessions and the HTTP route; holds nothing of a session."""

    def __init__(
        self, library: Library, endpoint: Endpoint | None = None, dialect: Dialect = "stabletoolbench"
    ) -> None:
        self.library = library
        self.dialect = dialect
        self._endpoint = endpoint

    @property
    def asks_endpoint(self) -> bool:
        """Whether a model answers what the offline simulator cannot."""
        return self._endpoint is not None

    def quick(self, name: ApiName, api: Api | None, arguments: dict[str, Any]) -> Answer | None:
        """The answer where nothing has to be waited for; else ``None``: see ``wait``."""
        try:
            text = canonical(arguments)
        except ValueFault:
            return failure(PARSE_ERROR, INPUT_ERROR)
        responses = self.library.recorded(name)
        if responses is None:
            return None
        return self._answer(name, api, arguments, text, responses)

    async def wait(self, name: ApiName, api: Api | None, arguments: dict[str, Any]) -> Answer:
        """The answer after reading a large file or asking the endpoint."""
        responses = await self.library.load(name)
        answer = self._answer(name, api, arguments, canonical(arguments), responses)
        if answer is not None:
            return answer
        status = SEND_ERROR
        if self._endpoint is not None and api is not None:
            try:
                return Answer(await self._endpoint.ask(self.library.described(api), arguments), "endpoint", OK)
            except EndpointFailure as error:
                status = TIMED_OUT if error.timed_out else SEND_ERROR
        return failure(NOT_GENERATED[self.dialect], status)

    def _answer(
        self, name: ApiName, api: Api | None, arguments: dict[str, Any], text: str, responses: Responses
    ) -> Answer | None:
        found = find_response(responses, arguments, text)
        if found is None and api is not None and responses:
            typed = _typed(api, arguments)
            found = find_response(responses, typed, canonical(typed))
        if found is not None:
            return _recorded(found)
        if api is None:
            return self._unknown(name)
        fault = _fault(api, arguments)
        if fault is not None:
            where = f"toolenv.tools.{name.category}.{name.tool}.api import {name.api}"
            return failure(f"Function executing from {where} error...\n{name.api}() {fault}", INPUT_ERROR)
        if self.library.closed:
            body = {"error": "Message error...", "response": "{'message': 'Nothing was found for these parameters.'}"}
            return Answer(body, "error", MESSAGE_ERROR)
        if has_template(api):
            return Answer({"error": "", "response": simulate(api, arguments, text)}, "simulator", OK)
        return None if self._endpoint is not None else failure(NOT_GENERATED[self.dialect], SEND_ERROR)

    def _unknown(self, name: ApiName) -> Answer:
        """Upstream answers 500 or asks its model about nothing; Search-R1's server has two sentences for it."""
        shown = name.api[:MAX_SHOWN]
        if self.dialect == "stabletoolbench":
            return failure(f"No such function name: {shown}", UNKNOWN_FUNCTION)
        known = self.library.api_names(name)
        if known:
            return failure(f"Cannot match API name: '{shown}'. Available APIs (first 5): {known[:5]}", UNKNOWN_FUNCTION)
        return failure(f"Cannot find tool definition file for: {name.tool[:MAX_SHOWN]}", UNKNOWN_FUNCTION)


def _recorded(found: Any) -> Answer:
    error = found.get("error", "") if isinstance(found, dict) else ""
    return Answer(found, "cache", _STATUS_OF_ERROR.get(error, OK) if isinstance(error, str) else OK)


def _typed(api: Api, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments in the types that the document declares, where they can be read so."""
    types = {
        parameter.argument: parameter.type
        for parameter in (*api.document.required_parameters, *api.document.optional_parameters)
    }
    return {name: _as_declared(value, types.get(name, "")) for name, value in arguments.items()}


def _as_declared(value: Any, declared: str) -> Any:
    if declared == "NUMBER" and isinstance(value, str) and len(value) <= MAX_SHOWN:
        number = _number(value)
        return value if number is None else number
    if declared in ("STRING", "string") and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if abs(number) < float("inf") else None
    return None


def _fault(api: Api, arguments: dict[str, Any]) -> str | None:
    """What Python would say to a function of these parameters; ``None`` for a good call."""
    document = api.document
    known: dict[str, Parameter] = {
        parameter.argument: parameter for parameter in (*document.required_parameters, *document.optional_parameters)
    }
    for argument, value in arguments.items():
        if argument not in known:
            return f"got an unexpected keyword argument '{argument[:MAX_SHOWN]}'"
        wanted = _wrong_type(known[argument].type, value)
        if wanted:
            return f"argument '{argument}' must be {wanted}, not {type(value).__name__}"
    missing = [f"'{item.argument}'" for item in document.required_parameters if item.argument not in arguments]
    if not missing:
        return None
    listed = " and ".join([", ".join(missing[:-1]), missing[-1]] if len(missing) > 1 else missing)
    return f"missing {len(missing)} required positional argument{'s' * (len(missing) > 1)}: {listed}"


def _wrong_type(declared: str, value: Any) -> str | None:
    """The type that the value should have. Only the three plain types are judged, and numbers in text are numbers."""
    match declared.upper():
        case "NUMBER":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return None if number or (isinstance(value, str) and _number(value[:MAX_SHOWN]) is not None) else "number"
        case "BOOLEAN":
            named = isinstance(value, str) and value.lower() in ("true", "false")
            return None if isinstance(value, bool) or named else "bool"
        case "STRING":
            return "str" if isinstance(value, dict | list) or value is None else None
    return None
