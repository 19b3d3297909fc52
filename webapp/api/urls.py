"""Addresses of the API. Every answer that is an error has the one shape, also for addresses that do not exist."""

from __future__ import annotations

from functools import cache

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, re_path

from webapp.api import removal  # noqa: F401 - it adds to the routers below
from webapp.api.base import api, not_found, shaped
from webapp.api.chats import router as chats
from webapp.api.comparisons import router as comparisons
from webapp.api.comparisons import saved as saved_comparisons
from webapp.api.endpoints import router as endpoints
from webapp.api.machines import router as machines
from webapp.api.model_pages import router as models
from webapp.api.notifications import router as notifications
from webapp.api.objects import router as objects
from webapp.api.project_settings import router as project_settings
from webapp.api.projects import of_caller
from webapp.api.reading import groups as run_groups
from webapp.api.reading import router as reading
from webapp.api.reference import Constant, constant, constant_answer, docs_answer, openapi_schema
from webapp.api.rollouts import router as rollouts
from webapp.api.run_files import router as run_files
from webapp.api.run_launch import router as run_launch
from webapp.api.runs import router as runs
from webapp.api.suites import router as suites
from webapp.api.sweeps import router as sweeps
from webapp.api.votes import router as votes
from webapp.api.workers import router as workers
from webapp.common.errors import error_body


def docs(request: HttpRequest) -> HttpResponseBase:
    """The schema as a page, for authors of scripts; like the schema it shows nothing of what is stored here."""
    if request.method not in ("GET", "HEAD"):
        return _only_read(request)
    return docs_answer(request)


def openapi(request: HttpRequest) -> HttpResponseBase:
    """The schema of the API, for client generators. It shows nothing of what is stored here, so it needs no login."""
    if request.method not in ("GET", "HEAD"):
        return _only_read(request)
    return constant_answer(request, schema_json(), cache_control="public, max-age=300")


def _only_read(request: HttpRequest) -> HttpResponse:
    return JsonResponse(error_body(request, "method_not_allowed"), status=405, headers={"Allow": "GET, HEAD"})


@cache
def schema_json() -> Constant:
    """The schema as JSON."""
    return constant(JsonResponse(openapi_schema()).content, "application/json")


def _api_patterns() -> list[URLPattern]:
    """The operations, each wrapped so that a wrong method answers in the one shape too."""
    api.add_router("", of_caller)
    api.add_router("", runs)
    api.add_router("", reading)
    api.add_router("", run_groups)
    api.add_router("", run_launch)
    api.add_router("", machines)
    api.add_router("", project_settings)
    api.add_router("", rollouts)
    api.add_router("", run_files)
    api.add_router("", comparisons)
    api.add_router("", suites)
    api.add_router("", sweeps)
    api.add_router("", saved_comparisons)
    api.add_router("", endpoints)
    api.add_router("", votes)
    api.add_router("", chats)
    api.add_router("", objects)
    api.add_router("", models)
    api.add_router("", notifications)
    api.add_router("", workers)
    found = []
    for item in api.urls[0]:
        if isinstance(item, URLPattern) and item.name != "api-root":
            item.callback = shaped(item.callback)
            found.append(item)
    return found


urlpatterns: list[URLPattern] = [
    path("openapi.json", openapi, name="api-openapi"),
    path("docs", docs, name="api-docs"),
    *_api_patterns(),
    re_path("^", not_found, name="api-not-found"),  # everything else, line breaks included
]
