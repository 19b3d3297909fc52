"""Addresses of datasets."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.datasets import operation_views, views

urlpatterns: list[URLPattern] = [
    path("", views.dataset_list, name="dataset-list"),
    path("new/", views.dataset_new, name="dataset-new"),
    path("<uuid:pk>/", views.dataset_detail, name="dataset-detail"),
    path("<uuid:pk>/rows/<int:number>/", views.dataset_row, name="dataset-row"),
    path("<uuid:pk>/progress/", views.dataset_progress, name="dataset-progress"),
    path("<uuid:pk>/keep/", views.dataset_keep, name="dataset-keep"),
    path("<uuid:pk>/delete/", views.dataset_remove, name="dataset-delete"),
    # Other datasets made of it, and files to download.
    path("<uuid:pk>/make/<slug:operation>/", operation_views.operation_new, name="dataset-make"),
    path("<uuid:pk>/count/", operation_views.filter_count, name="dataset-count"),
    path("<uuid:pk>/export/", operation_views.export_page, name="dataset-export"),
    path("<uuid:pk>/exports/", operation_views.export_list, name="dataset-exports"),
    path("<uuid:pk>/exports/<uuid:export_id>/", operation_views.export_file, name="dataset-export-file"),
    # Reading a file differently, its quality and its bad rows.
    path("<uuid:pk>/read/", views.dataset_read, name="dataset-read"),
    path("<uuid:pk>/read/preview/", views.dataset_read_preview, name="dataset-read-preview"),
    path("<uuid:pk>/quality/", views.dataset_quality, name="dataset-quality"),
    path("<uuid:pk>/findings/", views.dataset_findings, name="dataset-findings"),
    path("<uuid:pk>/findings.csv", views.dataset_findings_csv, name="dataset-findings-csv"),
]
