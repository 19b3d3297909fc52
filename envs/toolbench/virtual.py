"""``POST /virtual``: one call of one API, as the clients of StableToolBench and Search-R1 send it.

The answer is always 200 with ``{"error", "response"}``, and 422 in FastAPI's shape for a body of another form (without
the input that FastAPI would echo). Bodies over a megabyte are refused with 413 in the project's error shape.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException

from envs.base.frames import error_body
from envs.base.settings import MAX_FRAME_BYTES
from envs.toolbench.answers import INPUT_ERROR, OK, PARSE_ERROR, Answer, Answerer, failure
from envs.toolbench.documents import requested_name
from envs.toolbench.values import ValueFault, load_json

PATH = "/virtual"
CHAT = "chat_with_user"


class VirtualBody(BaseModel):
    """The request of StableToolBench's server. ``strip`` and ``toolbench_key`` mean nothing here, as there."""

    model_config = ConfigDict(extra="ignore")

    category: str
    tool_name: str
    api_name: str
    tool_input: str | dict[str, Any]
    strip: str
    toolbench_key: str


class SearchBody(VirtualBody):
    """Search-R1's server does not ask for a key."""

    toolbench_key: str = ""


class TooLarge(Exception):
    """The body is over the limit."""


class Virtual:
    """The route over one answerer."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self._body = SearchBody if answerer.dialect == "search-r1" else VirtualBody

    def mount(self, app: FastAPI) -> None:
        """Add the route, and its errors in the project's shape."""
        app.add_route(PATH, self._endpoint, methods=["POST"])
        app.add_exception_handler(HTTPException, _refuse)
        app.add_exception_handler(TooLarge, _refuse)

    async def _endpoint(self, request: Request) -> Response:
        try:
            value = load_json(await _read(request), limit=MAX_FRAME_BYTES)
        except ValueFault as fault:
            error = {"type": "json_invalid", "loc": ["body", 0], "msg": "JSON decode error"}
            return JSONResponse({"detail": [{**error, "ctx": {"error": str(fault)}}]}, status_code=422)
        try:
            body = self._body.model_validate(value)
        except ValidationError as error:
            return JSONResponse({"detail": _details(error)}, status_code=422)
        answer = await self.answer(body)
        # In ASCII: a cache file may hold half a surrogate pair, which UTF-8 cannot say.
        return Response(json.dumps(answer.body), media_type="application/json")

    async def answer(self, body: VirtualBody) -> Answer:
        """Answer one request, in upstream's order of steps."""
        name = requested_name(body.category, body.tool_name, body.api_name)
        if CHAT in (name.api, body.tool_name):
            return Answer({"error": "", "response": "Chat with user."}, "simulator", OK)
        arguments = _arguments(body.tool_input)
        if arguments is None:
            return failure(PARSE_ERROR, INPUT_ERROR)
        api = self._answerer.library.find(name)
        if api is not None:
            name = api.name
        quick = self._answerer.quick(name, api, arguments)
        return quick if quick is not None else await self._answerer.wait(name, api, arguments)


def _arguments(given: str | dict[str, Any]) -> dict[str, Any] | None:
    """The arguments; ``None`` where they cannot be read. Upstream would look up a number or a list too."""
    if isinstance(given, dict):
        return given
    if given == "":
        return {}
    try:
        value = load_json(given)
    except ValueFault:
        return None
    return value if isinstance(value, dict) else None


async def _read(request: Request) -> str:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FRAME_BYTES:
            raise TooLarge
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueFault("Not UTF-8") from None


def _details(error: ValidationError) -> list[dict[str, Any]]:
    faults = error.errors(include_input=False, include_url=False, include_context=False)
    return [{"type": fault["type"], "loc": ["body", *fault["loc"]], "msg": fault["msg"]} for fault in faults]


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, TooLarge):
        status, code, message = 413, "TOO_LARGE", f"A request may have {MAX_FRAME_BYTES} bytes."
    else:
        status = error.status_code if isinstance(error, HTTPException) else 500
        code, message = f"HTTP_{status}", "This route does not answer such a request."
    return JSONResponse(error_body(code, message), status_code=status)
