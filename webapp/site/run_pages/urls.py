"""Addresses of runs."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from webapp.foreign import export_views, figure_views
from webapp.reading.urls import run_urlpatterns as reading
from webapp.site.run_pages import held_out, list_views, views

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("webapp.launch.urls")),
    path("", include("webapp.foreign.urls")),
    path("", list_views.run_list_page, name="run-list"),
    path("columns/", list_views.run_columns, name="run-columns"),
    path("tag/", list_views.runs_tag, name="run-tag"),
    path("archive/", list_views.runs_archive, name="run-archive"),
    path("runs.csv", list_views.runs_csv, name="run-csv"),
    path("<uuid:pk>/star/", list_views.run_star, name="run-star"),
    path("<uuid:pk>/label/", list_views.run_label, name="run-label"),
    path("<uuid:pk>/", views.run_detail, name="run-detail"),
    path("<uuid:pk>/held-out/", held_out.run_held_out, name="run-held-out"),
    path("<uuid:pk>/held-out/<int:step>/", held_out.run_held_out_step, name="run-held-out-step"),
    path("<uuid:pk>/bfcl-scores.zip", views.run_score_files, name="run-score-files"),
    path("<uuid:pk>/curves.csv", views.run_curves_csv, name="run-curves-csv"),
    path("<uuid:pk>/parts/", views.run_parts, name="run-parts"),
    path("<uuid:pk>/advisories/", views.run_advisories, name="run-advisories"),
    path("<uuid:pk>/spend/", views.run_spending, name="run-spend"),
    path("<uuid:pk>/times/", views.run_times, name="run-times"),
    path("<uuid:pk>/stop/", views.run_stop_view, name="run-stop"),
    path("<uuid:pk>/pause/", views.run_pause_view, name="run-pause"),
    path("<uuid:pk>/resume/", views.run_resume_view, name="run-resume"),
    path("<uuid:pk>/log/", views.run_log, name="run-log"),
    path("<uuid:pk>/log/older/", views.run_log_older, name="run-log-older"),
    path("<uuid:pk>/log/output/", views.run_output, name="run-output"),
    path("<uuid:pk>/pairs/", views.run_pairs, name="run-pairs"),
    path("<uuid:pk>/config/", views.run_config, name="run-config"),
    path("<uuid:pk>/verl/", export_views.run_verl, name="run-verl"),
    path("<uuid:pk>/export/", figure_views.metrics_page, name="run-export"),
    path("<uuid:pk>/exports/", figure_views.metrics_list, name="run-exports"),
    path("<uuid:pk>/exports/<uuid:file_id>/", figure_views.metrics_file, name="run-export-file"),
    path("<uuid:pk>/events/", views.run_events, name="run-events"),
    *reading,
]
