"""Addresses of launching, which the pages of runs include before their own, and of playing a reward spec."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.launch import memory_views, plan, play_views
from webapp.launch import views as launch_views

urlpatterns: list[URLPattern] = [
    path("new/", launch_views.run_new, name="run-new"),
    path("new/preflight/", launch_views.run_preflight, name="run-preflight"),
    path("new/rendered/", launch_views.run_rendered, name="run-rendered"),
    path("new/rendered/rows/", launch_views.run_rendered_rows, name="run-rendered-rows"),
    path("new/rendered/of-form/", launch_views.run_rendered_of_form, name="run-rendered-of-form"),
    path("new/plan/", plan.run_plan, name="run-plan"),
    path("new/memory/", memory_views.run_memory, name="run-memory"),
    path("new/memory/<uuid:pk>/", memory_views.run_memory_part, name="run-memory-part"),
    path("new/needs/", launch_views.run_needs, name="run-needs"),
    path("new/needs/<uuid:pk>/leave/", launch_views.preparation_leave, name="preparation-leave"),
    path("new/yaml/", launch_views.run_yaml, name="run-yaml"),
    path("<uuid:pk>/launch/", launch_views.run_launch, name="run-launch"),
    path("<uuid:pk>/check/", launch_views.run_check, name="run-check"),
]
# These lie under rewards.
reward_urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/sample/", play_views.reward_sample, name="reward-sample"),
    path("<uuid:pk>/test-bed/", play_views.reward_testbed, name="reward-testbed"),
]
