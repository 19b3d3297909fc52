"""Shared code of pages that take files: the limit while a file arrives, and answers with or without a script."""

from __future__ import annotations

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from webapp.common.errors import error_body
from webapp.common.upload_handlers import OVERHEAD_BYTES, CountingUploadHandler


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
