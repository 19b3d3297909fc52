"""Addresses that open without an account. The secret is the whole permission."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.evaluation.sharing import public_views

urlpatterns: list[URLPattern] = [
    path("<str:secret>/", public_views.shared_page, name="shared"),
    path("<str:secret>/report.html", public_views.shared_file, name="shared-file"),
]
