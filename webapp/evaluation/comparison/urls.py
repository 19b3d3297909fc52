"""Addresses of comparisons."""

from __future__ import annotations

from django.urls import path

from webapp.evaluation.comparison import rewards, views

urlpatterns = [
    path("", views.compare_page, name="compare"),
    path("rescore/", rewards.compare_rescore, name="compare-rescore"),
    path("rescorings/<uuid:pk>/progress/", rewards.rescoring_progress, name="compare-rescoring"),
    path("rescorings/<uuid:pk>/cancel/", rewards.rescoring_end, name="compare-rescoring-cancel"),
    path("report.html", views.compare_report, name="compare-report"),
    path("figures.csv", views.compare_csv, {"table": "figures"}, name="compare-figures-csv"),
    path("tasks.csv", views.compare_csv, {"table": "tasks"}, name="compare-tasks-csv"),
    path("tasks/<int:task>/", views.compare_task, name="compare-task"),
]
