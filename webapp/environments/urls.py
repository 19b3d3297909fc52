"""Addresses of environments."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.environments import views
from webapp.environments.playground import views as playground

urlpatterns: list[URLPattern] = [
    path("", views.environment_list, name="environment-list"),
    path("new/", views.environment_new, name="environment-new"),
    path("<uuid:pk>/", views.environment_detail, name="environment-detail"),
    path("<uuid:pk>/history/", views.environment_history, name="environment-history"),
    path("<uuid:pk>/replicas/<int:number>/log/", views.replica_log_page, name="environment-log"),
    path("<uuid:pk>/check/", views.environment_recheck, name="environment-check"),
    path("<uuid:pk>/scale/", views.environment_scale_view, name="environment-scale"),
    path("<uuid:pk>/restart/", views.environment_restart_view, name="environment-restart"),
    path("<uuid:pk>/delete/", views.environment_remove, name="environment-delete"),
    path("<uuid:pk>/edit/", views.environment_edit, name="environment-edit"),
    path("<uuid:pk>/datasets/", views.order_list, name="environment-orders"),
    path("<uuid:pk>/datasets/new/", views.order_new, name="environment-order"),
    path("<uuid:pk>/play/", playground.playground, name="environment-play"),
    path("<uuid:pk>/play/row/", playground.playground_row, name="environment-play-row"),
]
