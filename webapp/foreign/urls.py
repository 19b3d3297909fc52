"""Addresses of imports; the pages of runs include them before their own."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.foreign import views

urlpatterns: list[URLPattern] = [
    path("imports/new/", views.import_new, name="run-import"),
    path("imports/<uuid:pk>/", views.import_detail, name="run-import-detail"),
    path("imports/<uuid:pk>/progress/", views.import_progress, name="run-import-progress"),
]
