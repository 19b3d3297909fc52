"""Addresses of rollouts."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.rollouts import views

urlpatterns: list[URLPattern] = [path("<uuid:pk>/", views.rollout_detail, name="rollout-detail")]
