"""Why rollouts did not solve their task: one cause for each, the first that is recorded of it.

A cause is a word, or a word with a detail: ``error:<code>``, ``named:<parts>``, ``cut``, ``unreadable``,
``call_failed``, ``call_failed:<tool>``, ``no_call``, ``zero:<parts>``, ``answer:<kind>``. All but the kinds of answers
are decided by PostgreSQL from the rollout's own row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db.models import Case, F, QuerySet, TextField, Value, When
from django.db.models.expressions import RawSQL
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce, Concat
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training.doctor import AnswerKind, answer_kind
from training.rewards.base import ENVIRONMENT
from webapp.common.words import Outcome, failure
from webapp.reading.groups import Played, expected_answers
from webapp.reading.inspector.filters import Scope
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.rollouts.selectors import array_of, last_words

NOT_SOLVED = (Outcome.FAILED, Outcome.PARTLY, Outcome.EXCLUDED)
ANSWER = "answer"
UNKNOWN = f"{ANSWER}:{AnswerKind.UNKNOWN}"
TEXT = TextField()
TITLES: dict[str, str | Promise] = {
    "cut": gettext_lazy("Cut off before the end"),
    "unreadable": gettext_lazy("A call could not be read"),
    "call_failed": gettext_lazy("A tool answered with an error"),
    "no_call": gettext_lazy("No tool was called"),
    f"{ANSWER}:{AnswerKind.SILENT}": gettext_lazy("No words at the end"),
    f"{ANSWER}:{AnswerKind.NO_NUMBER}": gettext_lazy("A number was expected, and the last words hold none"),
    f"{ANSWER}:{AnswerKind.OTHER_NUMBER}": gettext_lazy("Another number than expected"),
    f"{ANSWER}:{AnswerKind.OTHER_WORDS}": gettext_lazy("Other words than expected"),
    f"{ANSWER}:{AnswerKind.HELD}": gettext_lazy("The last words hold the expected answer, and it counts as not solved"),
    UNKNOWN: gettext_lazy("No cause is recorded"),
}
# The environment's own reasons: parts that name an error, else parts that earned nothing. Four are named, and the
# others counted: an environment may have hundreds, and a cause is a filter in an address.
NAMED, ZERO = "named", "zero"
PARTS = """(
    SELECT %s || array_to_string((array_agg(left(name, 44) ORDER BY name))[1:4], ',')
        || CASE WHEN count(*) > 4 THEN ',+' || (count(*) - 4) ELSE '' END
    FROM jsonb_each("rollouts_rollout"."env_parts") AS part (name, value)
    WHERE jsonb_typeof(value) = 'number' AND name <> %s AND {wanted}
)"""
NAMED_PARTS = PARTS.format(wanted="name LIKE '%%error%%' AND value::float8 > 0")
ZERO_PARTS = PARTS.format(wanted="name NOT LIKE '%%error%%' AND value::float8 <= 0")


def cause_title(cause: str) -> str:
    """A cause in words."""
    word, _colon, detail = cause.partition(":")
    if word == "error":
        known = failure({"code": detail})
        return (known.title if known else detail) or _("It failed outside the policy, and no reason is recorded")
    if word == "call_failed" and detail:
        return _("%(tool)s answered with an error") % {"tool": detail}
    if word == NAMED:
        return _("The environment names %(parts)s") % {"parts": _names_in(detail)}
    if word == ZERO:
        return _("The environment gave 0 for %(parts)s") % {"parts": _names_in(detail)}
    return str(TITLES.get(cause, cause))


def _names_in(detail: str) -> str:
    """The parts of a cause in words: ``valid,r_type,+3`` names two, and says that there are more."""
    names, _comma, more = detail.rpartition(",+")
    shown = (names or detail).replace(",", ", ")
    return _("%(names)s and %(n)d more") % {"names": shown, "n": int(more)} if names and more.isdecimal() else shown


CALLERS = """
SELECT DISTINCT of_run.id FROM unnest(%s::uuid[]) AS of_run (id),
    LATERAL (SELECT calls FROM rollouts_rollout WHERE run_id = of_run.id LIMIT %s) AS played
WHERE played.calls > 0
"""
LOOKED_AT = 1_000  # rollouts of a run


OWN_CALLS = """
SELECT "rollouts_rollout"."run_id" FROM (
    SELECT calls FROM rollouts_rollout AS other WHERE other.run_id = "rollouts_rollout"."run_id" LIMIT %s
) AS played WHERE played.calls > 0
"""


def runs_with_calls(runs: Sequence[Run] | None) -> RawSQL:
    """The runs whose rollouts call tools, as far as the first thousand tell: in others no call is no failure. Without
    runs it looks at the row's own, which is for one row only."""
    if runs is None:
        return RawSQL(OWN_CALLS, [LOOKED_AT])  # noqa: S611
    return RawSQL(CALLERS, [[run.pk for run in runs], LOOKED_AT])  # noqa: S611


def cause_of(runs: Sequence[Run] | None) -> Case:
    """The cause of a rollout of these runs (``None``: of one rollout) that did not solve its task, as a column;
    ``answer`` where only its words tell."""
    return Case(
        When(outcome=Outcome.EXCLUDED, then=Concat(Value("error:"), KeyTextTransform("code", "error"))),
        default=Coalesce(
            _parts_that(NAMED_PARTS, NAMED),
            Case(
                When(status=RolloutStatus.TRUNCATED, then=Value("cut")),
                When(parse_errors__gt=0, then=Value("unreadable")),
                When(failed_calls__gt=0, tools__len=1, then=Concat(Value("call_failed:"), F("tools__0"))),
                When(failed_calls__gt=0, then=Value("call_failed")),
                When(calls=0, run__in=runs_with_calls(runs), then=Value("no_call")),
                output_field=TEXT,
            ),
            _parts_that(ZERO_PARTS, ZERO),
            Value(ANSWER),
        ),
        output_field=TEXT,
    )


def _parts_that(sql: str, word: str) -> RawSQL:
    """The names of the environment's parts that a statement of ours chooses, after a word; null where there is none."""
    return RawSQL(sql, [f"{word}:", ENVIRONMENT], output_field=TEXT)  # noqa: S611


def answer_causes(rollouts: Sequence[Played]) -> dict[UUID, str]:
    """The cause of each of these rollouts, as its words tell it."""
    words, expected = last_words([item.pk for item in rollouts]), expected_answers(rollouts)
    kinds = {item.pk: answer_kind(words.get(item.pk, ""), expected.get(item.pk, "")) for item in rollouts}
    return {pk: f"{ANSWER}:{kind}" for pk, kind in kinds.items()}


def of_failed(runs: Sequence[Run] | None = None) -> Case:
    """``cause_of`` for lists that hold others too: null of those that solved their task or have no verdict."""
    return Case(When(outcome__in=NOT_SOLVED, then=cause_of(runs)), output_field=TEXT)


def whole_cause(cause: str | None, words: str, expected: str) -> str:
    """A cause of ``of_failed`` with the kind of answer where only the rollout's words tell; empty without one."""
    return f"{ANSWER}:{answer_kind(words, expected)}" if cause == ANSWER else cause or ""


def cause_and_answer(rollout: Rollout) -> tuple[str, str]:
    """Why one rollout did not solve its task, and the answer that its task expects; either may be empty."""
    words, expected = (found.get(rollout.pk, "") for found in (last_words([rollout.pk]), expected_answers([rollout])))
    cause = Rollout.objects.filter(pk=rollout.pk).values_list(of_failed()).get()[0]
    return whole_cause(cause, words, expected), expected


def ids_in(array: str) -> RawSQL:
    """Ids as PostgreSQL writes an array: one parameter instead of thousands takes half of the time of a count."""
    return RawSQL("SELECT unnest(%s::uuid[])", [array])


def with_cause(rows: QuerySet[Rollout], scope: Scope, cause: str, most: int) -> QuerySet[Rollout]:
    """Those of the rollouts that have this cause. Of answers the newest ``most`` are read."""
    word = ANSWER if cause.startswith(f"{ANSWER}:") else cause
    found = rows.filter(outcome__in=NOT_SOLVED).alias(cause=cause_of(scope.runs)).filter(cause=word)
    if word == cause:
        return found
    asked = found.order_by("-step", "id").values_list("pk", "run", *PLACE)[:most]
    read = [Answered(pk, scope.run_of[run], *place) for pk, run, *place in asked]
    causes = answer_causes(read)
    return rows.filter(pk__in=ids_in(array_of([pk for pk, each in causes.items() if each == cause])))


PLACE = ("step", "part", "row", "held_out", "expected")


class Answered(NamedTuple):
    """A rollout whose words tell its cause: ten thousand of these take a tenth of the time of whole ones."""

    pk: UUID
    run: Run
    step: int
    part: str
    row: int | None
    held_out: bool
    expected: str
