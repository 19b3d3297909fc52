"""Addresses of comparisons, suites, sweeps and vote rounds, below a project; and those that a link opens without an
account."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from webapp.evaluation.comparison import rewards as rescorings
from webapp.evaluation.comparison import views as comparison
from webapp.evaluation.sharing import views as sharing
from webapp.evaluation.suites import views as suites
from webapp.evaluation.sweeps import views as sweeps
from webapp.evaluation.votes import views as votes
from webapp.launch import sweep_views

compare_urlpatterns: list[URLPattern] = [
    path("", comparison.compare_page, name="compare"),
    path("rescore/", rescorings.compare_rescore, name="compare-rescore"),
    path("rescorings/<uuid:pk>/progress/", rescorings.rescoring_progress, name="compare-rescoring"),
    path("rescorings/<uuid:pk>/cancel/", rescorings.rescoring_end, name="compare-rescoring-cancel"),
    path("report.html", comparison.compare_report, name="compare-report"),
    path("figures.csv", comparison.compare_csv, {"table": "figures"}, name="compare-figures-csv"),
    path("tasks.csv", comparison.compare_csv, {"table": "tasks"}, name="compare-tasks-csv"),
    path("tasks/<int:task>/", comparison.compare_task, name="compare-task"),
    path("saved/new/", sharing.comparison_new, name="compare-save"),
    path("saved/<uuid:pk>/", sharing.comparison_page, name="compare-saved"),
    path("saved/<uuid:pk>/rename/", sharing.comparison_rename, name="compare-rename"),
    path("saved/<uuid:pk>/delete/", sharing.comparison_delete, name="compare-delete"),
    path("saved/<uuid:pk>/comments/", sharing.comment_new, name="compare-comment"),
    path("saved/<uuid:pk>/links/", sharing.link_list, name="compare-links"),
    path("comments/<uuid:pk>/edit/", sharing.comment_edit, name="compare-comment-edit"),
    path("comments/<uuid:pk>/delete/", sharing.comment_delete, name="compare-comment-delete"),
    path("links/<uuid:pk>/revoke/", sharing.link_revoke_now, name="compare-link-revoke"),
]
suite_urlpatterns: list[URLPattern] = [
    path("", suites.suite_list, name="suite-list"),
    path("new/", suites.suite_new, name="suite-new"),
    path("<uuid:pk>/", suites.suite_detail, name="suite-detail"),
    path("<uuid:pk>/edit/", suites.suite_edit, name="suite-edit"),
    path("<uuid:pk>/evaluate/", suites.suite_evaluate_view, name="suite-evaluate"),
    path("<uuid:pk>/delete/", suites.suite_delete_view, name="suite-delete"),
]
sweep_urlpatterns: list[URLPattern] = [
    path("", sweeps.sweep_list, name="sweep-list"),
    path("new/", sweep_views.sweep_new, name="sweep-new"),
    path("plan/", sweep_views.sweep_plan, name="sweep-plan"),
    path("<uuid:pk>/", sweeps.sweep_detail, name="sweep-detail"),
    path("<uuid:pk>/delete/", sweeps.sweep_remove, name="sweep-delete"),
    path("<uuid:pk>/delete/runs/", sweeps.sweep_remove_all, name="sweep-delete-runs"),
]
vote_urlpatterns: list[URLPattern] = [
    path("", votes.vote_rounds, name="vote-rounds"),
    path("new/", votes.vote_round_new, name="vote-round-new"),
    path("<uuid:pk>/", votes.vote_round, name="vote-round"),
    path("<uuid:pk>/vote/", votes.vote, name="vote"),
    path("<uuid:pk>/undo/", votes.vote_undo, name="vote-undo"),
    path("<uuid:pk>/close/", votes.vote_round_close, name="vote-round-close"),
    path("<uuid:pk>/reopen/", votes.vote_round_reopen, name="vote-round-reopen"),
    path("<uuid:pk>/delete/", votes.vote_round_delete, name="vote-round-delete"),
]
urlpatterns: list[URLResolver] = [
    path("compare/", include(compare_urlpatterns)),
    path("suites/", include(suite_urlpatterns)),
    path("sweeps/", include(sweep_urlpatterns)),
    path("votes/", include(vote_urlpatterns)),
]

# The secret is the whole permission.
public_urlpatterns: list[URLPattern] = [
    path("<str:secret>/", sharing.shared_page, name="shared"),
    path("<str:secret>/report.html", sharing.shared_file, name="shared-file"),
]
