"""Addresses of operations, below those of datasets."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.datasets.operations import views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/make/<slug:operation>/", views.operation_new, name="dataset-make"),
    path("<uuid:pk>/count/", views.filter_count, name="dataset-count"),
    path("<uuid:pk>/export/", views.export_page, name="dataset-export"),
    path("<uuid:pk>/exports/", views.export_list, name="dataset-exports"),
    path("<uuid:pk>/exports/<uuid:export_id>/", views.export_file, name="dataset-export-file"),
]
