"""Codes in the reader's language: errors, reasons for a run's state, and outcomes of a rollout's task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.db import models
from django.utils.translation import gettext, gettext_lazy, gettext_noop

from training.words import Sentence, _, sentence
from webapp.common.text import clean_text, in_words

# The meaning of each error code, in the reader's language: the one table for runs, rollouts and preflights.
#
# A stored error keeps the words of the program that reported it, in English: they hold the facts of that one failure.
# Pages show the plain sentence of its code and what to do about it, and the reported words beneath.


class Words(NamedTuple):
    """A plain sentence for a code, and the next action."""

    title: str
    hint: str


# Sentences begin with the words in which they differ: on a rollout's card only the first words fit.
CODES: dict[str, Words] = {
    "internal": Words(
        gettext_noop("An unexpected failure inside Tiltyard."),
        gettext_noop("Try again; if it happens again, give your administrator the log."),
    ),
    "run_file": Words(
        gettext_noop("This is a file of a run, not a dataset."),
        gettext_noop("Use “Import a run” in the list of runs."),
    ),
    # training.errors
    "config_invalid": Words(
        gettext_noop("This config cannot be run."),
        gettext_noop("Change the option named below, then launch again."),
    ),
    "data_unreadable": Words(
        gettext_noop("The dataset cannot be read."),
        gettext_noop("See the dataset's page; upload a fixed version if rows are broken."),
    ),
    "cannot_continue": Words(
        gettext_noop("There is nothing to continue from at this turn."),
        gettext_noop("Continue from an earlier turn, on the page of the rollout's branches."),
    ),
    "model_unusable": Words(
        gettext_noop("The model cannot be used."),
        gettext_noop("Choose a folder with config.json, tokenizer files and safetensors weights, and no code."),
    ),
    "template_not_prefix_preserving": Words(
        gettext_noop("The model's chat template rewrites earlier turns."),
        gettext_noop("Training needs turns that stay as sampled: choose a model whose chat template keeps them."),
    ),
    "environment_unreachable": Words(
        gettext_noop("No connection to the environment."),
        gettext_noop("Check on the Environments page whether its server runs and answers."),
    ),
    "environment_timeout": Words(
        gettext_noop("Timed out waiting for the environment."),
        gettext_noop("See whether its server is overloaded; raise the time limit of the stage or lower the load."),
    ),
    "environment_protocol": Words(
        gettext_noop("Not understood: the environment's answer does not follow the protocol."),
        gettext_noop("Check the address, and that the server's version fits this version of Tiltyard."),
    ),
    "environment_full": Words(
        gettext_noop("No free session in the environment."),
        gettext_noop("Give the server more slots, or play fewer rollouts at once."),
    ),
    "environment_fault": Words(
        gettext_noop("Error inside the environment."),
        gettext_noop("See the server's log; the task itself may be broken."),
    ),
    "reward_fault": Words(
        gettext_noop("A reward component could not be computed."),
        gettext_noop("Try the reward on recorded rollouts on the Rewards page."),
    ),
    "custom_reward_fault": Words(
        gettext_noop("The custom reward failed."),
        gettext_noop("Test its code on these rollouts, fix it and save the next version of the reward spec."),
    ),
    "reward_timeout": Words(
        gettext_noop("Scoring took too long."),
        gettext_noop("Make the reward component cheaper, or raise its time limit."),
    ),
    "scorer_died": Words(
        gettext_noop("The scoring process ended by itself."),
        gettext_noop("Try again: a new process has replaced it."),
    ),
    "policy_fault": Words(
        gettext_noop("Sampling from the model failed."),
        gettext_noop("The run's log says why; short memory is the usual cause."),
    ),
    "endpoint_fault": Words(
        gettext_noop("The endpoint failed, or its answer is not a chat completion."),
        gettext_noop("Check that the address belongs to an OpenAI-compatible server, and read that server's log."),
    ),
    "endpoint_refused": Words(
        gettext_noop("The endpoint refuses the requests."),
        gettext_noop("Check its address, its key and the name of the model, then resume."),
    ),
    "endpoint_key_refused": Words(
        gettext_noop("The endpoint refuses the key."),
        gettext_noop("Replace the key on the endpoint's page, then resume."),
    ),
    "endpoint_away": Words(
        gettext_noop("The endpoint cannot be reached."),
        gettext_noop("Start it again, then resume: what was played is kept."),
    ),
    "endpoint_busy": Words(
        gettext_noop("The endpoint accepts no more requests (429)."),
        gettext_noop("Lower its concurrent requests, or wait, then resume: what was played is kept."),
    ),
    "endpoint_timeout": Words(
        gettext_noop("The endpoint did not answer in time."),
        gettext_noop("Raise its time limit, or send fewer requests at once."),
    ),
    "budget_spent": Words(
        gettext_noop("A limit on tokens or cost is reached."),
        gettext_noop("What was played is kept. Raise the limit, then resume to play the rest."),
    ),
    "too_many_failures": Words(
        gettext_noop("Most rollouts failed outside the model, so nothing was left to learn from."),
        gettext_noop("Read some excluded rollouts: they name what failed. Fix it, then resume the run."),
    ),
    "hub_refused": Words(
        gettext_noop("The hub refuses the server's token."),
        gettext_noop("The token must have write access to this name; the operator sets TILTYARD_HUB_TOKEN."),
    ),
    "hub_taken": Words(
        gettext_noop("The hub has a repository of this name already."),
        gettext_noop("Choose another name; a repository that this project did not push is never overwritten."),
    ),
    "hub_full": Words(
        gettext_noop("The hub has no room for these files."),
        gettext_noop("Free room there, or push to another account, then try again."),
    ),
    "hub_away": Words(
        gettext_noop("The hub cannot be reached, or broke off."),
        gettext_noop("Try again later; files that arrived are not sent again."),
    ),
    "hub_answer": Words(
        gettext_noop("The hub answered something unexpected."),
        gettext_noop("Check that TILTYARD_HUB_URL is the address of a Hugging Face hub."),
    ),
    "files_away": Words(
        gettext_noop("The store of files does not answer."),
        gettext_noop("The run continues by itself once it does."),
    ),
    "files_refused": Words(
        gettext_noop("The store of files refuses our access."),
        gettext_noop("Ask the operator to correct the access to TILTYARD_FILES; the run then continues by itself."),
    ),
    "files_full": Words(
        gettext_noop("The store of files is full."),
        gettext_noop("Ask the operator for more room in TILTYARD_FILES; the run then continues by itself."),
    ),
    "files_missing": Words(
        gettext_noop("A file that the run needs is not in the store of files."),
        gettext_noop("Ask the operator to run “manage.py publish_files”, then resume."),
    ),
    "files_torn": Words(
        gettext_noop("A file in the store of files is damaged."),
        gettext_noop("Ask the operator to run “manage.py publish_files”, then resume."),
    ),
    "secret_unreadable": Words(
        gettext_noop("A key or token cannot be read with this site's secret key."),
        gettext_noop("Enter it again where it is set, or ask the operator for the earlier secret key, then resume."),
    ),
    "storage_full": Words(
        gettext_noop("The disk is full."),
        gettext_noop("Free space on the disk of the data folder; the run then continues by itself."),
    ),
    "storage_limit": Words(
        gettext_noop("The project stores as much as it may."),
        gettext_noop("Delete runs, checkpoints or datasets, or ask an administrator for a higher limit."),
    ),
    "storage_failed": Words(
        gettext_noop("The disk is read-only, or fails."),
        gettext_noop("Repair the disk of the data folder, or mount it for writing; the run then continues by itself."),
    ),
    "stopped": Words(
        gettext_noop("A person stopped the run."),
        gettext_noop("It can be resumed if a checkpoint was saved."),
    ),
    "not_finite": Words(
        gettext_noop("Loss, gradients, weights or values are not finite."),
        gettext_noop(
            "That step was neither saved nor learned from. Lower the learning rate: resume with changed options."
        ),
    ),
    "no_gradient": Words(
        gettext_noop("Nothing was learned in many updates in a row: loss and gradient were exactly 0."),
        gettext_noop(
            "The message says why. Continue from an earlier checkpoint with a lower learning rate or other tasks."
        ),
    ),
    "sampler_disagrees": Words(
        gettext_noop("The sampler's log-probabilities differ from the trainer's."),
        gettext_noop("Training on such samples would be wrong. The message names the likely cause and what to do."),
    ),
    "out_of_memory": Words(
        gettext_noop("The device ran out of memory."),
        gettext_noop("The weights are as they were before the step. Resume with the changed options named below."),
    ),
    "device_failed": Words(
        gettext_noop("The GPU or its driver failed, or another program keeps the GPU for itself."),
        gettext_noop(
            "A resumed run starts at its last checkpoint. If it fails again, look at the GPU with nvidia-smi."
        ),
    ),
    "cluster_unreachable": Words(
        gettext_noop("The Ray cluster does not answer."),
        gettext_noop("See whether its head runs, and the network to it; the run continues by itself."),
    ),
    "cluster_short": Words(
        gettext_noop("The Ray cluster does not have the devices that the run asks for, or other jobs use them."),
        gettext_noop("Start the hosts that are missing, or wait until other jobs end; the run continues by itself."),
    ),
    "cluster_refused": Words(
        gettext_noop("The Ray cluster refuses the worker's token."),
        gettext_noop("Set RAY_AUTH_MODE and RAY_AUTH_TOKEN where the worker is started, then resume."),
    ),
    "process_lost": Words(
        gettext_noop("A process or a host of the job was lost."),
        gettext_noop("Its log names it. The run continues by itself from its newest checkpoint."),
    ),
    "sampler_died": Words(
        gettext_noop("The vLLM server that samples ended, or did not start."),
        gettext_noop("Resume: the sampler is started again, and the interrupted step is played again."),
    ),
    "trainer_crashed": Words(
        gettext_noop("The trainer crashed."),
        gettext_noop("The end of the log has the traceback."),
    ),
    # webapp.runs
    "trainer_died": Words(
        gettext_noop("The trainer ended without reporting a result."),
        gettext_noop("Read the last lines of its output; if the system killed it, memory was usually short."),
    ),
    "trainer_killed": Words(
        gettext_noop("The trainer was killed from outside."),
        gettext_noop("A person or a program on its machine ended it. The run continues by itself."),
    ),
    "crash_loop": Words(
        gettext_noop("Several attempts in a row ended without a new step."),
        gettext_noop(
            "The reason for the last failure is below: fix it. If there is a checkpoint, the run can then be resumed."
        ),
    ),
    "worker_lost": Words(
        gettext_noop("The worker stopped answering."),
        gettext_noop("Check whether its machine is up and can reach the database."),
    ),
    "worker_closing": Words(
        gettext_noop("The worker was shut down."),
        gettext_noop("The run continues with the next free worker."),
    ),
    "context_full": Words(
        gettext_noop("The conversation is too long for this model."),
        gettext_noop("Edit an earlier message to begin from there, lower “Tokens at most”, or start another chat."),
    ),
    "chat_died": Words(
        gettext_noop("The process that held the model ended."),
        gettext_noop("Regenerate; if it ends again, the model may need more memory than the worker has."),
    ),
    "chat_cut": Words(
        gettext_noop("Cut off: the worker that wrote this answer is gone."),
        gettext_noop("What was written is kept. Regenerate, and another worker answers."),
    ),
    "chat_gave_way": Words(
        gettext_noop("A run needed the worker."),
        gettext_noop("What was written is kept. Regenerate: the answer waits until a worker is free."),
    ),
    "supervisor_fault": Words(
        gettext_noop("The worker failed while it supervised the trainer."),
        gettext_noop("The worker's log has the details; give it to your administrator."),
    ),
    "lease_lost": Words(
        gettext_noop("Another worker has taken the run over."),
        gettext_noop("Nothing to do: the run continues there."),
    ),
    "dependency_failed": Words(
        gettext_noop("This run starts from the model of another run, and that run did not succeed."),
        gettext_noop("Once that run has succeeded, resume this one."),
    ),
    # webapp.rewards.lab
    "rescoring_failed": Words(
        gettext_noop("The recorded rollouts could not be scored."),
        gettext_noop("The scores so far are kept; start it again to continue."),
    ),
    "set_unbuildable": Words(
        gettext_noop("The rollout set could not be created."),
        gettext_noop("The reason is below; fix it, then create the set again."),
    ),
    "rollout_ended": Words(
        gettext_noop("Ended by a person while it was in flight."),
        gettext_noop("Nothing to do: it has no reward and no part in its group's baseline."),
    ),
    "attempt_ended": Words(
        gettext_noop("Cut off: the attempt ended while this rollout was in flight."),
        gettext_noop("Nothing to do: the next attempt plays the step again."),
    ),
}
BOUNDARIES = {
    "config": gettext_noop("config"),
    "data": gettext_noop("data"),
    "model": gettext_noop("model"),
    "environment": gettext_noop("environment"),
    "tool": gettext_noop("tool"),
    "reward": gettext_noop("reward"),
    "policy": gettext_noop("policy"),
    "storage": gettext_noop("storage"),
    "lease": gettext_noop("worker"),
    "trainer": gettext_noop("trainer"),
}


class Failure(NamedTuple):
    """One stored error as a page shows it; ``detail`` is what was reported, in the reporter's words."""

    code: str
    boundary: str
    title: str
    hint: str
    detail: str


def failure(error: Mapping[str, Any] | None) -> Failure | None:
    """A stored error in the reader's words; for an unknown code, its own message."""
    if not error:
        return None
    code, hint = clean_text(str(error.get("code") or "")), in_words(clean_text(str(error.get("hint") or "")))
    message = clean_text(in_words(error.get("told") or str(error.get("message") or "")))
    where = str(error.get("boundary") or "")
    boundary = gettext(BOUNDARIES[where]) if where in BOUNDARIES else where
    words = CODES.get(code)
    if words is None:
        return Failure(code, boundary, message, hint, "")
    words = Words(gettext(words.title), gettext(words.hint))
    # A reporter may have used the table's own sentences: nothing is shown twice.
    parts = [part for part in (message, hint) if part and part not in words]
    return Failure(code, boundary, *words, " ".join(parts))


def failure_strings() -> dict[str, str]:
    """The table for scripts: ``error.<code>``, ``error.<code>.hint``, ``boundary.<name>``."""
    titles = {f"error.{code}": gettext(words.title) for code, words in CODES.items()}
    hints = {f"error.{code}.hint": gettext(words.hint) for code, words in CODES.items()}
    return {**titles, **hints, **{f"boundary.{name}": gettext(text) for name, text in BOUNDARIES.items()}}


# Reasons for changes of a run's state without an error: sentences in the reader's language, for pages and scripts.

CREATED = _("created")
PAUSED_BY_DOCTOR = _("paused by a rule of the project: {advisory}")
ROOM = _("the disk has room again: {free} free")
WRITABLE = _("the disk can be written again")
ANSWERS_AGAIN = _("its environment answers again")
BUDGET_AGAIN = _("its endpoint can be called again")
TAKES_FILES = _("the store of files takes files again")
TRIED_AGAIN = _("tried again, in case the cause of the pause is over")
BY_SOMEBODY = {
    "launched": _("launched by {name}"),
    "stopped": _("stopped by {name}"),
    "paused": _("paused by {name}"),
    "resumed": _("resumed by {name}"),
}
BY_ITSELF = {
    "launched": _("launched"),
    "stopped": _("stopped"),
    "paused": _("paused"),
    "resumed": _("resumed"),
}
RECOVERED = (ROOM, WRITABLE, ANSWERS_AGAIN, BUDGET_AGAIN, TAKES_FILES, TRIED_AGAIN)
"""Reasons of runs that resume by themselves."""
STATE_REASONS = (CREATED, PAUSED_BY_DOCTOR, *RECOVERED, *BY_SOMEBODY.values(), *BY_ITSELF.values())


def reason_of(act: str, name: str = "") -> Sentence:
    """The reason for a person's act on a run, or the product's own where there is no name."""
    return sentence(BY_SOMEBODY[act], name=name) if name else sentence(BY_ITSELF[act])


# The words for the outcome of a rollout's task: the same on every page, in the API and in live frames.


class Outcome(models.TextChoices):
    """The outcome of a task; ``webapp/runs/rollouts/figures.py`` decides it. Sorting by it uses the order here.

    Whether a rollout was cut off is a separate fact, its status: a task may be failed and truncated.
    """

    FAILED = "failed", gettext_lazy("failed")
    PARTLY = "partly", gettext_lazy("partly")
    SOLVED = "solved", gettext_lazy("solved")
    NO_VERDICT = "no_verdict", gettext_lazy("no verdict")
    EXCLUDED = "excluded", gettext_lazy("excluded")
    IN_FLIGHT = "in_flight", gettext_lazy("in flight")


def outcome_of(verdict: float | None) -> Outcome:
    """The word for a verdict from 0 to 1 on an episode that counts; ``None`` or NaN without a verdict."""
    if verdict is None or math.isnan(verdict):
        return Outcome.NO_VERDICT
    if verdict >= 1:
        return Outcome.SOLVED
    return Outcome.PARTLY if verdict > 0 else Outcome.FAILED
