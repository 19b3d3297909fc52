"""Who may do what: one line for each address and method. An address or method that is missing here fails the tests."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from django.urls import URLPattern, URLResolver, get_resolver


class Who(Enum):
    """The least role that an address asks for."""

    ANYONE = "anyone"
    LOGIN = "login"  # any person who is logged in
    HOLDER = "holder"  # the one person to whom it belongs: alice
    READ = "read"  # viewers, editors and owners of the project's team
    WRITE = "write"  # editors and owners
    OWN = "own"  # owners
    ANY_OWNER = "any owner"  # owners of whatever team
    ADMIN = "admin"  # administrators of the installation: nobody of the cast
    NOBODY = "nobody"  # an address that does not exist


READ, WRITE = {"GET": Who.READ}, {"POST": Who.WRITE}
OWNERS = {"GET": Who.OWN, "POST": Who.OWN}
FORM = {"GET": Who.WRITE, "POST": Who.WRITE}
# Django's own views take every method; only POST changes anything there.
EVERY = dict.fromkeys(("GET", "POST", "PUT", "PATCH", "DELETE"), Who.ANYONE)
PROJECT, API, OWN_PK = "p/<slug:slug>/", "api/v1/", "<uuid:pk>/"
TABLE: dict[str, dict[str, Who]] = {
    "": {"GET": Who.LOGIN},
    "login/": EVERY,
    "login/<str:token>/": {"GET": Who.ANYONE, "POST": Who.ANYONE},
    "logout/": {"POST": Who.ANYONE},
    "password/": {"GET": Who.LOGIN, "POST": Who.LOGIN},
    "password/forgotten/": {"GET": Who.ANYONE, "POST": Who.ANYONE},
    "password/mail/": {"POST": Who.LOGIN},
    "tokens/": {"GET": Who.LOGIN, "POST": Who.LOGIN},
    "tokens/<uuid:pk>/revoke/": {"POST": Who.HOLDER},
    "notifications/": {"GET": Who.LOGIN},
    "notifications/bell/": {"GET": Who.LOGIN},
    "notifications/read/": {"POST": Who.LOGIN},
    "notifications/settings/": {"GET": Who.LOGIN, "POST": Who.LOGIN},
    "notifications/settings/mail/": {"GET": Who.LOGIN, "POST": Who.LOGIN},
    "notifications/<int:pk>/open/": {"GET": Who.HOLDER},
    "notifications/<int:pk>/read/": {"POST": Who.HOLDER},
    "confirm/": {"GET": Who.LOGIN, "POST": Who.LOGIN},
    "site/": {"GET": Who.ADMIN},
    "site/custom-rewards/": {"POST": Who.ADMIN},
    "site/people/<uuid:pk>/link/": {"POST": Who.ADMIN},
    "site/people/<uuid:pk>/active/": {"POST": Who.ADMIN},
    "workers/": {"GET": Who.LOGIN},
    "language/": EVERY,
    "theme/": {"POST": Who.ANYONE},
    "styleguide/": {"GET": Who.ANYONE},
    "projects/new/": {"GET": Who.ANY_OWNER, "POST": Who.ANY_OWNER},
    "deletions/<uuid:pk>/retry/": {"POST": Who.OWN},
    PROJECT: READ,
    PROJECT + "settings/": READ,
    PROJECT + "delete/": OWNERS,
    PROJECT + "runs/" + OWN_PK + "delete/": OWNERS,
    PROJECT + "models/checkpoints/" + OWN_PK + "delete/": OWNERS,
    PROJECT + "settings/channels/": {"GET": Who.READ, "POST": Who.OWN},
    **{PROJECT + "settings/channels/" + OWN_PK + tail: {"POST": Who.OWN} for tail in ("test/", "resume/", "delete/")},
    PROJECT + "settings/members/": {"POST": Who.OWN},
    PROJECT + "settings/members/<int:pk>/role/": {"POST": Who.OWN},
    PROJECT + "settings/members/<int:pk>/remove/": {"POST": Who.OWN},
    PROJECT + "settings/members/<int:pk>/link/": {"POST": Who.OWN},
    PROJECT + "settings/members/<int:pk>/active/": {"POST": Who.OWN},
    PROJECT + "runs/new/": {"GET": Who.READ, "POST": Who.WRITE},
    PROJECT + "runs/new/preflight/": WRITE,
    PROJECT + "runs/new/needs/": {"GET": Who.READ, "POST": Who.WRITE},
    PROJECT + "runs/new/needs/" + OWN_PK + "leave/": WRITE,
    PROJECT + "runs/new/yaml/": {"GET": Who.READ, "POST": Who.WRITE},
    PROJECT + "runs/imports/new/": FORM,
    **{PROJECT + "runs/imports/" + OWN_PK + tail: READ for tail in ("", "progress/")},
    PROJECT + "runs/": READ,
    PROJECT + "runs/columns/": {"POST": Who.READ},
    PROJECT + "runs/tag/": FORM,
    PROJECT + "runs/archive/": FORM,
    PROJECT + "runs/runs.csv": READ,
    PROJECT + "runs/" + OWN_PK + "star/": {"POST": Who.READ},
    PROJECT + "runs/" + OWN_PK + "label/": WRITE,
    **{
        PROJECT + "runs/" + OWN_PK + tail: READ
        for tail in (
            "",
            "parts/",
            "spend/",
            "check/",
            "log/",
            "log/older/",
            "log/output/",
            "config/",
            "events/",
            "verl/",
            "held-out/",
        )
    },
    PROJECT + "runs/" + OWN_PK + "held-out/<int:step>/": READ,
    PROJECT + "runs/" + OWN_PK + "bfcl-scores.zip": READ,
    PROJECT + "runs/" + OWN_PK + "export/": {"GET": Who.READ, "POST": Who.READ},
    **{PROJECT + "runs/" + OWN_PK + tail: READ for tail in ("exports/", "exports/<uuid:file_id>/")},
    **{PROJECT + "runs/" + OWN_PK + tail: WRITE for tail in ("launch/", "stop/", "pause/", "resume/")},
    PROJECT + "rollouts/" + OWN_PK: READ,
    PROJECT + "datasets/": READ,
    PROJECT + "datasets/new/": FORM,
    **{PROJECT + "datasets/" + OWN_PK + tail: READ for tail in ("", "progress/")},
    **{PROJECT + "datasets/" + OWN_PK + tail: WRITE for tail in ("keep/", "delete/", "read/preview/")},
    PROJECT + "datasets/" + OWN_PK + "make/<slug:operation>/": FORM,
    PROJECT + "datasets/" + OWN_PK + "count/": {"GET": Who.WRITE},
    PROJECT + "datasets/" + OWN_PK + "export/": {"GET": Who.READ, "POST": Who.READ},
    **{PROJECT + "datasets/" + OWN_PK + tail: READ for tail in ("exports/", "exports/<uuid:export_id>/")},
    **{PROJECT + "datasets/" + OWN_PK + tail: READ for tail in ("quality/", "findings/", "findings.csv")},
    PROJECT + "datasets/" + OWN_PK + "read/": FORM,
    PROJECT + "suites/": READ,
    PROJECT + "suites/new/": FORM,
    PROJECT + "suites/" + OWN_PK: READ,
    PROJECT + "suites/" + OWN_PK + "edit/": FORM,
    **{PROJECT + "suites/" + OWN_PK + tail: WRITE for tail in ("evaluate/", "delete/")},
    PROJECT + "rewards/": READ,
    PROJECT + "rewards/new/": FORM,
    PROJECT + "rewards/lab/": {"GET": Who.READ, "POST": Who.WRITE},
    PROJECT + "rewards/lab/save/": WRITE,
    **{PROJECT + "rewards/lab/" + OWN_PK + tail: READ for tail in ("", "progress/")},
    PROJECT + "rewards/lab/" + OWN_PK + "delete/": WRITE,
    PROJECT + "rewards/custom/": FORM,
    PROJECT + "rewards/custom/test/": WRITE,
    PROJECT + "rewards/" + OWN_PK: READ,
    **{PROJECT + "rewards/" + OWN_PK + tail: FORM for tail in ("edit/", "sample/", "test-bed/")},
    PROJECT + "rewards/" + OWN_PK + "try/": {"POST": Who.READ},
    PROJECT + "rewards/" + OWN_PK + "delete/": WRITE,
    PROJECT + "rewards/cases/" + OWN_PK + "delete/": WRITE,
    PROJECT + "rewards/lab/" + OWN_PK + "score/": {"POST": Who.READ},
    PROJECT + "rewards/lab/" + OWN_PK + "rollouts/<uuid:rollout>/": {"POST": Who.READ},
    PROJECT + "environments/": READ,
    PROJECT + "environments/new/": FORM,
    **{
        PROJECT + "environments/" + OWN_PK + tail: READ
        for tail in ("", "history/", "datasets/", "replicas/<int:number>/log/")
    },
    **{PROJECT + "environments/" + OWN_PK + tail: WRITE for tail in ("check/", "scale/", "restart/", "delete/")},
    **{PROJECT + "environments/" + OWN_PK + tail: {"GET": Who.WRITE} for tail in ("play/", "play/row/")},
    **{PROJECT + "environments/" + OWN_PK + tail: FORM for tail in ("edit/", "datasets/new/")},
    PROJECT + "endpoints/": READ,
    PROJECT + "endpoints/new/": FORM,
    PROJECT + "endpoints/" + OWN_PK: READ,
    PROJECT + "endpoints/" + OWN_PK + "edit/": FORM,
    **{PROJECT + "endpoints/" + OWN_PK + tail: WRITE for tail in ("test/", "delete/")},
    PROJECT + "compare/": READ,
    PROJECT + "compare/tasks/<int:task>/": READ,
    PROJECT + "compare/report.html": READ,
    PROJECT + "compare/figures.csv": READ,
    PROJECT + "compare/tasks.csv": READ,
    PROJECT + "compare/saved/new/": FORM,
    PROJECT + "compare/saved/" + OWN_PK: READ,
    # Alice saved it, wrote the comment and made the link; otherwise it takes an owner.
    **{PROJECT + "compare/saved/" + OWN_PK + tail: {"POST": Who.OWN} for tail in ("rename/", "delete/")},
    PROJECT + "compare/saved/" + OWN_PK + "comments/": WRITE,
    PROJECT + "compare/saved/" + OWN_PK + "links/": {"GET": Who.READ, "POST": Who.WRITE},
    **{PROJECT + "compare/comments/" + OWN_PK + tail: {"POST": Who.OWN} for tail in ("edit/", "delete/")},
    PROJECT + "compare/links/" + OWN_PK + "revoke/": {"POST": Who.OWN},
    "s/<str:secret>/": {"GET": Who.ANYONE},
    "s/<str:secret>/report.html": {"GET": Who.ANYONE},
    PROJECT + "votes/": READ,
    PROJECT + "votes/new/": FORM,
    PROJECT + "votes/" + OWN_PK: READ,
    PROJECT + "votes/" + OWN_PK + "vote/": {"GET": Who.READ, "POST": Who.READ},
    PROJECT + "votes/" + OWN_PK + "undo/": {"POST": Who.READ},
    **{PROJECT + "votes/" + OWN_PK + tail: {"POST": Who.OWN} for tail in ("close/", "reopen/", "delete/")},
    PROJECT + "chats/": READ,
    PROJECT + "chats/new/": FORM,
    PROJECT + "chats/" + OWN_PK: READ,
    PROJECT + "chats/" + OWN_PK + "delete/": WRITE,
    PROJECT + "models/": READ,
    PROJECT + "models/new/": FORM,
    PROJECT + "models/" + OWN_PK + "delete/": WRITE,
    PROJECT + "models/" + OWN_PK: READ,
    **{PROJECT + "models/" + OWN_PK + tail: WRITE for tail in ("mark/", "about/", "push/")},
    PROJECT + "models/" + OWN_PK + "card/": {"GET": Who.READ, "POST": Who.WRITE},
    PROJECT + "models/<str:model_name>/": READ,
    API + "openapi.json": {"GET": Who.ANYONE},
    API + "me": {"GET": Who.LOGIN},
    API + "suites/<uuidstr:suite_id>": {"GET": Who.READ, "DELETE": Who.WRITE},
    API + "suites/<uuidstr:suite_id>/evaluations": WRITE,
    API + "projects/<slug:slug>/compare": READ,
    API + "projects/<slug:slug>/comparisons": {"GET": Who.READ, "POST": Who.WRITE},
    API + "comparisons/<uuidstr:comparison_id>": {"GET": Who.READ, "PATCH": Who.OWN, "DELETE": Who.OWN},
    API + "comparisons/<uuidstr:comparison_id>/comments": {"GET": Who.READ, "POST": Who.WRITE},
    API + "comparisons/<uuidstr:comparison_id>/links": {"GET": Who.READ, "POST": Who.WRITE},
    API + "comments/<uuidstr:comment_id>": {"PATCH": Who.OWN, "DELETE": Who.OWN},
    API + "shared-links/<uuidstr:link_id>": {"DELETE": Who.OWN},
    API + "projects/<slug:slug>/models": READ,
    API + "projects/<slug:slug>/vote-rounds": {"GET": Who.READ, "POST": Who.WRITE},
    API + "vote-rounds/<uuidstr:round_id>": {"GET": Who.READ, "DELETE": Who.OWN},
    API + "vote-rounds/<uuidstr:round_id>/close": {"POST": Who.OWN},
    API + "vote-rounds/<uuidstr:round_id>/reopen": {"POST": Who.OWN},
    API + "vote-rounds/<uuidstr:round_id>/next": READ,
    API + "vote-rounds/<uuidstr:round_id>/ballots/<uuidstr:ballot_id>/vote": {"POST": Who.READ},
    API + "vote-rounds/<uuidstr:round_id>/undo": {"POST": Who.READ},
    API + "vote-rounds/<uuidstr:round_id>/results": READ,
    API + "runs/<uuidstr:run_id>/pause": WRITE,
    API + "runs/<uuidstr:run_id>/resume": WRITE,
    API + "projects": {"GET": Who.LOGIN},
    API + "projects/<slug:slug>": {"GET": Who.READ, "DELETE": Who.OWN},
    **{
        API + f"projects/<slug:slug>/{kind}": {"GET": Who.READ, "POST": Who.WRITE}
        for kind in ("runs", "datasets", "rewards", "environments", "suites", "endpoints", "chats")
    },
    API + "chats/<uuidstr:chat_id>": {"GET": Who.READ, "DELETE": Who.WRITE},
    **{API + f"chats/<uuidstr:chat_id>/{act}": WRITE for act in ("messages", "again", "stop", "save")},
    API + "runs/<uuidstr:run_id>": {"GET": Who.READ, "PATCH": Who.WRITE, "DELETE": Who.OWN},
    API + "runs/<uuidstr:run_id>/star": {"POST": Who.READ},
    API + "checkpoints/<uuidstr:checkpoint_id>": {"DELETE": Who.OWN},
    API + "models/<uuidstr:model_id>/download": READ,
    API + "models/<uuidstr:model_id>": {"GET": Who.READ, "PATCH": Who.WRITE, "DELETE": Who.WRITE},
    API + "models/<uuidstr:model_id>/card": READ,
    API + "models/<uuidstr:model_id>/pushes": {"GET": Who.READ, "POST": Who.WRITE},
    API + "runs/<uuidstr:run_id>/stop": WRITE,
    API + "runs/<uuidstr:run_id>/metrics": READ,
    API + "runs/<uuidstr:run_id>/steps/<int:step>/rollouts": READ,
    API + "runs/<uuidstr:run_id>/events": READ,
    API + "runs/<uuidstr:run_id>/exports": {"GET": Who.READ, "POST": Who.READ},
    **{API + "runs/<uuidstr:run_id>/exports/<uuidstr:file_id>" + tail: READ for tail in ("", "/file")},
    API + "datasets/<uuidstr:dataset_id>": {"GET": Who.READ, "DELETE": Who.WRITE},
    API + "datasets/<uuidstr:dataset_id>/make": WRITE,
    API + "datasets/<uuidstr:dataset_id>/exports": {"GET": Who.READ, "POST": Who.READ},
    API + "rewards/<uuidstr:spec_id>": READ,
    API + "environments/<uuidstr:environment_id>": READ,
    API + "environments/<uuidstr:environment_id>/scale": WRITE,
    API + "environments/<uuidstr:environment_id>/restart": WRITE,
    API + "endpoints/<uuidstr:endpoint_id>": {"GET": Who.READ, "PATCH": Who.WRITE, "DELETE": Who.WRITE},
    API + "endpoints/<uuidstr:endpoint_id>/test": WRITE,
    API + "notifications": {"GET": Who.LOGIN},
    API + "notifications/read": {"POST": Who.LOGIN},
    API + "projects/<slug:slug>/channels": {"GET": Who.READ, "POST": Who.OWN},
    API + "channels/<uuidstr:channel_id>": {"DELETE": Who.OWN},
    **{API + f"channels/<uuidstr:channel_id>/{act}": {"POST": Who.OWN} for act in ("test", "resume")},
    API + "^.*$": dict.fromkeys(("GET", "POST", "PUT", "PATCH", "DELETE"), Who.NOBODY),
}
# The least body that an operation of the API understands; who may not write must hear so before anything else.
BODIES: dict[str, dict[str, object]] = {
    API + "projects/<slug:slug>/endpoints": {"name": "e", "url": "https://93.184.216.34/v1", "model": "m"},
    API + "projects/<slug:slug>/runs": {"name": "r"},
    API + "projects/<slug:slug>/rewards": {"name": "r", "components": [{"name": "coherence", "weight": 1}]},
    API + "projects/<slug:slug>/environments": {"name": "e", "url": "http://10.0.0.1"},
    API + "projects/<slug:slug>/datasets": {"name": "d"},  # sent as a form
    API + "projects/<slug:slug>/suites": {"name": "s", "parts": [{"title": "a", "config": {}}]},
    API + "suites/<uuidstr:suite_id>/evaluations": {"contestant": "policy:empty"},
    API + "projects/<slug:slug>/chats": {"contestants": [{"source": "Qwen/Qwen3-0.6B"}]},
    API + "chats/<uuidstr:chat_id>/messages": {"text": "Hello"},
    API + "chats/<uuidstr:chat_id>/again": {"answer": "00000000-0000-0000-0000-000000000000"},
    API + "chats/<uuidstr:chat_id>/save": {"kind": "row", "name": "talks"},
    API + "datasets/<uuidstr:dataset_id>/make": {"operation": "split", "names": ["train", "val"]},
    API + "datasets/<uuidstr:dataset_id>/exports": {"to": "jsonl"},
    API + "runs/<uuidstr:run_id>/exports": {"to": "csv"},
    API + "environments/<uuidstr:environment_id>/scale": {"wanted": 1},
    API + "projects/<slug:slug>/comparisons": {"name": "c", "runs": []},
    API + "comparisons/<uuidstr:comparison_id>": {"name": "c"},
    API + "comparisons/<uuidstr:comparison_id>/comments": {"text": "c"},
    API + "comparisons/<uuidstr:comparison_id>/links": {"days": 7},
    API + "comments/<uuidstr:comment_id>": {"text": "c"},
    API + "models/<uuidstr:model_id>/pushes": {"repository": "team/model"},
    API + "projects/<slug:slug>/vote-rounds": {"name": "v", "runs": ["a", "b"]},
    API + "vote-rounds/<uuidstr:round_id>/ballots/<uuidstr:ballot_id>/vote": {"answer": "tie"},
    API + "projects/<slug:slug>/channels": {
        "name": "c",
        "kind": "json",
        "url": "http://10.0.0.1",
        "events": ["run_failed"],
    },
}
# Sockets: the close code for a stranger and an anonymous visitor is checked with the socket's own policy.
SOCKETS: dict[str, Who] = {
    "ws/runs/<uuid:run_id>/": Who.READ,
    "ws/environments/<uuid:environment_id>/play/": Who.WRITE,
    "ws/chats/<uuid:chat_id>/": Who.READ,
    "": Who.NOBODY,
}


def routes(resolver: URLResolver | None = None, prefix: str = "") -> Iterator[str]:
    """Every address of the resolver, as it is written."""
    for item in (resolver or get_resolver()).url_patterns:
        if isinstance(item, URLPattern):
            yield prefix + str(item.pattern)
        else:
            yield from routes(item, prefix + str(item.pattern))
