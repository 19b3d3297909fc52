"""What a call of an API is answered: from the cache, else by the simulators, else with the documented error.

Algorithm, for arguments in canonical form:
1. A recorded response, also one that is an error or was recorded for arguments that the document does not know.
2. The same with arguments in the types that the document declares: models write ``"5"`` for 5.
3. Arguments that the document refuses get the error that upstream's tools raise.
4. In a closed library (our own world, which is all recorded) nothing else exists: a message says so.
5. A shape in the document: the offline simulator. 6. The endpoint, where one is configured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from envs.toolbench.cache import Responses, find_response
from envs.toolbench.documents import Api, ApiName, Parameter
from envs.toolbench.endpoint import Endpoint, EndpointFailure
from envs.toolbench.library import Library
from envs.toolbench.simulator import has_template, simulate
from envs.toolbench.values import ValueFault, canonical

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
    """What the value should have been. Only the three plain types are judged, and numbers in text are numbers."""
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
