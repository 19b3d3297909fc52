"""Addresses of rewound rollouts."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.reading.rewinding import views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/rewind/", views.rollout_rewind, name="rollout-rewind"),
    path("<uuid:pk>/branches/", views.branch_list, name="branch-list"),
    path("<uuid:pk>/branches/new/", views.branch_continue, name="branch-continue"),
    path("<uuid:pk>/branches/continue/", views.continuation_new, name="continuation-new"),
    path("<uuid:pk>/branches/<uuid:branch_id>/save/", views.branch_save_view, name="branch-save"),
    path("<uuid:pk>/branches/<uuid:branch_id>/delete/", views.branch_delete_view, name="branch-delete"),
]
