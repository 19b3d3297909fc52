"""Detectors of what is played: what groups teach, what becomes of completions, and what fails outside the policy."""

from __future__ import annotations

from collections.abc import Sequence

from training.doctor.digest import Digest
from training.doctor.history import Finding, History, mean, middle, number, percent
from training.doctor.options import DoctorOptions
from training.lanes import DevicePhase, Worked, worked
from training.words import _, sentence

# What the groups teach: nothing, something else than the task, or the opposite.

MIN_GROUPS = 3
MIN_SILENT = 16
LEARNED = 0.8
"""From this success on groups have zero variance because the run has done its work."""


def no_spread(history: History, options: DoctorOptions) -> Finding | None:
    """Most groups have equal rewards, or half of them for long."""
    curve = "groups/zero_variance_share"
    points = history.points(curve) or history.shares("flat", "groups")
    name = "success" if history.recent("success") else "rollouts/task_success"
    solved, for_long = history.recent(name), history.recent(name, options.long_window)
    learned = bool(for_long) and mean(for_long) >= LEARNED
    share = _lasting([value for _step, value in points], history, options, for_long=not learned)
    if share is None:
        return None
    figures: dict[str, str | int] = {"share": percent(share), "solved": percent(mean(solved)) if solved else "–"}
    return Finding(figures, {curve: points}, history.witnesses("flat"))


def zero_advantages(history: History, options: DoctorOptions) -> Finding | None:
    """Most advantages are 0, or half of them for long."""
    curve = "advantages/zero_share"
    points = history.points(curve)
    share = _lasting([value for _step, value in points], history, options)
    return None if share is None else Finding({"share": percent(share)}, {curve: points}, [])


def _lasting(shares: list[float], history: History, options: DoctorOptions, *, for_long: bool = True) -> float | None:
    """The mean over twice the window where it is too high, else, ``for_long``, that over the long window."""
    limits = [(2 * history.window, options.no_spread_share), (options.long_window, options.no_spread_long)]
    for steps, limit in limits[: 1 + for_long]:
        if len(shares) >= steps and (share := mean(shares[-steps:])) >= limit:
            return share
    return None


def phantom_share(history: History, options: DoctorOptions) -> Finding | None:
    """In many groups the rewards differ although all outcomes are the same."""
    steps = 2 * history.window
    cases, groups = history.pooled("phantom", "groups", steps)
    if len(history.recent("groups", steps)) < steps or cases < MIN_GROUPS or cases < options.phantom_share * groups:
        return None
    figures: dict[str, str | int] = {"cases": int(cases), "groups": int(groups)}
    return Finding(figures, {"phantom_share": history.shares("phantom", "groups")}, history.witnesses("phantom"))


def shaping_above_outcome(history: History, options: DoctorOptions) -> Finding | None:
    """In groups with mixed outcomes, one that did not solve the task earns the most."""
    cases, groups = history.pooled("inverted", "mixed")
    if cases < MIN_GROUPS or cases < options.inverted_share * groups:
        return None
    figures: dict[str, str | int] = {"cases": int(cases), "groups": int(groups)}
    return Finding(figures, {"inverted_share": history.shares("inverted", "mixed")}, history.witnesses("inverted"))


def no_calls(history: History, options: DoctorOptions) -> Finding | None:
    """Tools are offered, and no rollout has a call that could be read."""
    name, rollouts = "rollouts/calls_mean", 0
    for digest in reversed(history.digests):
        if digest.figures.get(name) != 0:
            break
        rollouts += int(digest.figures.get("kept", 1))
    if rollouts < MIN_SILENT:
        return None
    return Finding({"rollouts": rollouts}, {name: history.points(name)}, history.witnesses("longest"))


# What becomes of the completions: longer, cut off, repeating, unreadable.

MIN_TEXTS = 8
SUCCESSES = ("heldout/success", "rollouts/task_success", "success")
MIN_LEVELS, EARNED = 3, 0.1


def length_explosion(history: History, options: DoctorOptions) -> Finding | None:
    """Completions are much longer than 10 steps before, or than at first while success is no higher."""
    name = "completions/mean_length"
    now, earlier, begun = history.recent(name), history.before(name), history.begin(name)
    if len(now) < history.window or not earlier:
        return None
    level, before = mean(now), mean(earlier)
    if level < options.length_ratio * before:
        if begun is None or level < options.length_drift * begun or _earned(history):
            return None
        before = begun
    figures: dict[str, str | int] = {"before": number(before), "now": number(level)}
    return Finding(figures, {name: history.points(name)}, history.witnesses("longest"))


def _earned(history: History) -> bool:
    """Whether success has risen since the run began: then longer answers may be what it took."""
    name = next((name for name in SUCCESSES if history.course(name)), "")
    levels = history.stretches(name, MIN_LEVELS)
    return bool(levels) and levels[-1].mean - levels[0].mean >= EARNED


def truncation(history: History, options: DoctorOptions) -> Finding | None:
    """Limits cut many rollouts off: lately, for long, or many more than before."""
    name = "rollouts/truncated_share"
    now, long, earlier = history.recent(name), history.recent(name, options.long_window), history.lowest(name)
    if len(now) < history.window:
        return None
    share = mean(now)
    rose = earlier is not None and share - earlier >= options.truncated_rise
    lasts = len(long) == options.long_window and mean(long) >= options.truncated_long
    if share < options.truncated_share and not rose and not lasts:
        return None
    return Finding({"share": percent(share)}, {name: history.points(name)}, history.witnesses("truncated"))


def repeated_text(history: History, options: DoctorOptions) -> Finding | None:
    """Completions repeat themselves far more than at first."""
    name = "completions/repeated_share"
    now, begun = history.recent(name), history.begin(name)
    if len(now) < history.window or begun is None or mean(now) - begun < options.repetition_share:
        return None
    figures: dict[str, str | int] = {"before": percent(begun), "now": percent(mean(now))}
    return Finding(figures, {name: history.points(name)}, [])


def repetition(history: History, options: DoctorOptions) -> Finding | None:
    """Many rollouts say the same again and again."""
    return _share(history, "repeating", "texts", "repetition_share", options.repetition_share)


def looping(history: History, options: DoctorOptions) -> Finding | None:
    """Many rollouts make one call again and again, and do not solve their task."""
    return _share(history, "looping", "acting", "loop_share", options.loop_share)


def format_decay(history: History, options: DoctorOptions) -> Finding | None:
    """More calls cannot be read than 10 steps before, or than at first."""
    earlier = history.lowest_share("unread_share")
    cases, rollouts = history.pooled("unread", "kept")
    if earlier is None or cases < MIN_TEXTS or cases / rollouts - earlier < options.format_rise:
        return None
    figures: dict[str, str | int] = {"before": percent(earlier), "now": percent(cases / rollouts)}
    return Finding(figures, {"unread_share": history.shares("unread", "kept")}, history.witnesses("unread"))


def _share(history: History, part: str, whole: str, curve: str, least: float) -> Finding | None:
    cases, rollouts = history.pooled(part, whole)
    if len(history.recent(whole)) < history.window or cases < MIN_TEXTS or cases < least * rollouts:
        return None
    figures: dict[str, str | int] = {"cases": int(cases), "rollouts": int(rollouts)}
    return Finding(figures, {curve: history.shares(part, whole)}, history.witnesses(part))


# What fails outside the policy: tools, judges, environments; and what waits for them.

MIN_CALLS = 20
MIN_REQUESTS = 5
MIN_LOST = 5
MIN_TRIES = 8


def tool_failures(history: History, options: DoctorOptions) -> Finding | None:
    """Many tool calls are answered by an error, or many more than 10 steps before, or than at first."""
    failed, calls = history.pooled("failed_calls", "calls")
    if len(history.recent("calls")) < history.window or calls < MIN_CALLS:
        return None
    earlier = history.lowest_share("tool_failure_share")
    share = failed / calls
    risen = earlier is not None and share - earlier >= options.tool_failure_rise
    if share < options.tool_failure_share and not risen:
        return None
    figures: dict[str, str | int] = {"failed": int(failed), "calls": int(calls)}
    points = history.shares("failed_calls", "calls")
    return Finding(figures, {"tool_failure_share": points}, history.witnesses("failed_calls"))


def judge_failures(history: History, options: DoctorOptions) -> Finding | None:
    """Judges do not answer."""
    failed, asked = history.pooled("judge/failures", "judge/requests")
    if asked < MIN_REQUESTS or failed < options.judge_failure_share * asked:
        return None
    figures: dict[str, str | int] = {"failed": int(failed), "asked": int(asked)}
    points = history.shares("judge/failures", "judge/requests")
    return Finding(figures, {"judge_failure_share": points}, history.witnesses("excluded"))


def excluded_share(history: History, options: DoctorOptions) -> Finding | None:
    """Many rollouts are lost."""
    name = "rollouts/excluded_share"
    now = history.recent(name)
    if len(now) < history.window or mean(now) < options.excluded_share:
        return None
    return Finding({"share": percent(mean(now))}, {name: history.points(name)}, history.witnesses("excluded"))


def excluded_bias(history: History, options: DoctorOptions) -> Finding | None:
    """Those that are lost are of the harder tasks, so that what is learned from is easier than what was drawn."""
    steps = 2 * history.window
    lost = sum(history.recent("excluded", steps))
    (solved_lost, tries_lost), (solved_whole, tries_whole) = (
        history.pooled(f"{name}_solved", f"{name}_tries", steps) for name in ("lost", "whole")
    )
    if lost < MIN_LOST or min(tries_lost, tries_whole) < MIN_TRIES:
        return None
    of_lost, of_whole = solved_lost / tries_lost, solved_whole / tries_whole
    if of_whole - of_lost < options.excluded_gap:
        return None
    figures: dict[str, str | int] = {"lost": int(lost), "theirs": percent(of_lost), "others": percent(of_whole)}
    curve = "rollouts/excluded_share"
    points = history.points(curve) or history.shares("excluded", "rollouts")
    return Finding(figures, {curve: points}, history.witnesses("excluded"))


def stall(history: History, options: DoctorOptions) -> Finding | None:
    """A step took many times as long as usual."""
    now, before = history.last("timing/step"), history.trailing("timing/step")
    if now is None or not before or now < max(options.stall_s, options.stall_ratio * middle(before)):
        return None
    figures: dict[str, str | int] = {"now": number(now), "usual": number(middle(before))}
    return Finding(figures, {"timing/step": history.points("timing/step")}, history.witnesses("slowest"))


def overdue(history: History, options: DoctorOptions, waited_s: float) -> Finding | None:
    """The step that is being made takes many times as long as usual: ``waited_s`` since the last one ended."""
    before = history.recent("timing/step", 20)
    if len(before) < 5 or waited_s < max(options.stall_s, options.stall_ratio * middle(before)):
        return None
    figures: dict[str, str | int] = {"now": number(waited_s), "usual": number(middle(before))}
    return Finding(figures, {"timing/step": history.points("timing/step")}, [])


# Devices that wait.

MEASURED, BY_PHASES = _("what its driver measured (NVML)"), _("the phases generation and training")
IDLE_CAUSES: dict[DevicePhase | None, str] = {
    "environment": _(
        "It waited longest for environments, {wait}: allow more sessions at once (`environment.sessions`, more "
        "replicas), or play ahead of the training (`rollout.max_staleness`)."
    ),
    "waiting": _(
        "It waited longest for rollouts, {wait}: give the sampler more devices, or let it play further ahead "
        "(`rollout.max_staleness`)."
    ),
    "scoring": _("It waited longest for scores, {wait}: look for the slowest reward, such as a judge or a program."),
    "handover": _(
        "It waited longest for the handover of weights, {wait}: make several updates of each sampling "
        "(`optim.mini_batch_size`), or train an adapter (`model.lora_rank`)."
    ),
    "saving": _("It waited longest for checkpoints, {wait}: save less often (`run.save_every`)."),
    None: _(
        "Waiting does not explain it, so it has little to do at a time: play more rollouts in a step "
        "(`rollout.prompts_per_step`), or train on larger micro batches (`optim.micro_batch_size`)."
    ),
}


def device_idle(history: History, options: DoctorOptions) -> Finding | None:
    """A device works for a small part of the time; of several, the one that works least."""
    recent = history.digests[-2 * history.window :]
    counting = [each for each in recent if each.devices]
    found: list[tuple[Worked, str, str]] = []
    for host, device, *_figures in counting[-1].devices if counting else ():
        work = worked([use for each in counting for use in each.devices if (use.host, use.device) == (host, device)])
        if work is not None and work.steps >= history.window:
            found.append((work, host, device))
    least, host, device = min(found, key=lambda each: (each[0].share, each[1:]), default=(None, "", ""))
    if least is None or least.share >= options.idle_share:
        return None
    left = least.left_out + sum("devices_left_out" in each.figures for each in recent)
    wait = percent(least.waits[least.cause]) if least.cause is not None else ""
    figures: dict[str, str | int] = {
        "device": device,
        "host": host,
        "share": percent(least.share),
        "n": least.steps,
        "by": sentence(MEASURED if least.measured else BY_PHASES),
        "left": left,
        "cause": sentence(IDLE_CAUSES[least.cause], wait=wait),
    }
    return Finding(figures, {"device_work": _work_points(counting, host, device)}, [])


def _work_points(digests: Sequence[Digest], host: str, device: str) -> list[tuple[int, float]]:
    own = [(each.step, worked([use])) for each in digests for use in each.devices if use[:2] == (host, device)]
    return [(step, work.share) for step, work in own if work is not None]
