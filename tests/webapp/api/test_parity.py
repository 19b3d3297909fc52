"""Every act of the browser is an operation of the API, or is listed here with the reason why it is not."""

from __future__ import annotations

import pytest

from tests.security.routes import API, OWN_PK, PROJECT, TABLE, Who
from webapp.api import urls  # noqa: F401 - adds the operations
from webapp.api.base import api

SAFE = {"GET"}
# Signing in and what only a person at a browser has: a session, cookies, a password that is asked for again.
ALONE = {
    "login/": "signs in to a browser; scripts come with a token",
    "login/<str:token>/": "signs in to a browser",
    "logout/": "ends a browser's session",
    "password/": "a token must not change the password that it was made with",
    "password/forgotten/": "for people who cannot sign in",
    "password/mail/": "asks for the password, as password/",
    "account/delete/": "ends the account that the token belongs to: a person does that in a browser",
    "confirm/": "asks for the password again",
    "tokens/": "a token that makes tokens would outlive its own end; asks for the password",
    "tokens/<uuid:pk>/revoke/": "belongs to the page that makes them",
    "language/": "a cookie; the API answers in Accept-Language",
    "theme/": "a cookie of the browser",
    "site/custom-rewards/": "administrators, after the password",
    "site/tokens/<uuid:pk>/revoke/": "administrators; owners have an operation",
    "site/people/<uuid:pk>/link/": "administrators, after the password",
    "site/people/<uuid:pk>/active/": "administrators, after the password",
    "notifications/settings/": "what one person is notified of, set where they read it",
    "notifications/settings/mail/": "tries the settings of that page",
    PROJECT + "runs/columns/": "what one person's own list shows",
}
MEMBERS = PROJECT + "settings/members/"
# A login link opens an account: a token that leaks must not be a way to more than itself.
ALONE |= dict.fromkeys(
    (MEMBERS, *(MEMBERS + "<int:pk>/" + act for act in ("role/", "remove/", "link/", "active/"))),
    "who is in a team is decided by a person: with a leaked token no one shall make accounts or owners",
)
# Parts of a form that is being filled in; the operation that takes the whole does the same checks.
ALONE |= {
    PROJECT + "runs/new/plan/": "multiplies the numbers of a form; the preflight names what is held out and the disk",
    PROJECT + "runs/new/yaml/": "turns a form into text and back",
    PROJECT + "runs/new/rendered/of-form/": "leads from a form to a page; python -m training rendered prints the same",
    PROJECT + "runs/new/needs/": "fills the form of a preset; datasets and environments have operations of their own",
    PROJECT + "runs/new/needs/" + OWN_PK + "leave/": "as runs/new/needs/",
    PROJECT + "datasets/" + OWN_PK + "read/preview/": "shows the first rows next to a form",
    PROJECT + "rewards/lab/": "opens the rewards lab on episodes; a script scores with /try or reads rollouts",
    PROJECT + "rewards/lab/" + OWN_PK + "delete/": "as rewards/lab/",
    PROJECT + "rewards/lab/" + OWN_PK + "score/": "what the lab draws while a person moves weights",
    PROJECT + "rewards/lab/" + OWN_PK + "rollouts/<uuid:rollout>/": "reads one rollout of the lab",
    PROJECT + "rewards/custom/": "code that runs here is tested by its author, on the page that shows its output",
    PROJECT + "rewards/custom/test/": "as rewards/custom/",
    "deletions/<uuid:pk>/retry/": "a deletion whose files could not be removed is shown to owners on their page alone",
}

RUN, DATASET, REWARD = PROJECT + "runs/" + OWN_PK, PROJECT + "datasets/" + OWN_PK, PROJECT + "rewards/" + OWN_PK
ENVIRONMENT, ENDPOINT = PROJECT + "environments/" + OWN_PK, PROJECT + "endpoints/" + OWN_PK
MODEL, SUITE, SAVED = PROJECT + "models/" + OWN_PK, PROJECT + "suites/" + OWN_PK, PROJECT + "compare/saved/" + OWN_PK
SWEEP, ROUND, CHANNEL = (
    PROJECT + "sweeps/" + OWN_PK,
    PROJECT + "votes/" + OWN_PK,
    PROJECT + "settings/channels/" + OWN_PK,
)
IN, MACHINES, IT = "/projects/{slug}/", PROJECT + "settings/machines/", "<uuid:machine_token>"
SAME: dict[str, str] = {
    PROJECT + "settings/tokens/" + OWN_PK + "revoke/": f"DELETE {IN}tokens/{{token_id}}",
    MACHINES: f"POST {IN}machines",
    MACHINES + OWN_PK + "end/": f"DELETE {IN}machines/{{machine_id}}",
    MACHINES + OWN_PK + "tokens/": f"POST {IN}machines/{{machine_id}}/tokens",
    MACHINES + OWN_PK + f"tokens/{IT}/replace/": f"POST {IN}machines/{{machine_id}}/tokens/{{machine_token}}/replace",
    MACHINES + OWN_PK + f"tokens/{IT}/revoke/": f"DELETE {IN}machines/{{machine_id}}/tokens/{{machine_token}}",
    "notifications/read/": "POST /notifications/read",
    "notifications/<int:pk>/read/": "POST /notifications/read",
    "projects/new/": "POST /projects",
    PROJECT + "delete/": "DELETE /projects/{slug}",
    PROJECT + "settings/hub-token/": f"POST {IN}hub-token",
    PROJECT + "settings/hub-token/remove/": f"DELETE {IN}hub-token",
    PROJECT + "settings/doctor/": f"PATCH {IN}doctor",
    PROJECT + "settings/retention/": f"PATCH {IN}retention",
    PROJECT + "settings/channels/": f"POST {IN}channels",
    CHANNEL + "edit/": "PATCH /channels/{channel_id}",
    CHANNEL + "test/": "POST /channels/{channel_id}/test",
    CHANNEL + "resume/": "POST /channels/{channel_id}/resume",
    CHANNEL + "delete/": "DELETE /channels/{channel_id}",
    PROJECT + "runs/new/": f"POST {IN}runs",
    PROJECT + "runs/new/preflight/": f"POST {IN}preflight",
    PROJECT + "runs/new/memory/": f"POST {IN}memory",
    PROJECT + "runs/tag/": f"POST {IN}runs/batch",
    PROJECT + "runs/archive/": f"POST {IN}runs/batch",
    PROJECT + "runs/queue/": f"POST {IN}runs/batch",
    RUN + "label/": "PATCH /runs/{run_id}",
    RUN + "star/": "POST /runs/{run_id}/star",
    PROJECT + "runs/imports/new/": f"POST {IN}runs/import",
    RUN + "export/": "POST /runs/{run_id}/exports",
    RUN + "pairs/": "POST /runs/{run_id}/pairs",
    RUN + "rollouts/save/": "POST /runs/{run_id}/rollouts/save",
    PROJECT + "rollouts/save/": f"POST {IN}rollouts/save",
    PROJECT + "pins/" + OWN_PK + "remove/": "DELETE /pins/{pin_id}",
    PROJECT + "rollouts/views/" + OWN_PK + "delete/": "DELETE /rollout-views/{view_id}",
    RUN + "delete/": "DELETE /runs/{run_id}",
    RUN + "queue/": "PATCH /runs/{run_id}/queue",
    "usage/limit/": "POST /limits",
    "workers/drain/": "POST /workers/drain",
    **{RUN + f"{act}/": f"POST /runs/{{run_id}}/{act}" for act in ("launch", "stop", "pause", "resume")},
    PROJECT + "datasets/new/": f"POST {IN}datasets",
    DATASET + "delete/": "DELETE /datasets/{dataset_id}",
    DATASET + "make/<slug:operation>/": "POST /datasets/{dataset_id}/make",
    DATASET + "export/": "POST /datasets/{dataset_id}/exports",
    **{DATASET + f"{act}/": f"POST /datasets/{{dataset_id}}/{act}" for act in ("keep", "read")},
    PROJECT + "suites/new/": f"POST {IN}suites",
    PROJECT + "sweeps/new/": f"POST {IN}sweeps",
    PROJECT + "sweeps/plan/": f"POST {IN}sweeps/plan",
    SWEEP + "delete/": "DELETE /sweeps/{sweep_id}",
    SWEEP + "delete/runs/": "DELETE /sweeps/{sweep_id}",
    SUITE + "edit/": f"POST {IN}suites",
    SUITE + "evaluate/": "POST /suites/{suite_id}/evaluations",
    SUITE + "delete/": "DELETE /suites/{suite_id}",
    PROJECT + "rewards/new/": f"POST {IN}rewards",
    PROJECT + "rewards/lab/save/": f"POST {IN}rewards",
    REWARD + "edit/": f"POST {IN}rewards",
    REWARD + "sample/": f"POST {IN}runs",
    REWARD + "test-bed/": f"POST {IN}runs",
    REWARD + "try/": "POST /rewards/{spec_id}/try",
    REWARD + "delete/": "DELETE /rewards/{spec_id}",
    PROJECT + "rewards/cases/" + OWN_PK + "delete/": "DELETE /reward-cases/{case_id}",
    PROJECT + "rollouts/" + OWN_PK + "end/": "POST /rollouts/{rollout_id}/end",
    PROJECT + "rollouts/" + OWN_PK + "fail/": "POST /rollouts/{rollout_id}/fail",
    PROJECT + "rollouts/" + OWN_PK + "case/": "POST /rollouts/{rollout_id}/case",
    PROJECT + "rollouts/" + OWN_PK + "branches/new/": "POST /rollouts/{rollout_id}/branches",
    PROJECT + "rollouts/" + OWN_PK + "branches/continue/": "POST /rollouts/{rollout_id}/continue",
    PROJECT + "rollouts/" + OWN_PK + "branches/<uuid:branch_id>/save/": "POST /branches/{branch_id}/save",
    PROJECT + "rollouts/" + OWN_PK + "branches/<uuid:branch_id>/delete/": "DELETE /branches/{branch_id}",
    PROJECT + "environments/new/": f"POST {IN}environments",
    ENVIRONMENT + "edit/": "PATCH /environments/{environment_id}",
    ENVIRONMENT + "delete/": "DELETE /environments/{environment_id}",
    ENVIRONMENT + "datasets/new/": "POST /environments/{environment_id}/dataset-orders",
    **{
        ENVIRONMENT + f"{act}/": f"POST /environments/{{environment_id}}/{act}" for act in ("check", "scale", "restart")
    },
    PROJECT + "endpoints/new/": f"POST {IN}endpoints",
    ENDPOINT + "edit/": "PATCH /endpoints/{endpoint_id}",
    ENDPOINT + "test/": "POST /endpoints/{endpoint_id}/test",
    ENDPOINT + "delete/": "DELETE /endpoints/{endpoint_id}",
    PROJECT + "compare/rescore/": f"POST {IN}compare/rescore",
    PROJECT + "compare/rescorings/" + OWN_PK + "cancel/": "POST /rescorings/{rescoring_id}/cancel",
    PROJECT + "compare/saved/new/": f"POST {IN}comparisons",
    SAVED + "rename/": "PATCH /comparisons/{comparison_id}",
    SAVED + "delete/": "DELETE /comparisons/{comparison_id}",
    SAVED + "comments/": "POST /comparisons/{comparison_id}/comments",
    SAVED + "links/": "POST /comparisons/{comparison_id}/links",
    PROJECT + "compare/comments/" + OWN_PK + "edit/": "PATCH /comments/{comment_id}",
    PROJECT + "compare/comments/" + OWN_PK + "delete/": "DELETE /comments/{comment_id}",
    PROJECT + "compare/links/" + OWN_PK + "revoke/": "DELETE /shared-links/{link_id}",
    PROJECT + "votes/new/": f"POST {IN}vote-rounds",
    ROUND + "vote/": "POST /vote-rounds/{round_id}/ballots/{ballot_id}/vote",
    ROUND + "delete/": "DELETE /vote-rounds/{round_id}",
    **{ROUND + f"{act}/": f"POST /vote-rounds/{{round_id}}/{act}" for act in ("undo", "close", "reopen")},
    PROJECT + "chats/new/": f"POST {IN}chats",
    PROJECT + "chats/" + OWN_PK + "delete/": "DELETE /chats/{chat_id}",
    PROJECT + "models/new/": f"POST {IN}models",
    MODEL + "push/": "POST /models/{model_id}/pushes",
    MODEL + "delete/": "DELETE /models/{model_id}",
    **{MODEL + f"{part}/": "PATCH /models/{model_id}" for part in ("mark", "about", "card")},
    PROJECT + "models/checkpoints/" + OWN_PK + "delete/": "DELETE /checkpoints/{checkpoint_id}",
    "teams/" + OWN_PK + "delete/": "DELETE /teams/{team_id}",
    "site/people/" + OWN_PK + "delete/": "DELETE /people/{person_id}",
}
# One notification is its person's; over the API only one's own can be named. A sweep's operation asks for more where
# its runs are deleted too: tests/webapp/evaluation/sweeps/test_removal.py.
OTHER_ROLES = {"notifications/<int:pk>/read/", SWEEP + "delete/runs/", PROJECT + "runs/queue/"}


def _unsafe() -> set[str]:
    pages = {route: who for route, who in TABLE.items() if not route.startswith(API) and "styleguide" not in route}
    return {route for route, methods in pages.items() if set(methods) - SAFE}


def _rows() -> dict[str, Who]:
    """The operations of the API with the role that the matrix holds them to."""
    found = {}
    for route, methods in TABLE.items():
        path = "/" + route.removeprefix(API)
        for kind in ("uuidstr", "slug", "int"):
            path = path.replace(f"<{kind}:", "{")
        for method, who in methods.items():
            if route.startswith(API):
                found[f"{method} {path.replace('>', '}')}"] = who
    return found


def test_every_act_of_the_pages_has_an_operation_or_a_reason() -> None:
    assert _unsafe() - set(SAME) - set(ALONE) == set(), "an act of the browser that no script can do"
    assert (set(SAME) | set(ALONE)) - _unsafe() == set(), "there is no such address any more"
    assert not set(SAME) & set(ALONE) and all(ALONE.values())


def test_each_operation_is_in_the_schema() -> None:
    paths = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]
    there = {f"{method.upper()} {path.removeprefix('/api/v1')}" for path, all in paths.items() for method in all}
    assert set(SAME.values()) - there == set()


@pytest.mark.parametrize("route", sorted(set(SAME) - OTHER_ROLES))
def test_the_operation_asks_for_the_role_that_the_page_asks_for(route: str) -> None:
    methods = TABLE[route]
    assert _rows()[SAME[route]] == methods["POST"]
