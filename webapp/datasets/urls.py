"""Addresses of datasets."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.datasets import views
from webapp.datasets.operations.urls import urlpatterns as operations
from webapp.datasets.reading_urls import urlpatterns as reading

urlpatterns: list[URLPattern] = [
    path("", views.dataset_list, name="dataset-list"),
    path("new/", views.dataset_new, name="dataset-new"),
    path("<uuid:pk>/", views.dataset_detail, name="dataset-detail"),
    path("<uuid:pk>/rows/<int:number>/", views.dataset_row, name="dataset-row"),
    path("<uuid:pk>/progress/", views.dataset_progress, name="dataset-progress"),
    path("<uuid:pk>/keep/", views.dataset_keep, name="dataset-keep"),
    path("<uuid:pk>/delete/", views.dataset_remove, name="dataset-delete"),
    *operations,
    *reading,
]
