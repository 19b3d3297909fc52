"""Shared code of pages that take files: the limit while a file arrives, and answers with or without a script."""

from __future__ import annotations

from django import forms
from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from webapp.common.errors import error_body

# --- Upload handlers ------------------------------------------------------------------------------------------------
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
