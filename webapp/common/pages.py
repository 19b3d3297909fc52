"""Small parts that pages of several apps share, and those of pages that take files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.cache import cache
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from training.plain import number_in
from webapp.common.errors import error_body
from webapp.common.ids import name_validator

PROBES_PER_MINUTE = 20
PROBES_WINDOW_S = 60
MAX_PAGE = 10_000
_NO_OBJECT = UUID(int=0)


def clean_name(name: str) -> str:
    """The name of an object without white space around it. Raises ``ValidationError`` for the field ``name``."""
    name = name.strip()
    try:
        name_validator(name)
    except ValidationError as exc:
        raise ValidationError({"name": exc.messages}) from exc
    return name


def add_errors(form: forms.Form, exc: ValidationError) -> None:
    """Put a service's errors next to the fields they belong to; those without a field are shown above the form."""
    by_field = exc.error_dict if hasattr(exc, "error_dict") else {NON_FIELD_ERRORS: exc.error_list}
    for name, errors in by_field.items():
        for error in errors:
            form.add_error(name if name in form.fields else None, error)


def errors_by_field(exc: ValidationError) -> dict[str, list[str]]:
    """A service's errors as plain data."""
    if hasattr(exc, "error_dict"):
        return dict(exc.message_dict)
    return {NON_FIELD_ERRORS: list(exc.messages)}


def probe_allowed(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Whether a person may have us send one more request now; counted for each minute."""
    key = f"probes:{user.pk}"
    cache.add(key, 0, timeout=PROBES_WINDOW_S)
    try:
        return int(cache.incr(key)) <= PROBES_PER_MINUTE
    except ValueError:  # the minute ended between the two calls
        return True


def bearer(request: HttpRequest) -> str:
    """The text of the token that the request came with; empty where there is none."""
    scheme, _space, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def client_address(request: HttpRequest) -> str:
    """The address that the request came from, behind a trusted proxy the one that the proxy names."""
    return str(request.META.get("REMOTE_ADDR", ""))


def page_number(raw: Any) -> int:
    """A page number from a query string; anything else is the first page."""
    return min(MAX_PAGE, max(1, number_in(str(raw or ""), 8) or 1))


def own_address(request: HttpRequest, asked: str, otherwise: str) -> str:
    """The address that a request wants to be redirected to, if it is one of ours, else ``otherwise``."""
    ours = url_has_allowed_host_and_scheme(asked, {request.get_host()}, require_https=request.is_secure())
    return asked if ours and "/" in asked else otherwise  # without one Django's `redirect` takes it for a view's name


def url_or_none(url_name: str, *args: Any) -> str | None:
    """An address, or ``None`` where no such page exists."""
    try:
        return reverse(url_name, args=args)
    except NoReverseMatch:
        return None


def addresses_of(url_name: str, *args: Any) -> Callable[[UUID | str], str]:
    """The addresses of a list's objects by the last part that varies, an id or a slug: looked up once, not for each."""
    before, _part, after = reverse(url_name, args=[*args, _NO_OBJECT]).rpartition(str(_NO_OBJECT))
    return lambda part: f"{before}{part}{after}"


def newest_only(listed: int, most: int) -> str:
    """The note of a list of choices that leaves older ones out; empty where it has all."""
    return _("The newest %(n)d are listed.") % {"n": most} if listed >= most else ""


# Shared code of pages that take files: the limit while a file arrives, and answers with or without a script.

# Counting what is uploaded, file by file.
#
# ``webapp.people.body_limit`` refuses a body before it is read; this says the same to WSGI servers and tests, and
# counts files rather than bodies.

OVERHEAD_BYTES = 64 * 1024  # boundaries and the other fields of the form


class CountingUploadHandler(FileUploadHandler):
    """Counts what arrives over all files; goes first in the list and passes the bytes on.

    The request is cut off at the chunk that crosses the limit; ``request.upload_too_large`` says so to the view.
    """

    def __init__(self, request: HttpRequest, limit: int) -> None:
        super().__init__(request)
        self.limit = limit
        self.count = 0

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """Count and pass on."""
        self.count += len(raw_data)
        if self.count > self.limit:
            self.request.upload_too_large = True  # type: ignore[union-attr]
            raise StopUpload(connection_reset=True)
        return raw_data

    def file_complete(self, file_size: int) -> UploadedFile | None:
        """Leave the making of the file to the next handler."""
        return None


def upload_count(request: HttpRequest) -> bool:
    """Count what arrives, before anything reads the form; ``False`` when it is known to be too large already."""
    if int(request.META.get("CONTENT_LENGTH") or 0) > settings.MAX_UPLOAD_BYTES + OVERHEAD_BYTES:
        return False
    request.upload_handlers.insert(0, CountingUploadHandler(request, settings.MAX_UPLOAD_BYTES))
    return True


def wants_json(request: HttpRequest) -> bool:
    """Whether a script sent the form."""
    return request.headers.get("Accept", "").startswith("application/json")


def upload_accepted(request: HttpRequest, url: str) -> HttpResponse:
    """Redirect to the page of the new object."""
    return JsonResponse({"ok": True, "url": url}) if wants_json(request) else redirect(url)


def upload_refused(request: HttpRequest, form: forms.Form) -> JsonResponse:
    """The form's errors, for a script."""
    return JsonResponse(error_body(request, "invalid", detail=form.errors.get_json_data()), status=422)


def upload_strings() -> dict[str, str]:
    """The sentences of ``static/js/lib/upload.js``."""
    return {
        "upload.none": _("Choose a file."),
        "upload.moved": _("{done} of {total} · {rate}/s"),
        "upload.storing": _("Everything has arrived and is being stored…"),
        "upload.failed": _("The upload was not accepted. Try again."),
        "upload.broken": _("The connection broke during the upload. Try again."),
    }
