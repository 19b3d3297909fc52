"""Addresses of launching; the runs app includes them before its own."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.runs import launch_views

urlpatterns: list[URLPattern] = [
    path("new/", launch_views.run_new, name="run-new"),
    path("new/preflight/", launch_views.run_preflight, name="run-preflight"),
    path("new/needs/", launch_views.run_needs, name="run-needs"),
    path("new/yaml/", launch_views.run_yaml, name="run-yaml"),
]
