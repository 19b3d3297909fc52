"""Makes docs/doctor.md of the rules' own words: ``python -m training docs doctor``; a test keeps it current."""

from __future__ import annotations

from collections.abc import Sequence

from training.doctor.diagnosis import GAMED, STUCK
from training.doctor.options import DoctorOptions
from training.doctor.rules import RULES, SEVERITIES, Rule

_HEAD = """\
# The run doctor

Made from `training/doctor/` by `python -m training docs doctor`. The doctor looks at each finished step of a run that
learns from rollouts: at its curves ([metrics.md](metrics.md)) and at a few facts of each rollout. What it finds is an
*advisory*, with the curve and up to three rollouts that show it. An advisory is over once its cause has been absent for
`calm` steps.

`python -m training doctor RUN` reads a run's journals; in a folder of numbered attempts it reads all of them. Its exit
code is 1 where an advisory is open at the end. In the web interface every run that learns from rollouts is looked at
while it trains, some seconds after each step: its page shows what was found, the list of runs counts the open ones, and
who watches the run is notified of what is to be looked at.

"About 10 steps before" means the mean of up to 20 steps that ended five steps before the window began, at least five of
them. A rule that needs it is silent in the first 15 steps of a run and of each stage. A figure that was not recorded
says nothing. Success of a rollout is the environment's word, else the component that judges the task itself
([reward-lab.md](reward-lab.md)).

## Diagnosis

One line at the top of the run's page answers whether it learns what it should. `GET /api/v1/runs/<id>/summary`,
`tiltyard run show`, the column *Diagnosis* of the list of runs and `python -m training doctor` give it, too. The first
line that applies is the answer:

| answer | when |
|---|---|
| gamed | one of these advisories is open: {gamed} |
| stuck | one of these is open: {stuck} |
| too early to tell | fewer than 20 steps have a figure of success; of the reward where no success is known |
| nearly all tasks are solved | success in the last tenth of the run is 95% or more |
| learning, getting worse | it differs from that of the first tenth by more than three standard errors |
| no change beyond chance | else |

A tenth has ten steps at least. The standard error is read from how much successive steps differ over the last 64
steps, and is not less than that of as many coins as there were rollouts. Of runs that learn nothing at most 2% get
another answer at one look (200 simulated runs of 60 steps). A new stage is compared with its own first tenth. The
figures are of training tasks; held-out success is on the page's charts.

## Rules of a project

*Settings → Run doctor* of a project, or `PATCH /api/v1/projects/<slug>/doctor`, sets the [thresholds](#thresholds) for
all of its runs, and what follows from an advisory when it opens in a run that is at work:

- `notify` (the default): it is shown, and people are notified unless it is only good to know;
- `keep`: the newest checkpoint from before its first step is kept from then on, whatever `run.keep_last` says; five of
  a run at most;
- `pause`: the same, and the run is paused. It continues when a person resumes it, and is not paused again for that
  advisory.

*Roll back to step N and change*, next to an advisory of a run that is paused or has ended, opens the launch form with
the newest checkpoint from before it. The child continues from there with other options, where the doctor advises it
with half the learning rate. Any other checkpoint is chosen on the run's page under *Events*.

## Advisories

| advisory | what it says | how grave |
|---|---|---|
"""
_OPTIONS = """
## Thresholds

Shares go from 0 to 1. `python -m training doctor RUN --set name=value` takes others.

| option | title | default | unit | what it is |
|---|---|---|---|---|
"""


def reference() -> str:
    """The page as Markdown."""
    rows = [f"| [`{code}`](#{code}) | {rule.title} | {SEVERITIES[rule.severity]} |\n" for code, rule in RULES.items()]
    head = _HEAD.format(gamed=_codes(GAMED), stuck=_codes(STUCK))
    return head + "".join(rows) + "".join(_entry(code, rule) for code, rule in RULES.items()) + _options()


def _codes(codes: Sequence[str]) -> str:
    return ", ".join(f"[`{code}`](#{code})" for code in codes)


def _entry(code: str, rule: Rule) -> str:
    return (
        f"\n## {code}\n\n"
        f"**{rule.title}.** {rule.meaning}\n\n"
        f"- Says: “{rule.sentence}”\n"
        f"- Given when: {rule.formula}.\n"
        f"- Source: {rule.source}.\n"
        f"- What to do: {rule.remedy}\n"
    )


def _options() -> str:
    rows = []
    for name, field in DoctorOptions.model_fields.items():
        extra = field.json_schema_extra
        unit = extra.get("unit") if isinstance(extra, dict) else ""
        rows.append(f"| `{name}` | {field.title} | {field.default} | {unit or '–'} | {field.description} |\n")
    return _OPTIONS + "".join(rows)
