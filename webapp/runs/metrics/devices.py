"""What the training devices of a run did over its last steps, for its page and the API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from training.lanes import LaneStep, Worked, worked
from webapp.common.text import percent
from webapp.runs.metrics.models import DeviceStep
from webapp.runs.models import Run

STEPS = 20


class Device(NamedTuple):
    """A device and its steps, oldest first. ``worked`` is ``None`` where the steps were evaluations alone."""

    host: str
    device: str
    worked: Worked | None
    steps: list[LaneStep]


class Devices(NamedTuple):
    """The devices of a run by host and device, over ``steps`` steps from ``first`` to ``last``, and all together."""

    devices: list[Device]
    worked: Worked | None
    first: int
    last: int
    steps: int

    @property
    def least(self) -> Device | None:
        """The one that worked least; ``None`` where it is not known of any, or there is only one."""
        known = [(each.worked.share, each) for each in self.devices if each.worked is not None]
        return min(known, key=lambda pair: pair[0])[1] if len(self.devices) > 1 and known else None


def devices_of(run: Run, steps: int = STEPS) -> Devices | None:
    """The devices over the newest ``steps`` steps that were recorded; ``None`` without any."""
    rows = DeviceStep.objects.filter(run=run)
    newest = rows.order_by("-step").values_list("step", flat=True).first()
    if newest is None:
        return None
    found: dict[tuple[str, str], list[LaneStep]] = {}
    numbers: set[int] = set()
    for row in rows.filter(step__gt=newest - steps).order_by("host", "device", "step"):
        found.setdefault((row.host, row.device), []).append(row.found)
        numbers.add(row.step)
    devices = [Device(*place, _worked(own), own) for place, own in found.items()]
    together = _worked([step for each in devices for step in each.steps])
    return Devices(devices, together, min(numbers), newest, len(numbers))


def _worked(steps: Sequence[LaneStep]) -> Worked | None:
    return worked([step.use for step in steps])


# In words.


def phase_names() -> dict[str, str]:
    """The title of each phase, as a noun."""
    return {
        "generation": pgettext("phase of a step", "generation"),
        "environment": pgettext("phase of a step", "environment"),
        "scoring": pgettext("phase of a step", "scoring"),
        "waiting": pgettext("phase of a step", "wait for rollouts"),
        "handover": pgettext("phase of a step", "handover of weights"),
        "training": pgettext("phase of a step", "training"),
        "saving": pgettext("phase of a step", "saving"),
        "evaluating": pgettext("phase of a step", "evaluation"),
        "other": pgettext("phase of a step", "other"),
    }


def title_of(device: Device) -> str:
    """Its host and name."""
    return f"{device.host} · {device.device}"


def whole_percent(share: float) -> str:
    """A share in whole percents: tenths would change with every step."""
    return percent(round(share, 2))


def answer_of(found: Devices) -> str:
    """How much the devices worked, which of several worked least, and what they waited for longest, as sentences."""
    if found.worked is None:
        return _("In these steps the devices only evaluated.")
    n = len(found.devices)
    values = {"share": whole_percent(found.worked.share), "n": n, "steps": _steps_text(found.steps)}
    if found.worked.measured:
        text = ngettext(
            "The device worked for %(share)s of the time of %(steps)s, as NVML measured it.",
            "The %(n)s devices worked for %(share)s of the time of %(steps)s, as NVML measured it.",
            n,
        )
    else:
        text = ngettext(
            "The device generated or trained for %(share)s of the time of %(steps)s, without evaluations.",
            "The %(n)s devices generated or trained for %(share)s of the time of %(steps)s, without evaluations.",
            n,
        )
    return " ".join([text % values, *_least(found), *_longest_wait(found.worked)])


def _steps_text(n: int) -> str:
    return ngettext("the last step", "the last %(n)s steps", n) % {"n": n}


def _least(found: Devices) -> Iterator[str]:
    if (least := found.least) is not None and least.worked is not None:
        yield _("The one that worked least: %(name)s, %(share)s.") % {
            "name": title_of(least),
            "share": whole_percent(least.worked.share),
        }


def _longest_wait(work: Worked) -> Iterator[str]:
    for phase, share in list(work.waits.items())[:1]:
        values = {"phase": phase_names()[phase], "share": whole_percent(share)}
        yield _("The longest wait: %(phase)s, %(share)s.") % values
