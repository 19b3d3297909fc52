"""Addresses of saved comparisons, below those of comparisons; and those that a link opens without an account."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.evaluation.sharing import views

urlpatterns: list[URLPattern] = [
    path("saved/new/", views.comparison_new, name="compare-save"),
    path("saved/<uuid:pk>/", views.comparison_page, name="compare-saved"),
    path("saved/<uuid:pk>/rename/", views.comparison_rename, name="compare-rename"),
    path("saved/<uuid:pk>/delete/", views.comparison_delete, name="compare-delete"),
    path("saved/<uuid:pk>/comments/", views.comment_new, name="compare-comment"),
    path("saved/<uuid:pk>/links/", views.link_list, name="compare-links"),
    path("comments/<uuid:pk>/edit/", views.comment_edit, name="compare-comment-edit"),
    path("comments/<uuid:pk>/delete/", views.comment_delete, name="compare-comment-delete"),
    path("links/<uuid:pk>/revoke/", views.link_revoke_now, name="compare-link-revoke"),
]

# The secret is the whole permission.
public_urlpatterns: list[URLPattern] = [
    path("<str:secret>/", views.shared_page, name="shared"),
    path("<str:secret>/report.html", views.shared_file, name="shared-file"),
]
