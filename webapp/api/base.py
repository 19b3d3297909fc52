"""The API object: who may call it and the one error shape."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
from collections.abc import Callable, Collection
from typing import Annotated, Any, NamedTuple, TypeVar, cast

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.core.exceptions import ValidationError as FieldError
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.http.multipartparser import MultiPartParserError
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from ninja import Header, Status
from ninja.errors import AuthenticationError, HttpError
from ninja.errors import ValidationError as RequestError
from ninja.openapi.docs import Swagger
from ninja.parser import Parser
from ninja.renderers import JSONRenderer
from ninja.security import HttpBearer
from ninja.security.base import AuthBase
from ninja.utils import check_csrf
from pydantic import ValidationError as ShapeError

from training.config import JobConfig
from training.errors import ConfigError, TiltyardError
from training.words import complaint_of, option_of
from webapp.api.schema import CODES, DESCRIPTION, DocumentedAPI
from webapp.common.answers import in_shape
from webapp.common.errors import TooMany, error_body, outage, server_error, too_many
from webapp.common.pages import OVERHEAD_BYTES, CountingUploadHandler, bearer, client_address, errors_by_field
from webapp.common.text import unstorable
from webapp.launch.findings import config_sentence
from webapp.people.teams.access import require_scope
from webapp.people.teams.logins import token_wait_s
from webapp.people.teams.models import TokenScope, User
from webapp.people.teams.sudo import ConfirmFirst
from webapp.people.teams.tokens import token_ended, token_user, token_was_there

logger = logging.getLogger(__name__)


def limit_upload(request: HttpRequest) -> None:
    """Refuse files beyond the limit, before anything reads the form."""
    if request.content_type == "multipart/form-data":
        if int(request.META.get("CONTENT_LENGTH") or 0) > settings.MAX_UPLOAD_BYTES + OVERHEAD_BYTES:
            raise HttpError(413, "")
        request.upload_handlers.insert(0, CountingUploadHandler(request, settings.MAX_UPLOAD_BYTES))


class Session(AuthBase):
    """The browser's session, with CSRF for everything that writes. Without a login the CSRF
    token is not checked: the answer is 401."""

    openapi_type = "apiKey"
    openapi_in = "cookie"
    openapi_name = settings.SESSION_COOKIE_NAME

    def __call__(self, request: HttpRequest) -> User | None:
        """The person, or ``None`` for a 401. The CSRF check reads the form, so the upload's limit is set before it."""
        if not request.user.is_authenticated:
            return None
        limit_upload(request)
        if check_csrf(request):
            raise HttpError(403, "The CSRF token is missing or wrong.")
        return cast(User, request.user)


class Token(HttpBearer):
    """A token made on the page of tokens: ``Authorization: Bearer tiltyard_…``. No cookie, so no CSRF.

    ``open_to`` are the scopes of the operation: a token that is narrower than its role does nothing else.
    """

    def __init__(self, open_to: Collection[TokenScope] = ()) -> None:
        super().__init__()
        self.open_to = open_to

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        """The person, limited by the token; ``None`` lets the session be tried. Raises ``PermissionDenied``."""
        user = token_user(token, client_address(request))
        if user is not None:
            require_scope(user, self.open_to)
            limit_upload(request)
            request.user = user
        return user


def open_to(*scopes: TokenScope) -> list[AuthBase]:
    """``auth`` of an operation that tokens of these scopes may call, besides everybody with the role that it needs."""
    return [Token(scopes), Session()]


class StrictJson(JSONRenderer):
    """JSON without NaN, which other parsers refuse."""

    json_dumps_params = {"allow_nan": False, "ensure_ascii": False}


class StorableText(Parser):
    """Bodies whose texts the database can store; others are refused with the field's name, like a form."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        """The JSON. Raises ``ValidationError``, and ``ValueError`` or ``RecursionError`` for what is not JSON."""
        return self._require_storable(super().parse_body(request))

    def parse_querydict(self, data: Any, list_fields: list[str], request: HttpRequest) -> dict[str, Any]:
        """The fields of a form or a query. Raises ``ValidationError``."""
        return self._require_storable(super().parse_querydict(data, list_fields, request))

    def _require_storable(self, found: dict[str, Any]) -> dict[str, Any]:
        if (place := unstorable(found)) is not None:
            text = _("A text contains characters that cannot be stored (NUL or half a surrogate pair).")
            raise FieldError({place or "__all__": text})
        return found


api = DocumentedAPI(
    title="Tiltyard",
    version="1",
    description=DESCRIPTION,
    urls_namespace="api",
    auth=[Token(), Session()],
    docs=Swagger(),
    docs_url=None,
    openapi_url=None,
    renderer=StrictJson(),
    parser=StorableText(),
)


def in_its_shape(view: Callable[..., Any]) -> Callable[..., HttpResponseBase]:
    """Send what an operation returns (rows, dataclasses, dictionaries) in the shape that its schema declares."""

    @functools.wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return as_response(request, view, view(request, *args, **kwargs))

    return answer


def as_response(request: HttpRequest, view: Callable[..., Any], made: Any) -> HttpResponseBase:
    """The response with what the operation ``view`` returned."""
    if isinstance(made, HttpResponseBase):
        return made
    if isinstance(made, Tagged):
        response = as_response(request, view, made.shown)
        response["ETag"] = etag_of(made.written)
        return response
    status, body = (made.status_code, made.value) if isinstance(made, Status) else (200, made)
    return api.create_response(request, in_shape(_shape_of(view, status), body), status=status)


def _shape_of(view: Callable[..., Any], status: int) -> Any:
    """The answer that the operation declares for this status."""
    models = view._ninja_operation.response_models  # type: ignore[attr-defined]
    return models[status].model_fields["response"].annotation


api.add_decorator(in_its_shape)


def caller(request: HttpRequest) -> User:
    """The person who calls; authentication has run before every operation."""
    return cast(User, request.user)


def failed(request: HttpRequest, status: int, message: str = "", detail: Any = None, code: str = "") -> HttpResponse:
    """An answer in the one error shape."""
    return JsonResponse(error_body(request, code or CODES.get(status, "internal"), message, detail), status=status)


@api.exception_handler(AuthenticationError)
def _answer_anonymous(request: HttpRequest, _exc: Exception) -> HttpResponse:
    """The 401 without a valid login. For an ended token it says what ended it, so that the script's owner can act."""
    why = token_ended(bearer(request))
    if why:
        return failed(request, 401, _("This API token has ended: %(why)s.") % {"why": why})
    return _answer_unknown(request)


@api.exception_handler(HttpError)
def _answer_http_error(request: HttpRequest, exc: HttpError) -> HttpResponse:
    if exc.status_code == 400 and isinstance(exc.__cause__, FieldError):  # of our parser, whose errors ninja wraps
        return _answer_field_error(request, exc.__cause__)
    return failed(request, exc.status_code, str(exc))


@api.exception_handler(Http404)
def _answer_missing(request: HttpRequest, _exc: Exception) -> HttpResponse:
    return failed(request, 404)


@api.exception_handler(PermissionDenied)
def _answer_denied(request: HttpRequest, exc: Exception) -> HttpResponse:
    return failed(request, 403, str(exc))


@api.exception_handler(ConfirmFirst)
def _answer_unconfirmed(request: HttpRequest, exc: ConfirmFirst) -> HttpResponse:
    return failed(request, 403, exc.sentence, [{"path": "", "message": reverse("confirm")}], "confirm_first")


@api.exception_handler(RequestDataTooBig)
def _too_big(request: HttpRequest, _exc: Exception) -> HttpResponse:
    return failed(request, 413)


@api.exception_handler(MultiPartParserError)
def _no_form(request: HttpRequest, exc: Exception) -> HttpResponse:
    """A form with files that cannot be read: no boundary, or a part that ends early."""
    return failed(request, 400, str(exc))


@api.exception_handler(SuspiciousOperation)
def _answer_suspicious(request: HttpRequest, _exc: Exception) -> HttpResponse:
    return failed(request, 400)


@api.exception_handler(RequestError)
def _answer_request_error(request: HttpRequest, exc: RequestError) -> HttpResponse:
    detail = [{"path": ".".join(str(part) for part in error["loc"]), "message": error["msg"]} for error in exc.errors]
    return failed(request, 422, detail=detail)


@api.exception_handler(ShapeError)
def _answer_shape_error(request: HttpRequest, exc: ShapeError) -> HttpResponse:
    errors = exc.errors(include_url=False, include_input=False)[:50]
    sentence = config_sentence if exc.title == JobConfig.__name__ else complaint_of
    detail = [{"path": option_of(error), "message": str(sentence(error))} for error in errors]
    return failed(request, 422, detail=detail)


@api.exception_handler(FieldError)
def _answer_field_error(request: HttpRequest, exc: FieldError) -> HttpResponse:
    code = getattr(exc, "code", "")
    fields = errors_by_field(exc)
    detail = [
        {"path": "" if name == "__all__" else name, "message": text} for name, all in fields.items() for text in all
    ]
    return failed(request, {"conflict": 409, "too_large": 413}.get(code or "", 422), detail[0]["message"], detail)


@api.exception_handler(TooMany)
def _too_many(request: HttpRequest, exc: TooMany) -> HttpResponse:
    return too_many(request, exc)


@api.exception_handler(TiltyardError)
def _answer_own_error(request: HttpRequest, exc: TiltyardError) -> HttpResponse:
    path, sentence = (exc.option, exc.sentence) if isinstance(exc, ConfigError) else ("", exc.message)
    return failed(request, 422, exc.message, [{"path": path, "message": sentence, "hint": exc.hint}], exc.code)


@api.exception_handler(Exception)
def _answer_unexpected(request: HttpRequest, exc: Exception) -> HttpResponse:
    if outage(exc):
        return server_error(request, exc)
    logger.exception("api request failed")
    return failed(request, 500)


def shaped(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Give the one error shape to answers that come from around the operations: a wrong method, a bad body."""

    @functools.wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        if response.status_code < 400 or _is_shaped(response):
            return response
        fresh = failed(request, response.status_code)
        if "Allow" in response.headers:
            fresh["Allow"] = response["Allow"]
        return fresh

    return answer


def _is_shaped(response: HttpResponseBase) -> bool:
    try:
        return "request_id" in json.loads(cast(HttpResponse, response).content)
    except (ValueError, TypeError, AttributeError):
        return False


@csrf_exempt  # it changes nothing, so a request forged by another site does no harm
def not_found(request: HttpRequest) -> HttpResponse:
    """Any other address under the API: 404 for callers with a session or a valid token, else 401."""
    known = request.user.is_authenticated or token_user(bearer(request), client_address(request)) is not None
    return failed(request, 404) if known else _answer_unknown(request)


def _answer_unknown(request: HttpRequest) -> HttpResponse:
    """The 401 without a login, or with a token that never was; 429 after too many guesses from an address."""
    text = bearer(request)
    wait_s = token_wait_s(client_address(request)) if text and not token_was_there(text) else 0.0
    if wait_s:
        return too_many(request, TooMany(_("Too many unknown API tokens from this address."), wait_s=math.ceil(wait_s)))
    return failed(request, 401)


# --- Conditional ----------------------------------------------------------------------------------------------------
# Writes that happen only if no other write came between: ``ETag`` of what people write, ``If-Match`` before it.
#
# The tag is that of what people write on a thing (tags, notes, rules), not of its whole answer: a run at work changes
# with each step, and its notes do not. It says whether a write may happen, and nothing about caches.

M = TypeVar("M", bound=Model)
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", max_length=1000, description="write only if the ETag that was read still holds, else 412"),
]


def etag_of(written: Any) -> str:
    """The tag of people's texts, as plain data."""
    text = json.dumps(written, sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


class Tagged(NamedTuple):
    """An answer with the tag of its texts."""

    shown: Any
    written: Any


def held(item: M) -> M:
    """The row as it is now, locked until the transaction ends: no other write comes between this read and the write."""
    return type(item)._default_manager.select_for_update(no_key=True).filter(pk=item.pk)[0]


def require_match(if_match: str | None, written: Any) -> None:
    """Raise 412 where the row was written since ``if_match`` was read."""
    if if_match is None or if_match.strip() == "*":
        return
    if etag_of(written) not in [tag.strip() for tag in if_match.split(",")]:
        raise HttpError(412, "")
