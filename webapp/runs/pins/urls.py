"""Addresses of pinned charts."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.runs.pins import views

urlpatterns: list[URLPattern] = [path("<uuid:pk>/remove/", views.pin_remove, name="pin-remove")]
