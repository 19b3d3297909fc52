"""Addresses of vote rounds."""

from __future__ import annotations

from django.urls import path

from webapp.evaluation.votes import views

urlpatterns = [
    path("", views.vote_rounds, name="vote-rounds"),
    path("new/", views.vote_round_new, name="vote-round-new"),
    path("<uuid:pk>/", views.vote_round, name="vote-round"),
    path("<uuid:pk>/vote/", views.vote, name="vote"),
    path("<uuid:pk>/undo/", views.vote_undo, name="vote-undo"),
    path("<uuid:pk>/close/", views.vote_round_close, name="vote-round-close"),
    path("<uuid:pk>/reopen/", views.vote_round_reopen, name="vote-round-reopen"),
    path("<uuid:pk>/delete/", views.vote_round_delete, name="vote-round-delete"),
]
