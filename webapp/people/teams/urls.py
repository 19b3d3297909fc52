"""Addresses of people, teams and projects."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, path
from django.views.i18n import set_language

from webapp.people.teams import login_views, site_views, token_views, views

urlpatterns: list[URLPattern] = [
    path("login/", login_views.Login.as_view(), name="login"),
    path("login/with/", login_views.SignOn.as_view(), name="sign-on"),
    path("login/with/callback/", login_views.SignOnCallback.as_view(), name="sign-on-callback"),
    path("login/<str:token>/", login_views.login_link, name="login-link"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("password/", login_views.set_password, name="set-password"),
    path("password/forgotten/", login_views.forgotten, name="password-forgotten"),
    path("password/mail/", login_views.set_mail, name="set-mail"),
    path("tokens/", token_views.token_list, name="token-list"),
    path("tokens/<uuid:pk>/revoke/", token_views.token_revoke_now, name="token-revoke"),
    path("confirm/", site_views.confirm_page, name="confirm"),
    path("site/", site_views.site_page, name="site"),
    path("site/custom-rewards/", site_views.switch_custom_rewards, name="site-custom-rewards"),
    path("site/tokens/", token_views.site_tokens, name="site-tokens"),
    path("site/tokens/<uuid:pk>/revoke/", token_views.site_token_revoke, name="site-token-revoke"),
    path("site/people/<uuid:pk>/link/", site_views.person_link, name="person-link"),
    path("site/people/<uuid:pk>/active/", site_views.person_active, name="person-active"),
    path("language/", set_language, name="set-language"),
    path("theme/", login_views.set_theme, name="set-theme"),
    path("projects/new/", views.project_new, name="project-new"),
    path("p/<slug:slug>/settings/", views.team_settings, name="team-settings"),
    path("p/<slug:slug>/settings/hub-token/", views.hub_token_keep, name="hub-token"),
    path("p/<slug:slug>/settings/hub-token/remove/", views.hub_token_forget, name="hub-token-remove"),
    path("p/<slug:slug>/settings/tokens/", token_views.project_tokens, name="team-tokens"),
    path("p/<slug:slug>/settings/tokens/<uuid:pk>/revoke/", token_views.project_token_revoke, name="team-token-revoke"),
    path("p/<slug:slug>/settings/machines/", token_views.machine_list, name="team-machines"),
    path("p/<slug:slug>/settings/machines/<uuid:pk>/end/", token_views.machine_end, name="team-machine-end"),
    path(
        "p/<slug:slug>/settings/machines/<uuid:pk>/tokens/",
        token_views.machine_token_new,
        name="team-machine-token",
    ),
    path(
        "p/<slug:slug>/settings/machines/<uuid:pk>/tokens/<uuid:machine_token>/replace/",
        token_views.machine_token_replace,
        name="team-machine-token-replace",
    ),
    path(
        "p/<slug:slug>/settings/machines/<uuid:pk>/tokens/<uuid:machine_token>/revoke/",
        token_views.machine_token_end,
        name="team-machine-token-revoke",
    ),
    path("p/<slug:slug>/settings/members/", views.member_new, name="member-new"),
    path("p/<slug:slug>/settings/members/<int:pk>/role/", views.member_role, name="member-role"),
    path("p/<slug:slug>/settings/members/<int:pk>/remove/", views.member_remove, name="member-remove"),
    path("p/<slug:slug>/settings/members/<int:pk>/link/", views.member_link, name="member-link"),
    path("p/<slug:slug>/settings/members/<int:pk>/active/", views.member_active, name="member-active"),
]
