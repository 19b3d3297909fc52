"""What each unsafe address is sent, and the row that it leaves in the audit; those that leave none, with the reason."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django.core.files.uploadedfile import SimpleUploadedFile

from tests.security.routes import API, OWN_PK, PROJECT
from tests.webapp.launch.test_launch import _data as launch_form
from tests.webapp.rewards.test_custom import _form as code_form
from tests.webapp.rewards.test_play_pages import _data as bed_form
from tests.webapp.rewards.test_rewards import _data as reward_form
from webapp.rewards.models import RewardSpec

UNAUDITED = {
    "login/": "a login is in the log; failures are counted by the throttle",
    "login/<str:token>/": "as login/",
    "password/forgotten/": "asked without a login; tests/security/test_logins.py looks at the link's row",
    "password/mail/": "asks for the password first; tests/security/test_logins.py looks at its row",
    "site/people/<uuid:pk>/link/": "an administrator's; tests/security/test_logins.py looks at its row",
    "site/people/<uuid:pk>/active/": "an administrator's; tests/security/test_logins.py looks at its row",
    "site/people/<uuid:pk>/delete/": "an administrator's; tests/webapp/people/teams/test_departing.py looks at its row",
    API + "people/<uuidstr:person_id>": "as site/people/<uuid:pk>/delete/",
    "account/delete/": "refused to alice, the only owner; tests/webapp/people/teams/test_departing.py looks at its row",
    "site/tokens/<uuid:pk>/revoke/": "an administrator's; tests/webapp/people/teams/test_token_ends.py has its row",
    "usage/limit/": "an administrator's; tests/webapp/runs/records/test_limits.py looks at its row",
    API + "limits": "as usage/limit/",
    "workers/drain/": "an administrator's; tests/webapp/common/workers/test_draining.py looks at its row",
    API + "workers/drain": "as workers/drain/",
    "tokens/": "asks for the password first; tests/webapp/people/teams/test_tokens.py looks at its row",
    "deletions/<uuid:pk>/retry/": "continues a deletion whose row is there already",
    "notifications/read/": "marks the person's own list",
    "notifications/<int:pk>/read/": "marks the person's own list",
    "notifications/settings/": "what the person themself is notified of",
    "notifications/settings/mail/": "sends the person a mail",
    PROJECT + "settings/channels/" + OWN_PK + "test/": "posts a test message and changes nothing",
    API + "notifications/read": "marks the person's own list",
    API + "channels/<uuidstr:channel_id>/test": "posts a test message and changes nothing",
    "logout/": "ends nothing but the person's own session",
    "language/": "a cookie of the person's own",
    "theme/": "a cookie of the person's own",
    PROJECT + "runs/columns/": "what one person's own list shows",
    PROJECT + "runs/" + OWN_PK + "star/": "a person's own, which no other person sees",
    API + "runs/<uuidstr:run_id>/star": "as the page's",
    PROJECT + "runs/new/preflight/": "checks, and changes nothing",
    PROJECT + "runs/new/plan/": "works a figure out, and changes nothing",
    PROJECT + "sweeps/plan/": "counts, and changes nothing",
    PROJECT + "runs/new/memory/": "works a figure out, and changes nothing",
    PROJECT + "runs/new/rendered/of-form/": "leads to a page, and changes nothing",
    API + "projects/<slug:slug>/memory": "works a figure out, and changes nothing",
    API + "rollouts/<uuidstr:rollout_id>/branches": "keeps an episode next to the rollout, and changes nothing",
    PROJECT + "rollouts/" + OWN_PK + "branches/new/": "as over the API",
    API + "rollouts/<uuidstr:rollout_id>/rewind": "plays turns again on a session of its own, and changes nothing",
    PROJECT + "runs/new/yaml/": "turns a form into text and back",
    PROJECT + "datasets/" + OWN_PK + "read/preview/": "looks at a file",
    PROJECT + "rewards/" + OWN_PK + "try/": "scores a pasted text",
    PROJECT + "rewards/lab/" + OWN_PK + "score/": "computes what the page shows",
    PROJECT + "rewards/lab/" + OWN_PK + "rollouts/<uuid:rollout>/": "reads one rollout",
    PROJECT + "environments/" + OWN_PK + "check/": "asks a server how it is",
    PROJECT + "compare/saved/" + OWN_PK + "comments/": "a comment is shown under its author's name",
    PROJECT + "compare/comments/" + OWN_PK + "edit/": "an author's own words, marked as edited",
    API + "comparisons/<uuidstr:comparison_id>/comments": "a comment is shown under its author's name",
    PROJECT + "endpoints/" + OWN_PK + "test/": "asks a server how it is",
    API + "endpoints/<uuidstr:endpoint_id>/test": "asks a server how it is",
    API + "projects/<slug:slug>/preflight": "checks, and changes nothing",
    API + "projects/<slug:slug>/sweeps/plan": "counts, and changes nothing",
    API + "rewards/<uuidstr:spec_id>/try": "scores a pasted text",
    API + "environments/<uuidstr:environment_id>/check": "asks a server how it is",
}
UNAUDITED |= {
    API + "runs/<uuidstr:run_id>/pins": "shows a chart on one more page; the pin's own row says who pinned it",
    API + "pins/<uuidstr:pin_id>": "takes a chart off a page; its run keeps it",
    PROJECT + "pins/" + OWN_PK + "remove/": "takes a chart off a page; its run keeps it",
    PROJECT + "votes/" + OWN_PK + "vote/": "the vote's own row says who and when",
    PROJECT + "votes/" + OWN_PK + "undo/": "a person's own vote, while it is not final",
    API + "vote-rounds/<uuidstr:round_id>/ballots/<uuidstr:ballot_id>/vote": "as on the page",
    API + "vote-rounds/<uuidstr:round_id>/undo": "as on the page",
}
UNAUDITED |= {
    API + f"chats/<uuidstr:chat_id>/{act}": "is shown in the chat itself, by whom and when"
    for act in ("messages", "again", "stop")
}
UNAUDITED[API + "chats/<uuidstr:chat_id>/save"] = "refused while nothing was answered"
SEEDS = {"sweep-0-option": "run.seed", "sweep-0-values": "1, 2"}
ROW = json.dumps({"messages": [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}]})
COMPONENTS = [{"name": "final_answer", "weight": 0.5}]
PARTS = {"name": "mine", "components": COMPONENTS}
ORDER = {"command": "tasks", "name": "made"}
SHOP = {"name": "shop", "kind": "process", "program": "webshop", "wanted": "1", "slots": "8"}
SHOP |= {"memory_mb": "768", "cpus": "1.0", "webshop-products": "60"}
ASKED = {"url": "https://93.184.216.34/v1", "model": "m", "tool_format": "native", "concurrency": 4, "timeout_s": 60}


def suite_form(config: Any) -> dict[str, Any]:
    """A suite of one part."""
    common = {"name": "fresh", "samples": 1, "temperature": 1, "max_turns": 5, "seed": 1}
    part = {"title": "new", "dataset": config.data.train, "environment": "none", "weight": 1}
    return common | {f"part0-{name}": value for name, value in part.items()}


class Act(NamedTuple):
    """What is sent, and which row it leaves. ``body`` may need the objects of the test."""

    action: str
    body: Any = {}


def _file(text: str = ROW, name: str = "rows.jsonl") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, text.encode() + b"\n")


RUNS, DATASETS, REWARDS = PROJECT + "runs/" + OWN_PK, PROJECT + "datasets/" + OWN_PK, PROJECT + "rewards/" + OWN_PK
ENVIRONMENTS, MEMBERS = PROJECT + "environments/" + OWN_PK, PROJECT + "settings/members/"
CHANNELS, MACHINES = PROJECT + "settings/channels/", PROJECT + "settings/machines/"
API_MACHINES = API + "projects/<slug:slug>/machines"
API_MACHINE = API_MACHINES + "/<uuidstr:machine_id>"
CHANNEL = {"name": "ops", "kind": "json", "url": "http://8.8.8.8/hook", "events": ["run_failed"], "language": "en"}
ACTS: dict[str, Act] = {
    "password/": Act(
        "password_set",
        {
            "old_password": "correct horse battery staple",
            "new_password1": "w3lded-Pike",
            "new_password2": "w3lded-Pike",
        },
    ),
    "confirm/": Act("confirm_failed", {"password": "wrong"}),
    "tokens/<uuid:pk>/revoke/": Act("token_revoked"),
    PROJECT + "settings/tokens/" + OWN_PK + "revoke/": Act("token_revoked"),
    MACHINES: Act("machine_added", {"name": "ci", "may": "editor", "everywhere": "no", "days": "30"}),
    MACHINES + OWN_PK + "end/": Act("machine_ended"),
    MACHINES + OWN_PK + "tokens/": Act("token_made", {"days": "30"}),
    MACHINES + OWN_PK + "tokens/<uuid:machine_token>/replace/": Act("token_made"),
    MACHINES + OWN_PK + "tokens/<uuid:machine_token>/revoke/": Act("token_revoked"),
    API_MACHINES: Act("machine_added", {"name": "ci"}),
    API_MACHINE + "/tokens": Act("token_made"),
    API_MACHINE + "/tokens/<uuidstr:machine_token>/replace": Act("token_made"),
    "site/custom-rewards/": Act("custom_off", {"on": "no"}),
    "projects/new/": Act("project_added", lambda of: {"name": "New", "team": of["project"].team_id}),
    CHANNELS: Act("channel_added", CHANNEL),
    CHANNELS + OWN_PK + "edit/": Act("channel_changed", CHANNEL),
    CHANNELS + OWN_PK + "resume/": Act("channel_resumed"),
    CHANNELS + OWN_PK + "delete/": Act("channel_deleted"),
    API + "projects/<slug:slug>/retention": Act("retention_changed", {"rules": {"logs": {"days": 3}}}),
    PROJECT + "settings/retention/": Act(
        "retention_changed",
        {f"{kind}_whose": "own" for kind in ("words", "tokens", "logs", "checkpoints")} | {"logs_days": "3"},
    ),
    API + "projects/<slug:slug>/doctor": Act("doctor_changed", {"reactions": {"stall": "keep"}}),
    PROJECT + "settings/doctor/": Act("doctor_changed", {"window": "6"}),
    API + "projects/<slug:slug>/channels": Act("channel_added", CHANNEL),
    API + "channels/<uuidstr:channel_id>/resume": Act("channel_resumed"),
    PROJECT + "settings/hub-token/": Act("hub_token_set", {"token": "hf_abcdefgh"}),
    PROJECT + "settings/hub-token/remove/": Act("hub_token_removed"),
    API + "projects/<slug:slug>/hub-token": Act("hub_token_set", {"token": "hf_abcdefgh"}),
    MEMBERS: Act("member_added", {"username": "dora", "role": "editor"}),
    MEMBERS + "<int:pk>/role/": Act("member_role", {"role": "editor"}),
    MEMBERS + "<int:pk>/remove/": Act("member_removed"),
    MEMBERS + "<int:pk>/link/": Act("link_made"),
    MEMBERS + "<int:pk>/active/": Act("deactivated", {"active": "no"}),
    PROJECT + "runs/new/": Act("run_launched", lambda of: launch_form(of["project"], of["config"])),
    PROJECT + "sweeps/new/": Act("run_launched", lambda of: launch_form(of["project"], of["config"]) | SEEDS),
    PROJECT + "runs/new/needs/": Act("preset_begun", {"preset": "toolbench", "size": "full"}),
    PROJECT + "runs/new/needs/" + OWN_PK + "leave/": Act("preset_dropped"),
    PROJECT + "runs/imports/new/": Act("run_imported", lambda of: {"name": "", "uploads": [_file("step:1", "a.log")]}),
    PROJECT + "runs/tag/": Act("run_labelled", lambda of: {"c": of["runs"], "add": "best"}),
    PROJECT + "runs/archive/": Act("run_archived", lambda of: {"c": of["runs"]}),
    PROJECT + "runs/queue/": Act("run_held", lambda of: {"c": of["runs"], "act": "hold"}),
    RUNS + "label/": Act("run_labelled", {"tags": "best", "notes": "Good."}),
    RUNS + "launch/": Act("run_launched"),
    RUNS + "stop/": Act("run_stopped"),
    RUNS + "pause/": Act("run_paused"),
    RUNS + "resume/": Act("run_resumed"),
    RUNS + "queue/": Act("run_held", {"act": "hold"}),
    PROJECT + "datasets/new/": Act("dataset_added", lambda of: {"name": "new", "file": _file()}),
    DATASETS + "keep/": Act("dataset_kept"),
    DATASETS + "delete/": Act("dataset_deleted"),
    DATASETS + "read/": Act("dataset_added", {"format": "", "dialect": ""}),
    DATASETS + "make/<slug:operation>/": Act(
        "dataset_added", {"name": "a", "validation_name": "b", "train_ratio": "0.5", "seed": "1"}
    ),
    RUNS + "export/": Act("run_exported", {"to": "csv"}),
    RUNS + "pairs/": Act("dataset_added", {"name": "pairs", "min_gap": "0.5"}),
    DATASETS + "export/": Act("dataset_exported", {"to": "jsonl", "train_ratio": "0.9"}),
    PROJECT + "rewards/new/": Act("reward_saved", lambda of: reward_form()),
    PROJECT + "rewards/lab/": Act("set_added", {"kind": "pasted", "text": f"[{ROW}]", "name": "talk"}),
    PROJECT + "rewards/lab/save/": Act("reward_saved", json.dumps(PARTS)),
    PROJECT + "rewards/lab/" + OWN_PK + "delete/": Act("set_deleted"),
    PROJECT + "rewards/custom/": Act("code_saved", lambda of: code_form()),
    PROJECT + "rewards/custom/test/": Act("code_tested", lambda of: code_form()),
    REWARDS + "edit/": Act("reward_saved", lambda of: reward_form()),
    REWARDS + "sample/": Act("run_launched", lambda of: bed_form(of["place"])),
    REWARDS + "test-bed/": Act("run_launched", lambda of: bed_form(of["place"])),
    REWARDS + "delete/": Act("reward_deleted"),
    PROJECT + "rewards/cases/" + OWN_PK + "delete/": Act("case_deleted"),
    PROJECT + "rollouts/" + OWN_PK + "branches/<uuid:branch_id>/save/": Act(
        "dataset_added", {"kind": "row", "name": "branches"}
    ),
    PROJECT + "rollouts/" + OWN_PK + "branches/<uuid:branch_id>/delete/": Act("branch_deleted"),
    PROJECT + "rollouts/" + OWN_PK + "branches/continue/": Act(
        "run_launched", {"contestant": "policy:empty", "turn": "1", "times": "1"}
    ),
    PROJECT + "rollouts/" + OWN_PK + "end/": Act("rollout_ended"),
    PROJECT + "rollouts/" + OWN_PK + "fail/": Act("rollout_failed"),
    PROJECT + "rollouts/" + OWN_PK + "case/": Act("case_saved", {"name": "kept", "low-0": "0", "high-0": "1"}),
    PROJECT + "environments/new/": Act("environment_added", SHOP),
    ENVIRONMENTS + "scale/": Act("environment_scaled", {"wanted": "2"}),
    ENVIRONMENTS + "restart/": Act("environment_restart"),
    ENVIRONMENTS + "delete/": Act("environment_deleted"),
    ENVIRONMENTS + "edit/": Act("environment_changed", SHOP | {"slots": "9"}),
    ENVIRONMENTS + "datasets/new/": Act("dataset_ordered", ORDER),
    PROJECT + "suites/new/": Act("suite_saved", lambda of: suite_form(of["config"])),
    PROJECT + "suites/" + OWN_PK + "edit/": Act("suite_saved", lambda of: suite_form(of["config"])),
    PROJECT + "suites/" + OWN_PK + "evaluate/": Act("run_launched", {"contestant": "policy:empty"}),
    PROJECT + "suites/" + OWN_PK + "delete/": Act("suite_deleted"),
    **{
        place + "rollouts/save/": Act("view_saved", {"kind": "view", "name": "odd ones"})
        for place in (PROJECT, PROJECT + "runs/" + OWN_PK)
    },
    PROJECT + "rollouts/views/" + OWN_PK + "delete/": Act("view_deleted"),
    API + "runs/<uuidstr:run_id>/rollouts/save": Act("view_saved", {"kind": "view", "name": "odd ones"}),
    API + "projects/<slug:slug>/rollouts/save": Act("view_saved", {"kind": "view", "name": "odd ones"}),
    PROJECT + "compare/saved/new/": Act(
        "comparison_saved", lambda of: {"name": "kept", "address": f"c={of['runs']}&c={of['other']}"}
    ),
    PROJECT + "compare/saved/" + OWN_PK + "rename/": Act("comparison_renamed", {"name": "kept"}),
    PROJECT + "compare/saved/" + OWN_PK + "delete/": Act("comparison_deleted"),
    PROJECT + "compare/saved/" + OWN_PK + "links/": Act("comparison_shared", {"days": "7"}),
    PROJECT + "compare/comments/" + OWN_PK + "delete/": Act("comment_deleted"),
    PROJECT + "compare/links/" + OWN_PK + "revoke/": Act("share_revoked"),
    PROJECT + "endpoints/new/": Act("endpoint_added", ASKED | {"name": "new"}),
    PROJECT + "endpoints/" + OWN_PK + "edit/": Act("endpoint_changed", ASKED),
    PROJECT + "endpoints/" + OWN_PK + "delete/": Act("endpoint_deleted"),
    PROJECT + "chats/new/": Act("chat_added", {"model": "hub", "hub": "a/b"}),
    PROJECT + "chats/" + OWN_PK + "delete/": Act("chat_deleted"),
    API + "projects/<slug:slug>/chats": Act("chat_added", {"contestants": [{"source": "a/b"}]}),
    PROJECT + "models/new/": Act("model_added", {"name": "qwen", "kind": "hub", "source": "a/b", "revision": ""}),
    PROJECT + "models/" + OWN_PK + "delete/": Act("model_deleted"),
    PROJECT + "models/" + OWN_PK + "push/": Act("model_pushed", {"repository": "team/small", "confirm": "on"}),
    API + "models/<uuidstr:model_id>/pushes": Act("model_pushed", {"repository": "team/small", "confirm": True}),
    PROJECT + "models/" + OWN_PK + "mark/": Act("model_marked", {"mark": "production"}),
    PROJECT + "models/" + OWN_PK + "about/": Act("model_described", {"tags": "fast", "notes": ""}),
    PROJECT + "models/" + OWN_PK + "card/": Act("model_described", {"licence": "MIT"}),
    PROJECT + "models/checkpoints/" + OWN_PK + "delete/": Act(
        "checkpoint_deleted", lambda of: {"name": "run-1, step 1"}
    ),
    PROJECT + "sweeps/" + OWN_PK + "delete/": Act("sweep_deleted"),
    PROJECT + "sweeps/" + OWN_PK + "delete/runs/": Act("sweep_deleted", {"name": "rates"}),
    RUNS + "delete/": Act("run_deleted", lambda of: {"name": "run-1"}),
    PROJECT + "delete/": Act("project_deleted", {"name": "Joust"}),
    "teams/<uuid:pk>/delete/": Act("team_deleted", lambda of: {"name": of["project"].team.name}),
    API + "projects/<slug:slug>/runs": Act(
        "run_launched", lambda of: {"name": "r", "config": of["config"].model_dump(mode="json")}
    ),
    API + "projects/<slug:slug>/datasets": Act("dataset_added", lambda of: {"name": "d", "file": _file()}),
    API + "projects/<slug:slug>/runs/import": Act("run_imported", lambda of: {"uploads": [_file("step:1", "a.log")]}),
    API + "projects/<slug:slug>/rewards": Act("reward_saved", PARTS),
    API + "projects/<slug:slug>/environments": Act("environment_added", {"name": "bed", "program": "webshop"}),
    API + "projects/<slug:slug>/suites": Act(
        "suite_saved",
        lambda of: {"name": "new", "parts": [{"title": "a", "config": of["config"].model_dump(mode="json")}]},
    ),
    API + "suites/<uuidstr:suite_id>/evaluations": Act("run_launched", {"contestant": "policy:empty"}),
    API + "projects/<slug:slug>/sweeps": Act(
        "run_launched",
        lambda of: {
            "name": "seeds",
            "config": of["config"].model_dump(mode="json"),
            "axes": [{"option": "run.seed", "values": [1, 2]}],
        },
    ),
    API + "projects/<slug:slug>/runs/batch": Act(
        "run_labelled", lambda of: {"act": "tag", "runs": [str(of["runs"])], "add": ["best"]}
    ),
    API + "runs/<uuidstr:run_id>/launch": Act("run_launched"),
    API + "runs/<uuidstr:run_id>/clone": Act("run_added", {"launch": False}),
    API + "projects": Act("project_added", {"name": "New"}),
    API + "projects/<slug:slug>/models": Act("model_added", {"name": "qwen", "kind": "hub", "source": "a/b"}),
    API + "projects/<slug:slug>/datasets/fetch": Act("dataset_added", {"name": "d", "id": "openai/gsm8k"}),
    API + "datasets/<uuidstr:dataset_id>/keep": Act("dataset_kept"),
    API + "datasets/<uuidstr:dataset_id>/read": Act("dataset_added"),
    API + "environments/<uuidstr:environment_id>/dataset-orders": Act("dataset_ordered", ORDER),
    API + "runs/<uuidstr:run_id>/stop": Act("run_stopped"),
    API + "runs/<uuidstr:run_id>/pause": Act("run_paused"),
    API + "runs/<uuidstr:run_id>/resume": Act("run_resumed"),
    API + "runs/<uuidstr:run_id>/queue": Act("run_priority", {"priority": "high"}),
    API + "datasets/<uuidstr:dataset_id>/make": Act("dataset_added", {"operation": "split", "names": ["a", "b"]}),
    API + "runs/<uuidstr:run_id>/exports": Act("run_exported", {"to": "csv"}),
    API + "rollouts/<uuidstr:rollout_id>/continue": Act("run_launched", {"contestant": "policy:empty", "turn": 1}),
    API + "branches/<uuidstr:branch_id>/save": Act("dataset_added", {"kind": "row", "name": "branches"}),
    API + "rollouts/<uuidstr:rollout_id>/end": Act("rollout_ended"),
    API + "rollouts/<uuidstr:rollout_id>/fail": Act("rollout_failed"),
    API + "rollouts/<uuidstr:rollout_id>/case": Act("case_saved", {"name": "kept", "total": [0, 1]}),
    API + "runs/<uuidstr:run_id>/pairs": Act("dataset_added", {"name": "pairs", "min_gap": 0.5}),
    API + "datasets/<uuidstr:dataset_id>/exports": Act("dataset_exported", {"to": "jsonl"}),
    API + "environments/<uuidstr:environment_id>/scale": Act("environment_scaled", {"wanted": 2}),
    API + "environments/<uuidstr:environment_id>/restart": Act("environment_restart"),
    API + "projects/<slug:slug>/comparisons": Act(
        "comparison_saved", lambda of: {"name": "kept", "runs": [str(of["runs"]), str(of["other"])]}
    ),
    API + "comparisons/<uuidstr:comparison_id>/links": Act("comparison_shared", {"days": 7}),
    API + "projects/<slug:slug>/endpoints": Act(
        "endpoint_added", {"name": "new", "url": "https://93.184.216.34/v1", "model": "m"}
    ),
}


def _played(of: dict[str, Any]) -> list[str]:
    """Two evaluations of the same tasks."""
    return [str(of["evaluation"](name, {0: [1.0], 1: [0.0]}).pk) for name in ("x", "y")]


def _unrecorded(of: dict[str, Any]) -> str:
    """A spec with a component that these evaluations have not recorded."""
    components = [{"name": "coherence", "weight": 1.0, "params": {}}]
    return RewardSpec.objects.create(project=of["project"], name="other", components=components).reference


RESCORED = API + "projects/<slug:slug>/compare/rescore"
ACTS |= {
    PROJECT + "compare/rescore/": Act("rescoring_begun", lambda of: {"c": _played(of), "spec": _unrecorded(of)}),
    RESCORED: Act("rescoring_begun", lambda of: {"runs": _played(of), "spec": _unrecorded(of)}),
    PROJECT + "compare/rescorings/" + OWN_PK + "cancel/": Act("rescoring_cancelled"),
    API + "rescorings/<uuidstr:rescoring_id>/cancel": Act("rescoring_cancelled"),
}

ROUNDS, API_ROUNDS = PROJECT + "votes/" + OWN_PK, API + "vote-rounds/<uuidstr:round_id>/"
ACTS |= {
    PROJECT + "votes/new/": Act(
        "round_made", lambda of: {"name": "v", "ballots": "2", "voters": [of["voter"]], "c": _played(of)}
    ),
    ROUNDS + "close/": Act("round_closed"),
    ROUNDS + "reopen/": Act("round_reopened"),
    ROUNDS + "delete/": Act("round_deleted"),
    API + "projects/<slug:slug>/vote-rounds": Act("round_made", lambda of: {"name": "v", "runs": _played(of)}),
    API_ROUNDS + "close": Act("round_closed"),
    API_ROUNDS + "reopen": Act("round_reopened"),
}
DELETES = {
    API + "vote-rounds/<uuidstr:round_id>": "round_deleted",
    API + "projects/<slug:slug>/hub-token": "hub_token_removed",
    API + "projects/<slug:slug>/tokens/<uuidstr:token_id>": "token_revoked",
    API_MACHINE: "machine_ended",
    API_MACHINE + "/tokens/<uuidstr:machine_token>": "token_revoked",
    API + "runs/<uuidstr:run_id>": "run_deleted",
    API + "checkpoints/<uuidstr:checkpoint_id>": "checkpoint_deleted",
    API + "models/<uuidstr:model_id>": "model_deleted",
    API + "suites/<uuidstr:suite_id>": "suite_deleted",
    API + "sweeps/<uuidstr:sweep_id>": "sweep_deleted",
    API + "comparisons/<uuidstr:comparison_id>": "comparison_deleted",
    API + "comments/<uuidstr:comment_id>": "comment_deleted",
    API + "shared-links/<uuidstr:link_id>": "share_revoked",
    API + "channels/<uuidstr:channel_id>": "channel_deleted",
    API + "chats/<uuidstr:chat_id>": "chat_deleted",
    API + "datasets/<uuidstr:dataset_id>": "dataset_deleted",
    API + "rewards/<uuidstr:spec_id>": "reward_deleted",
    API + "reward-cases/<uuidstr:case_id>": "case_deleted",
    API + "rollout-views/<uuidstr:view_id>": "view_deleted",
    API + "branches/<uuidstr:branch_id>": "branch_deleted",
    API + "environments/<uuidstr:environment_id>": "environment_deleted",
    API + "projects/<slug:slug>": "project_deleted",
    API + "teams/<uuidstr:team_id>": "team_deleted",
    API + "endpoints/<uuidstr:endpoint_id>": "endpoint_deleted",
}
JSON = {PROJECT + "rewards/lab/save/"}
