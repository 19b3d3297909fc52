"""Addresses of environments."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.environments import views

urlpatterns: list[URLPattern] = [
    path("", views.environment_list, name="environment-list"),
    path("new/", views.environment_new, name="environment-new"),
    path("<uuid:pk>/check/", views.environment_recheck, name="environment-check"),
    path("<uuid:pk>/delete/", views.environment_remove, name="environment-delete"),
]
