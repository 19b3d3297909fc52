"""Which pages offer what changes something, and in which states of their objects: a button that a person may press and
that no page shows is lost, and a page that shows it too early leads to a refusal.

By method and address: the pages that offer it; in brackets the states of `test_authorisation_matrix.py` in which they
do, where that is not in all of them. Addresses are those of a project, with `:` for each of their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.security.routes import PROJECT

VIEWERS = {
    "POST rewards/:/try/": "rewards/:/",
    "POST runs/:/star/": "runs/:/; runs/",
    "POST runs/columns/": "runs/",
    "POST votes/:/undo/": "votes/:/vote/ (made, at work)",
}
"""What every member is offered."""

EDITORS = {
    "POST chats/:/delete/": "chats/:/",
    "GET chats/new/": (
        "chats/; chats/:/; datasets/:/rows/:/ (made); models/; models/:/; rollouts/:/; runs/:/ (ended); "
        "runs/:/advisories/ (ended); runs/:/parts/ (ended)"
    ),
    "POST compare/rescorings/:/cancel/": "compare/rescorings/:/progress/",
    "POST compare/saved/:/comments/": "compare/saved/:/",
    "POST compare/saved/new/": "compare/saved/new/",
    "POST datasets/:/delete/": "datasets/:/",
    "POST datasets/:/keep/": "datasets/:/ (at work)",
    "GET datasets/:/make/:/": "datasets/:/ (made)",
    "GET datasets/:/read/": "datasets/:/",
    "GET datasets/new/": "datasets/; datasets/:/; environments/:/play/ (at work, ended); shelves/",
    "POST endpoints/:/delete/": "endpoints/:/",
    "GET endpoints/:/edit/": "endpoints/:/",
    "POST endpoints/:/test/": "endpoints/:/",
    "GET endpoints/new/": "endpoints/",
    "POST environments/:/check/": "environments/; environments/:/",
    "GET environments/:/datasets/new/": "environments/:/datasets/",
    "POST environments/:/delete/": "environments/:/",
    "GET environments/:/play/": "environments/; environments/:/",
    "GET environments/new/": "environments/; shelves/",
    "POST models/:/delete/": "models/",
    "POST models/:/mark/": "models/:/",
    "POST models/:/push/": "models/:/ (ended)",
    "GET models/new/": "models/; shelves/",
    "POST pins/:/remove/": "/",
    "POST rewards/:/delete/": "rewards/:/",
    "GET rewards/:/edit/": "rewards/:/",
    "GET rewards/:/sample/": "rewards/:/; rewards/lab/:/ (ended)",
    "GET rewards/:/test-bed/": "rewards/:/; rewards/lab/:/ (ended)",
    "POST rewards/cases/:/delete/": "rewards/:/",
    "GET rewards/custom/": "rewards/:/edit/; rewards/new/",
    "POST rewards/custom/test/": "rewards/custom/",
    "POST rewards/lab/": "rewards/lab/",
    "POST rewards/lab/:/delete/": "rewards/lab/:/",
    "GET rewards/new/": "rewards/; shelves/",
    "POST rollouts/:/branches/:/delete/": "rollouts/:/branches/",
    "POST rollouts/:/branches/:/save/": "rollouts/:/branches/",
    "POST rollouts/:/branches/continue/": "rollouts/:/branches/",
    "POST rollouts/:/branches/new/": "rollouts/:/branches/",
    "POST rollouts/:/case/": "rollouts/:/",
    "POST rollouts/:/end/": "rollouts/:/ (at work)",
    "POST rollouts/:/fail/": "rollouts/:/ (at work)",
    "GET rollouts/:/rewind/": "rollouts/:/branches/",
    "GET rollouts/save/": "rollouts/",
    "POST rollouts/views/:/delete/": "rollouts/; runs/:/rollouts/",
    "POST runs/:/label/": "runs/:/",
    "POST runs/:/launch/": "runs/:/ (made); runs/:/check/ (made)",
    "GET runs/:/pairs/": "runs/:/ (ended); runs/:/parts/ (ended)",
    "POST runs/:/pause/": "runs/:/ (at work); runs/:/parts/ (at work)",
    "GET runs/:/rollouts/save/": "runs/:/rollouts/",
    "POST runs/:/stop/": "runs/:/ (made, at work)",
    "GET runs/archive/": "runs/",
    "POST runs/archive/": "runs/:/ (made, ended); runs/:/parts/ (made, ended)",
    "GET runs/imports/new/": "runs/; runs/imports/:/",
    "POST runs/new/": "runs/new/",
    "POST runs/new/needs/:/leave/": "runs/",
    "POST runs/new/preflight/": "runs/new/",
    "POST runs/new/rendered/of-form/": "runs/new/",
    "POST runs/new/yaml/": "runs/new/; runs/new/yaml/",
    "GET runs/tag/": "runs/",
    "POST suites/:/delete/": "suites/:/",
    "GET suites/:/edit/": "suites/:/",
    "POST suites/:/evaluate/": "suites/:/",
    "GET suites/new/": "suites/",
    "POST sweeps/:/delete/": "sweeps/:/",
    "POST sweeps/new/": "runs/new/",
}
"""What editors and owners are offered."""

OWNERS = {
    "POST compare/comments/:/delete/": "compare/saved/:/",
    "POST compare/comments/:/edit/": "compare/saved/:/",
    "POST compare/links/:/revoke/": "compare/saved/:/links/",
    "POST compare/saved/:/delete/": "compare/saved/:/",
    "POST compare/saved/:/rename/": "compare/saved/:/",
    "GET delete/": "settings/",
    "POST deletions/:/retry/": "datasets/; models/; runs/; settings/retention/",
    "GET models/checkpoints/:/delete/": "models/",
    "GET runs/:/delete/": "runs/:/ (ended); runs/:/parts/ (ended)",
    "GET runs/queue/": "runs/",
    "POST settings/channels/:/delete/": "settings/channels/",
    "GET settings/channels/:/edit/": "settings/channels/",
    "POST settings/channels/:/resume/": "settings/channels/",
    "POST settings/channels/:/test/": "settings/channels/",
    "POST settings/hub-token/": "settings/",
    "POST settings/hub-token/remove/": "settings/",
    "GET settings/machines/": (
        "delete/; settings/; settings/channels/; settings/channels/:/edit/; settings/doctor/; "
        "settings/machines/; settings/retention/; settings/tokens/"
    ),
    "POST settings/machines/": "settings/machines/",
    "POST settings/machines/:/end/": "settings/machines/",
    "POST settings/machines/:/tokens/": "settings/machines/",
    "POST settings/machines/:/tokens/:/replace/": "settings/machines/",
    "POST settings/machines/:/tokens/:/revoke/": "settings/machines/",
    "POST settings/members/": "settings/",
    "POST settings/members/:/active/": "settings/",
    "POST settings/members/:/link/": "settings/",
    "POST settings/members/:/remove/": "settings/",
    "POST settings/members/:/role/": "settings/",
    "GET settings/tokens/": (
        "delete/; settings/; settings/channels/; settings/channels/:/edit/; settings/doctor/; "
        "settings/machines/; settings/retention/; settings/tokens/"
    ),
    "POST settings/tokens/:/revoke/": "settings/tokens/",
    "GET sweeps/:/delete/runs/": "sweeps/:/",
    "GET teams/:/delete/": "settings/",
    "POST votes/:/close/": "votes/:/vote/ (made, at work)",
    "POST votes/:/delete/": "votes/:/",
    "POST votes/:/reopen/": "votes/:/ (ended)",
}
"""What owners are offered."""

OFFERED = {"rita": VIEWERS, "bob": VIEWERS | EDITORS, "alice": VIEWERS | EDITORS | OWNERS}


def short(route: str) -> str:
    """An address as these tables write it."""
    return re.sub(r"<(\w+:)?\w+>", ":", "/" if route == PROJECT else route.removeprefix(PROJECT))


def offered(persona: str, state: str) -> Iterator[tuple[str, str]]:
    """Each act that is offered to a person in one state of the objects, with the page that offers it."""
    for act, pages in OFFERED[persona].items():
        for page in pages.split("; "):
            name, _, states = page.partition(" (")
            if not states or state in states.rstrip(")").split(", "):
                yield act, name
