"""Addresses that play a reward spec; they lie under rewards."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.launch import play_views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/sample/", play_views.reward_sample, name="reward-sample"),
    path("<uuid:pk>/test-bed/", play_views.reward_testbed, name="reward-testbed"),
]
