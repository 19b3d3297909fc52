"""Addresses of rewound rollouts."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.rewinding import views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/rewind/", views.rollout_rewind, name="rollout-rewind"),
]
