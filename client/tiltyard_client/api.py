"""The REST API of a Tiltyard site (docs/api.md), as Python calls. Answers are the server's JSON, unchanged."""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tiltyard_client.connection import PATIENCE_S, UNAVAILABLE, Connection, Json, LoginNeeded, Refused, Unreachable
from tiltyard_client.words import gettext as _

# The tar of a model, unpacked and held against the hashes in it.


def unpack(archive: Path, target: Path) -> list[Path]:
    """The members of the tar as files directly under ``target``, held against its ``SHA256SUMS``.

    Raises ``Refused`` with ``damaged``, and then leaves none of them.
    """
    sent: dict[str, str] = {}
    arrived: dict[str, str] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                source = tar.extractfile(member)
                if source is None or not name:
                    continue
                if name == "SHA256SUMS":
                    sent = {line[66:]: line[:64] for line in source.read().decode().splitlines()}
                    continue
                digest, path = hashlib.sha256(), target / name
                arrived[name] = ""  # begun: what is cut off goes with the others
                with path.open("wb") as file:
                    while piece := source.read(1 << 20):
                        digest.update(piece)
                        file.write(piece)
                arrived[name] = digest.hexdigest()
    except tarfile.TarError as exc:
        _remove(target / name for name in arrived)
        raise Refused(0, "damaged", _("The download is not whole: {why}").format(why=exc)) from exc
    wrong = sorted(name for name in sent.keys() | arrived.keys() if sent.get(name) != arrived.get(name))
    if wrong or not arrived:
        _remove(target / name for name in arrived)
        sentence = _("These files did not arrive as they were sent: {names}.")
        raise Refused(0, "damaged", sentence.format(names=", ".join(wrong) or _("all")))
    return [target / name for name in arrived]


def _remove(files: Iterable[Path]) -> None:
    """Remove files that did not arrive whole: they must not be taken for a model."""
    for path in files:
        path.unlink(missing_ok=True)


__all__ = ["Json", "LoginNeeded", "Refused", "Tiltyard", "Unreachable"]
ENDED = frozenset({"succeeded", "failed", "cancelled", "paused"})
WRITING = frozenset({"waiting", "answering"})
LOOK_S, WAIT_S = 2.0, 25
BUSY = (429, UNAVAILABLE)  # the site has too many questions, or its database is away


class Tiltyard(Connection):
    """One site, as one token sees it. ``project`` is the slug that calls about a project mean."""

    def me(self) -> Json:
        """The person that the token acts as, and its rights."""
        return self.call("GET", "/me")

    def projects(self) -> list[Json]:
        """The projects that the token sees."""
        return self.pages("/projects")

    # --- Runs ------------------------------------------------------------------------------------------------------
    def runs(self, **filters: Any) -> list[Json]:
        """Runs of the project, newest first; ``state``, ``kind``, ``q`` and the others of docs/api.md choose among
        them."""
        return self.pages(self.in_project("runs"), **filters)

    def run(self, name: str) -> Json:
        """One run with its config, by its id or its name; an archived one too."""
        sentence = _("There is no run '{name}' in {project}.")
        return self.call("GET", f"/runs/{self._id('runs', name, sentence, {'archived': False}, {'archived': True})}")

    def launch(
        self,
        name: str,
        *,
        yaml: str | None = None,
        config: Json | None = None,
        launch: bool = True,
        key: str = "",
        priority: str | None = None,
    ) -> Json:
        """Create a run and queue it. The same ``key`` gives the same run back, so that a call can be repeated. Only
        owners choose another ``priority`` than ``normal``."""
        body = {"name": name, "yaml": yaml, "config": config, "launch": launch, "idempotency_key": key or None}
        body["priority"] = priority
        send = {name: value for name, value in body.items() if value is not None}
        return self.once(self.in_project("runs"), json=send)

    def act(self, run_id: str, act: str) -> Json:
        """``stop``, ``pause`` or ``resume`` a run."""
        path = f"/runs/{run_id}/{act}"
        return self.once(path) if act == "resume" else self.call("POST", path)

    def queue(self, run_id: str, **changes: Any) -> Json:
        """Change a waiting run's place in the queue: ``priority``, ``on_hold``, ``first`` (owners)."""
        return self.call("PATCH", f"/runs/{run_id}/queue", json=changes)

    def clone(
        self,
        run_id: str,
        *,
        name: str,
        config: Mapping[str, Any],
        step: int | None = None,
        priority: str | None = None,
    ) -> Json:
        """The run again with the options of ``config`` changed; with ``step`` it continues from the checkpoint of that
        step. Without ``priority`` it has the class of the run, where you are an owner."""
        body = {"step": step, "name": name, "config": config, "priority": priority}
        return self.once(f"/runs/{run_id}/clone", json={key: value for key, value in body.items() if value is not None})

    def summary(self, run_id: str) -> Json:
        """The result of a run: first and last figures, best step, held out, cost, model, what to try next."""
        return self.call("GET", f"/runs/{run_id}/summary")

    def advisories(self, run_id: str) -> list[Json]:
        """What the run doctor found in a run, open ones first."""
        return self.call("GET", f"/runs/{run_id}/advisories")["items"]

    def devices(self, run_id: str, last: int = 20) -> Json:
        """What each training device did over the last steps."""
        return self.call("GET", f"/runs/{run_id}/devices", params={"last": last})

    def label(self, run_id: str, **changes: Any) -> Json:
        """Change what people write on a run: ``tags``, ``notes``, ``archived``."""
        return self.call("PATCH", f"/runs/{run_id}", json=changes)

    def batch(
        self,
        act: str,
        runs: Sequence[str],
        *,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
        priority: str | None = None,
    ) -> Json:
        """``tag`` (``add``, ``remove``), ``archive``, ``restore``, ``hold``, ``release``, ``priority`` or ``delete`` up
        to 200 runs by their ids; ``items`` has the outcome of each."""
        body: Json = {"act": act, "runs": list(runs), "add": list(add), "remove": list(remove)}
        body |= {"priority": priority} if priority else {}
        return self.once(self.in_project("runs/batch"), json=body)

    def star(self, run_id: str, starred: bool = True) -> Json:
        """Put your star on a run, or take it away."""
        return self.call("POST", f"/runs/{run_id}/star", json={"starred": starred})

    def watch(self, run_id: str, *, every_s: float | None = None, queued_s: int | None = None) -> Iterator[Json]:
        """The run as it changes, until it ends or pauses; of a step or an event at once. A server that is away is asked
        again for two minutes. With ``queued_s`` it is reported so often while it is queued: its place may change."""
        last, query = -1, {"limit": 1}  # the run as it is; then what happens from there on
        for found in self._asked(f"/runs/{run_id}/events", LOOK_S / 4 if every_s is None else every_s, query):
            run = found["run"]
            ended, queued = run["state"] in ENDED, queued_s is not None and run["state"] == "queued"
            if ended or queued or run["seq"] != last:
                last = run["seq"]
                yield run
            if ended:
                return
            wait = queued_s if queued_s is not None and queued else WAIT_S
            query |= {"after": run["seq"], "step": run["step"], "wait": wait}

    def figures(self, run_id: str, step: int, *names: str) -> dict[str, float]:
        """The metrics ``names`` of a step, those that it has."""
        params = {"name": list(names), "first": step, "last": step}
        found = self.call("GET", f"/runs/{run_id}/metrics", params=params)["curves"]
        ends = {name: curve["values"][-1] for name, curve in found.items() if curve["values"]}
        return {name: value for name, value in ends.items() if value is not None}

    def _asked(self, path: str, pause_s: float, query: Json | None = None) -> Iterator[Json]:
        """The same question again and again. Raises ``Unreachable`` or ``Refused`` once the site was away, or had too
        many questions, for too long."""
        heard = time.monotonic()
        while True:
            wait_s = pause_s
            try:
                found = self.call("GET", path, params=query)
            except (Unreachable, Refused) as exc:
                busy = isinstance(exc, Unreachable) or exc.status in BUSY
                if not busy or time.monotonic() - heard > PATIENCE_S:
                    raise
                wait_s = max(wait_s, getattr(exc, "wait_s", 0.0))
            else:
                heard = time.monotonic()
                yield found
            time.sleep(wait_s)

    def export(self, run_id: str, to: str, target: Callable[[str], Path]) -> tuple[Json, Path]:
        """The metrics of an ended run as a file: ``csv``, ``csv_wide``, ``parquet`` or ``tensorboard``.

        ``target`` makes a path of the name that the site gave it. Raises ``Refused`` where it could not be written.
        """
        made = self.once(f"/runs/{run_id}/exports", json={"to": to})
        while made["state"] in ("waiting", "writing"):
            time.sleep(LOOK_S / 4)
            made = self.call("GET", f"/runs/{run_id}/exports/{made['id']}")
        if made["state"] != "done":
            error = made.get("error") or {}
            message = str(error.get("message") or _("It could not be written."))
            raise Refused(0, str(error.get("code", "failed")), message)
        path = target(made["file_name"])
        self.fetch(f"/runs/{run_id}/exports/{made['id']}/file", path)
        return made, path

    def run_import(self, files: Sequence[tuple[str, BinaryIO]], name: str = "", source_run: str = "") -> Json:
        """Upload the files of a run that another trainer made, each with its name; they are read in the background.

        ``source_run`` names the run that is meant, where a table holds several.
        """
        sent = [("uploads", pair) for pair in files]
        data = {"name": name, "source_run": source_run}
        return self.once(self.in_project("runs/import"), data=data, files=sent, timeout=None)

    def run_import_watch(self, import_id: str, *, every_s: float | None = None) -> Iterator[Json]:
        """The import as it changes, until its files are read."""
        for found in self._asked(f"/run-imports/{import_id}", LOOK_S / 4 if every_s is None else every_s):
            yield found
            if found["state"] != "reading":
                return

    # --- Data and models -------------------------------------------------------------------------------------------
    def datasets(self, **filters: Any) -> list[Json]:
        """All versions of all datasets, newest first; ``name`` and the others of docs/api.md choose among them."""
        return self.pages(self.in_project("datasets"), **filters)

    def upload(self, file: BinaryIO, file_name: str, name: str) -> Json:
        """Upload a file as the next version under a name; it is checked in the background."""
        return self.once(
            self.in_project("datasets"), data={"name": name}, files={"file": (file_name, file)}, timeout=None
        )

    def dataset(self, dataset_id: str) -> Json:
        """One version with the report of its check."""
        return self.call("GET", f"/datasets/{dataset_id}")

    def models(self) -> list[Json]:
        """The registered models, newest first."""
        return self.pages(self.in_project("models"))

    def model(self, name: str) -> Json:
        """One registered model with its lineage, scores and card, by its name or ``model:NAME``."""
        sentence = _("There is no model '{name}' in {project}.")
        return self.call("GET", f"/models/{self._id('models', name.removeprefix('model:'), sentence)}")

    def model_change(self, model_id: str, **changes: Any) -> Json:
        """Change what the team says of a model: ``mark``, ``tags``, ``notes``, ``card``."""
        return self.call("PATCH", f"/models/{model_id}", json=changes)

    def model_push(self, model_id: str, repository: str, *, private: bool = True) -> Json:
        """Have the files of a model sent to the site's hub as ``owner/name``: the call lets them leave the site."""
        body = {"repository": repository, "private": private, "confirm": True}
        return self.once(f"/models/{model_id}/pushes", json=body)

    def push_watch(self, model_id: str, push_id: str, *, every_s: float | None = None) -> Iterator[Json]:
        """The push as it changes, until it ended: ``done`` or ``failed``."""
        for found in self._asked(f"/models/{model_id}/pushes", LOOK_S / 4 if every_s is None else every_s):
            push = next((item for item in found["items"] if item["id"] == push_id), None)
            if push is None:
                raise Refused(404, "not_found", _("This push is not known there any more."))
            yield push
            if push["state"] in ("done", "failed"):
                return

    def model_card(self, model_id: str) -> str:
        """The model card as Markdown."""
        return self.text(f"/models/{model_id}/card")

    def download(
        self, model_id: str, target: Path, *, part: str = "model", seen: Callable[[int, int], None] | None = None
    ) -> list[Path]:
        """The files of a model into the folder ``target``, each proved by the hash that the server sent.

        ``seen`` hears the bytes so far and in all. Raises ``Refused`` with ``damaged`` where a file does not match.
        """
        target.mkdir(parents=True, exist_ok=True)
        archive = target / ".download.tar"
        try:
            self.fetch(f"/models/{model_id}/download", archive, params={"part": part}, seen=seen)
            return unpack(archive, target)
        finally:
            archive.unlink(missing_ok=True)

    def _id(self, rest: str, name: str, sentence: str, *choices: Json) -> str:
        """The id of what has this name, or this id, in a list of the project: of the first of the ``choices`` among its
        rows that has one. Raises ``Refused`` with the sentence."""
        with contextlib.suppress(ValueError):
            return str(uuid.UUID(name))
        for choice in choices or ({},):
            if (row := self.named(rest, name, **choice)) is not None:
                return str(row["id"])
        raise Refused(404, "not_found", sentence.format(name=name, project=self.project))

    # --- Evaluation ------------------------------------------------------------------------------------------------
    def compare(self, runs: Sequence[str], spec: str = "") -> Json:
        """Evaluations side by side: figures, a verdict for each pair, and what is left out."""
        return self.call("GET", self.in_project("compare"), params={"c": list(runs), "spec": spec})

    def rescore(self, runs: Sequence[str], spec: str, *, confirmed: bool = False) -> Json:
        """Have what evaluations have not recorded of a spec computed from their transcripts; ``confirmed``: judges and
        models may be asked."""
        body = {"runs": list(runs), "spec": spec, "confirmed": confirmed}
        return self.once(self.in_project("compare/rescore"), json=body)

    def watch_rescoring(self, rescoring_id: str, *, every_s: float | None = None) -> Iterator[Json]:
        """Its progress, until it ends."""
        for found in self._asked(f"/rescorings/{rescoring_id}", LOOK_S if every_s is None else every_s):
            yield found
            if found["state"] not in ("waiting", "scoring"):
                return

    def comparison_save(self, name: str, runs: Sequence[str], spec: str = "") -> Json:
        """Keep a comparison under a name."""
        body = {"name": name, "runs": list(runs), "spec": spec}
        return self.call("POST", self.in_project("comparisons"), json=body)

    def comparison_share(self, comparison_id: str, days: int) -> Json:
        """A link that opens its report without an account. ``url`` is in this answer and never again."""
        return self.call("POST", f"/comparisons/{comparison_id}/links", json={"days": days})

    def suites(self) -> list[Json]:
        """The evaluation suites, each with its newest version."""
        return self.pages(self.in_project("suites"))

    def suite(self, name: str) -> Json:
        """The newest version of a suite with its leaderboard."""
        sentence = _("There is no suite '{name}' in {project}.")
        return self.call("GET", f"/suites/{self._id('suites', name, sentence)}")

    def suite_save(self, body: Json) -> Json:
        """Save a suite (docs/api.md); a name that exists gets its next version."""
        return self.call("POST", self.in_project("suites"), json=body)

    def suite_play(self, suite_id: str, contestant: str) -> Json:
        """Have a contestant play every part; ``runs`` are the ids of what was queued."""
        return self.once(f"/suites/{suite_id}/evaluations", json={"contestant": contestant})

    def sweeps(self) -> list[Json]:
        """The sweeps, newest first."""
        return self.pages(self.in_project("sweeps"))

    def sweep(self, name: str) -> Json:
        """A sweep with its answer and its settings."""
        sentence = _("There is no sweep '{name}' in {project}.")
        return self.call("GET", f"/sweeps/{self._id('sweeps', name, sentence)}")

    def sweep_delete(self, sweep_id: str, *, runs: bool = False) -> Json:
        """Delete a sweep; with ``runs`` its runs too, which only owners may."""
        return self.call("DELETE", f"/sweeps/{sweep_id}", params={"runs": True} if runs else None)

    def sweep_plan(self, body: Json) -> Json:
        """What a sweep would launch: ``config`` or ``yaml``, ``axes`` and ``mode`` (docs/api.md)."""
        return self.call("POST", self.in_project("sweeps/plan"), json=body)

    def sweep_create(self, name: str, body: Json) -> Json:
        """Launch all runs of a sweep; ``runs`` are those that were made."""
        return self.once(self.in_project("sweeps"), json=body | {"name": name})

    def rollout_order(self, rollout_id: str, act: str) -> Json:
        """End a rollout in flight (``end``), or count it as failed (``fail``)."""
        return self.call("POST", f"/rollouts/{rollout_id}/{act}")

    def rollout_continue(
        self, rollout_id: str, turn: int, contestant: str, times: int, temperature: float | None = None
    ) -> Json:
        """The run that continues from a turn of a rollout; its rollouts are branches."""
        body = {"turn": turn, "contestant": contestant, "times": times, "temperature": temperature}
        return self.once(f"/rollouts/{rollout_id}/continue", json=body)

    def rollout_branches(self, rollout_id: str) -> list[Json]:
        """Branches from the turns of a rollout, the newest first."""
        return list(self.call("GET", f"/rollouts/{rollout_id}/branches")["items"])

    def vote_rounds(self) -> list[Json]:
        """The blind votes, newest first, each with how many ballots you have left."""
        return self.pages(self.in_project("vote-rounds"))

    # --- Endpoints -------------------------------------------------------------------------------------------------
    def environments(self) -> list[Json]:
        """The environments by name, with their last checks."""
        return self.pages(self.in_project("environments"))

    def environment(self, name: str) -> Json:
        """One environment, by its name or ``environment:NAME``, with the sessions that runs have ``reserved``."""
        sentence, name = _("There is no environment '{name}' in {project}."), name.removeprefix("environment:")
        return self.call("GET", f"/environments/{self._id('environments', name, sentence)}")

    def endpoints(self) -> list[Json]:
        """The endpoints by name, with what was used of them."""
        return self.pages(self.in_project("endpoints"))

    def endpoint(self, name: str) -> Json:
        """One endpoint, by its name or ``endpoint:NAME``."""
        sentence = _("There is no endpoint '{name}' in {project}.")
        return self.call("GET", f"/endpoints/{self._id('endpoints', name.removeprefix('endpoint:'), sentence)}")

    def endpoint_add(self, **values: Any) -> Json:
        """Add an endpoint: ``name``, ``url``, ``model``, and if wanted ``key`` and the others of docs/api.md."""
        return self.call("POST", self.in_project("endpoints"), json=values)

    def endpoint_test(self, endpoint_id: str) -> Json:
        """Ask it one tiny chat with a tool."""
        return self.call("POST", f"/endpoints/{endpoint_id}/test")

    def endpoint_delete(self, endpoint_id: str) -> Json:
        """Delete it with its key."""
        return self.call("DELETE", f"/endpoints/{endpoint_id}")

    # --- Channels --------------------------------------------------------------------------------------------------
    def channels(self) -> list[Json]:
        """Where the project's events are posted, by name; never with addresses or secrets."""
        return self.rows(self.in_project("channels"))

    def channel(self, name: str) -> Json:
        """One channel, by its name or id."""
        for row in self.channels():
            if name in (row["name"], row["id"]):
                return row
        sentence = _("There is no channel '{name}' in {project}.")
        raise Refused(404, "not_found", sentence.format(name=name, project=self.project))

    def channel_add(self, **values: Any) -> Json:
        """Add a channel: ``name``, ``kind``, ``url``, ``events``, and if wanted ``secret`` and ``language``."""
        return self.call("POST", self.in_project("channels"), json=values)

    def channel_change(self, channel_id: str, **changes: Any) -> Json:
        """Change what is given; an empty ``secret`` removes it."""
        return self.call("PATCH", f"/channels/{channel_id}", json=changes)

    def channel_test(self, channel_id: str) -> Json:
        """Post a test message now: ``ok``, and the result in ``text``."""
        return self.call("POST", f"/channels/{channel_id}/test")

    def channel_resume(self, channel_id: str) -> Json:
        """Post to a paused channel again; ``sent`` messages that were held follow."""
        return self.call("POST", f"/channels/{channel_id}/resume")

    def channel_delete(self, channel_id: str) -> Json:
        """Delete it and forget its address."""
        return self.call("DELETE", f"/channels/{channel_id}")

    # --- Teams and people ------------------------------------------------------------------------------------------
    def teams(self) -> list[Json]:
        """The teams that you are in."""
        return list(self.call("GET", "/teams")["items"])

    def team_delete(self, team_id: str) -> Json:
        """Delete a team with all its projects; as its owner."""
        return self.call("DELETE", f"/teams/{team_id}")

    def people(self, *, q: str = "") -> list[Json]:
        """Everyone who can log in or could, or those with ``q`` in their name; as an administrator."""
        return self.pages("/people", q=q)

    def person_delete(self, person_id: str) -> Json:
        """Delete another person's account; what they made stays. As an administrator."""
        return self.call("DELETE", f"/people/{person_id}")

    # --- Retention -------------------------------------------------------------------------------------------------
    def retention(self) -> Json:
        """The project's rules of retention, and what they free now and within 30 days."""
        return self.call("GET", self.in_project("retention"))

    def retention_change(self, rules: Mapping[str, Json | None], *, preview: bool = False) -> Json:
        """Set rules by kind as ``{"days", "gib"}``; ``None`` gives the site's back. ``preview`` only answers."""
        return self.call("PATCH", self.in_project("retention"), json={"rules": dict(rules), "preview": preview})

    # --- Chats and news --------------------------------------------------------------------------------------------
    def chat(self, source: str, *, environment: str = "", **parameters: Any) -> Json:
        """Start a chat with ``model:NAME``, ``run:NAME``, ``checkpoint:ID`` or an id of Hugging Face."""
        body = {"contestants": [{"source": source}], "environment": environment, "parameters": parameters}
        return self.once(self.in_project("chats"), json=body)

    def say(self, chat_id: str, text: str) -> Json:
        """Say something in a chat; the answers follow."""
        return self.once(f"/chats/{chat_id}/messages", json={"text": text})

    def listen(self, chat_id: str, *, every_s: float | None = None) -> Iterator[Json]:
        """The chat as it changes, until nothing more is being written in it."""
        for chat in self._asked(f"/chats/{chat_id}", LOOK_S / 4 if every_s is None else every_s):
            yield chat
            if not any(answer["state"] in WRITING for answer in chat["answers"]):
                return

    def chat_stop(self, chat_id: str) -> Json:
        """Stop what is being written; what there is stays."""
        return self.call("POST", f"/chats/{chat_id}/stop")

    def chat_delete(self, chat_id: str) -> Json:
        """Delete a chat with all its messages."""
        return self.call("DELETE", f"/chats/{chat_id}")

    def notifications(self, *, project: str = "", unread: bool = False, most: int = 50) -> list[Json]:
        """The newest ``most`` (200 at the most) of your notifications."""
        query = {"project": project, "unread": unread, "per_page": most}
        return list(self.call("GET", "/notifications", params=query)["items"])

    def notifications_read(self, ids: Sequence[int] | None = None, *, project: str = "") -> Json:
        """Call notifications read: these, or all of a project, or without either all."""
        return self.call("POST", "/notifications/read", json={"ids": ids, "project": project})
