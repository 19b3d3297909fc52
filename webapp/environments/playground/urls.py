"""Addresses of the playground."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.environments.playground import views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/play/", views.playground, name="environment-play"),
    path("<uuid:pk>/play/row/", views.playground_row, name="environment-play-row"),
]
