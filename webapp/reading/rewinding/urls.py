"""Addresses of rewound rollouts."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.reading.rewinding import branch_views, views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/rewind/", views.rollout_rewind, name="rollout-rewind"),
    path("<uuid:pk>/branches/", branch_views.branch_list, name="branch-list"),
    path("<uuid:pk>/branches/new/", branch_views.branch_continue, name="branch-continue"),
    path("<uuid:pk>/branches/continue/", branch_views.continuation_new, name="continuation-new"),
    path("<uuid:pk>/branches/<uuid:branch_id>/save/", branch_views.branch_save_view, name="branch-save"),
    path("<uuid:pk>/branches/<uuid:branch_id>/delete/", branch_views.branch_delete_view, name="branch-delete"),
]
