"""Addresses of workers."""

from __future__ import annotations

from django.urls import path

from webapp.site.home import worker_views as views

urlpatterns = [path("", views.worker_list, name="worker-list")]
