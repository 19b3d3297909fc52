"""Additions to the schema beyond each operation's own shapes: plain ids, and the errors that it can give.

Errors follow from the operation: the caller must be known (401, and 429 after too many unknown tokens) and may do it
(403: a role, a token's scope), what an address names may be gone (404), what is sent can be wrong (400, 413, 422), a
write needs a state that allows it (409) and a disk that takes it (507). ``MORE`` has the rest, such as the operations
with a rate limit.
"""

from __future__ import annotations

from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation

from webapp.common.errors import MESSAGES

CODES = {
    400: "invalid",
    401: "login_required",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    412: "changed_meanwhile",
    413: "too_large",
    422: "invalid",
    429: "rate_limited",
    500: "internal",
    503: "unavailable",
    507: "storage_failed",
}
WAITS = (429, 503, 507)  # they say when to try again
MORE: dict[str, tuple[int, ...]] = {
    "channel_test": (429,),
    "config_check": (429,),
    "endpoint_tested": (429,),
    "environment_checked": (429,),
    "environment_new": (429,),
    "model_download": (409,),
    "reward_tried": (429,),
    "rollout_words": (429,),
}
"""By operation: errors that do not follow from its method and its parameters."""
DESCRIPTION = (
    "What the pages of Tiltyard do, a script can do. Send a token of yours as `Authorization: Bearer …`; what you may "
    "not see answers 404. Every error has one shape, `Error`."
)
ERROR = {
    "title": "Error",
    "type": "object",
    "description": "The one shape of every error.",
    "properties": {
        "ok": {"title": "Ok", "type": "boolean", "const": False},
        "code": {"title": "Code", "type": "string", "description": "what happened, for programs; see docs/errors.md"},
        "message": {"title": "Message", "type": "string", "description": "what happened, for people"},
        "detail": {"title": "Detail", "description": "of a 422: a list of `{path, message}`; else mostly null"},
        "request_id": {"title": "Request Id", "type": "string", "description": "what the server's log knows it by"},
    },
    "required": ["ok", "code", "message", "detail", "request_id"],
    "example": {
        "ok": False,
        "code": "not_found",
        "message": MESSAGES["not_found"],
        "detail": None,
        "request_id": "3f9a0c51d2e4",
    },
}
Schema = dict[str, Any]


class DocumentedAPI(NinjaAPI):
    """The API object, whose schema names no module of ours and leaves no error out."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """The plain name, which generated clients use: ``runs_list``."""
        return operation.view_func.__name__

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        """The schema with the errors of every operation."""
        schema = super().get_openapi_schema(**options)
        for path, methods in schema["paths"].items():
            for method, operation in methods.items():
                operation["responses"] |= {
                    status: _error_response(status) for status in error_statuses(method, path, operation)
                }
        schema["components"]["schemas"]["Error"] = ERROR
        schema["servers"] = [{"url": "/", "description": "this server"}]
        return schema


def error_statuses(method: str, path: str, operation: Schema) -> list[int]:
    """The errors that an operation can give."""
    found = {401, 403, 429, 500, 503, *MORE.get(operation["operationId"], ())}
    if "{" in path:
        found.add(404)
    if any(item["in"] == "query" for item in operation.get("parameters", ())):
        found.add(422)
    if any(item["name"] == "If-Match" for item in operation.get("parameters", ())):
        found.add(412)
    if method != "get":
        found |= {409, 422, 507}
    if "requestBody" in operation:
        found |= {400, 413}
    return sorted(found)


def _error_response(status: int) -> Schema:
    response: Schema = {
        "description": MESSAGES[CODES[status]],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    if status in WAITS:
        about = "seconds after which to ask again"
        response["headers"] = {"Retry-After": {"description": about, "schema": {"type": "integer"}}}
    return response
