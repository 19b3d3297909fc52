"""All addresses. Each app keeps its own under the project it belongs to."""

from __future__ import annotations

from django.urls import include, path

from webapp.evaluation.urls import public_urlpatterns
from webapp.launch.urls import reward_urlpatterns
from webapp.runs.removal import views as removals

handler500 = "webapp.common.errors.server_error"
urlpatterns = [
    path("", include("webapp.site.urls")),
    path("", include("webapp.people.teams.urls")),
    path("api/v1/", include("webapp.api.urls")),
    path("p/<slug:slug>/rollouts/", include("webapp.reading.urls")),
    path("p/<slug:slug>/datasets/", include("webapp.datasets.urls")),
    path("p/<slug:slug>/rewards/", include("webapp.rewards.urls")),
    path("p/<slug:slug>/rewards/", include(reward_urlpatterns)),
    path("p/<slug:slug>/environments/", include("webapp.environments.urls")),
    path("p/<slug:slug>/endpoints/", include("webapp.endpoints.urls")),
    path("p/<slug:slug>/", include("webapp.evaluation.urls")),
    path("s/", include(public_urlpatterns)),
    path("p/<slug:slug>/chats/", include("webapp.chat.urls")),
    path("p/<slug:slug>/", include("webapp.runs.urls")),
    path("p/<slug:slug>/models/", include("webapp.results.urls")),
    path("deletions/<uuid:pk>/retry/", removals.removal_again, name="removal-retry"),
    path("teams/<uuid:pk>/delete/", removals.team_delete, name="team-delete"),
    path("account/delete/", removals.account_delete, name="account-delete"),
    path("site/people/<uuid:pk>/delete/", removals.person_delete_page, name="person-delete"),
]
