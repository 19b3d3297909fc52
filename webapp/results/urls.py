"""Addresses of one model. Its name comes last: it could be any word."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.results import views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/", views.model_detail, name="model-detail"),
    path("<uuid:pk>/mark/", views.model_mark_view, name="model-mark"),
    path("<uuid:pk>/about/", views.model_about, name="model-about"),
    path("<uuid:pk>/card/", views.model_card, name="model-card"),
    path("<uuid:pk>/push/", views.model_push, name="model-push"),
    path("<str:model_name>/", views.model_named, name="model-named"),
]
