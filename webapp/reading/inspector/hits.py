"""The newest turns of a project that hold a phrase: few, and soon, while a person types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from webapp.people.teams.models import Project
from webapp.reading.inspector.filters import MOST_RUNS, played_runs
from webapp.reading.inspector.finding import said_sql
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.rollouts.selectors import Snippet, snippet_in
from webapp.runs.rollouts.words import numbers_of_phrase, tokens_asked

FIRST_ROLLOUTS = 200  # of the newest run, whose turns are read first: two milliseconds
READ_MOST = 200  # turns of a run that have the words
NEWEST_ROLLOUTS = 50  # whose turns are read too where there are more
OF_RUN = 60  # hits; later they are one for each rollout or task
ENOUGH = 60  # rows after which older runs are not searched
CUT_ROWS = 15  # that a run counts for whose turns were not all read: after four of these it has taken long enough

KEPT = """NOT EXISTS (
    SELECT FROM runs_attempt AS later
    WHERE later.run_id = rollout.run_id AND later.number > rollout.attempt
        AND later.last_step > later.first_step AND later.first_step < rollout.step
)"""
"""Steps that a later attempt played again are left out, as ``Scope.lost`` has it."""

NEWEST = """
SELECT 1, rollout.id, turn.number, rollout.step, rollout.row, false
FROM (
    SELECT id, run_id, attempt, step, row FROM rollouts_rollout WHERE run_id = %s ORDER BY step DESC LIMIT {newest}
) AS rollout, LATERAL (SELECT * FROM rollouts_turn WHERE rollout_id = rollout.id OFFSET 0) AS turn
WHERE turn.words @> %s::int[] AND ({said}) AND {kept}
ORDER BY rollout.step DESC, rollout.id, turn.number
"""
"""The newest rollouts of the newest run: common words are found there, and the index, which has 100,000 of their turns,
is not read at all."""

READ = """
SELECT asked.place, hit.rollout_id, hit.number, hit.step, hit.task, hit.more
FROM unnest(%s::uuid[], %s::text[]) WITH ORDINALITY AS asked (run, numbers, place), LATERAL (
    WITH known AS MATERIALIZED (
        SELECT * FROM (SELECT * FROM rollouts_turn WHERE words @> asked.numbers::int[] OFFSET 0) AS turn
        WHERE run_id = asked.run LIMIT {read_most}
    ), newest AS MATERIALIZED (
        SELECT id FROM rollouts_rollout WHERE run_id = asked.run AND (SELECT count(*) FROM known) = {read_most}
        ORDER BY step DESC LIMIT {newest}
    ), turn AS (
        SELECT rollout_id, number, messages, wrote FROM known
        UNION ALL
        SELECT turn.rollout_id, turn.number, turn.messages, turn.wrote
        FROM newest, LATERAL (SELECT * FROM rollouts_turn WHERE rollout_id = newest.id OFFSET 0) AS turn
        WHERE turn.words @> asked.numbers::int[]
    )
    (
        SELECT rollout.id AS rollout_id, turn.number, rollout.step, rollout.row AS task, false AS more
        FROM turn JOIN rollouts_rollout AS rollout ON rollout.id = turn.rollout_id
        WHERE ({said}) AND {kept}
        ORDER BY rollout.step DESC, rollout.id, turn.number LIMIT {of_run}
    )
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, true FROM generate_series(1, {cut_rows})
    WHERE (SELECT count(*) FROM known) = {read_most}
) AS hit LIMIT {enough}
"""
"""Runs are searched one after the other until there are enough rows. Where a run has more turns with the words than are
read, those of its newest rollouts are read too, and rows without a rollout say so.

``OFFSET 0`` has PostgreSQL find the turns by their words, and those of the newest rollouts by their key, however many
turns it expects.
"""


class Hit(NamedTuple):
    """A turn that holds the phrase, with the words around it. Turn 0 is the task."""

    rollout: Rollout
    snippet: Snippet


class Hits(NamedTuple):
    """Hits of the newest runs, newest first; ``tasks`` are those in prompts, one for each task.

    ``runs``: how many runs were searched, where there are others; ``cut``: a run has more turns with these words than
    were read; ``wordless``: the phrase has no word to look for.
    """

    tasks: Sequence[Hit] = ()
    texts: Sequence[Hit] = ()
    runs: int | None = None
    cut: bool = False
    wordless: bool = False


Place = tuple[UUID, int]
"""A rollout and the number of its turn."""


def newest_hits(project: Project, phrase: str, most: int) -> Hits:
    """At most so many tasks and rollouts of the project that hold the phrase, upper or lower case."""
    if not tokens_asked(phrase):
        return Hits(wordless=True)
    listed = list(played_runs(project).only("name", "project")[: MOST_RUNS + 1])
    runs = listed[:MOST_RUNS]
    tasks, texts, cut = _newest_places(runs, phrase, most) or _places(runs, phrase)
    tasks, texts = tasks[:most], texts[:most]
    known = _turns([*tasks, *texts], runs)
    older = MOST_RUNS if len(listed) > MOST_RUNS else None
    return Hits(_hits(tasks, known, phrase), _hits(texts, known, phrase), older, cut)


Places = tuple[list[Place], list[Place], bool]


def _newest_places(runs: Sequence[Run], phrase: str, most: int) -> Places | None:
    """``_places`` of the newest rollouts alone, if they have as many tasks and rollouts as are wanted: older ones would
    not be shown."""
    if not runs:
        return None
    said, patterns = said_sql(phrase)
    statement = NEWEST.format(said=said, newest=FIRST_ROLLOUTS, kept=KEPT)
    with connection.cursor() as cursor:
        cursor.execute(statement, [runs[0].pk, numbers_of_phrase(runs[0].pk, phrase), *patterns])
        tasks, texts, _cut = found = _sorted_places(cursor.fetchall())
    return found if min(len(tasks), len(texts)) >= most else None


def _places(runs: Sequence[Run], phrase: str) -> Places:
    """One place for each task and one for each rollout, the newest first; and whether a run has more than was read."""
    said, patterns = said_sql(phrase)
    numbers = [f"{{{','.join(map(str, numbers_of_phrase(run.pk, phrase)))}}}" for run in runs]
    bounds = {"read_most": READ_MOST, "newest": NEWEST_ROLLOUTS, "of_run": OF_RUN, "enough": ENOUGH}
    statement = READ.format(said=said, cut_rows=CUT_ROWS, kept=KEPT, **bounds)
    with connection.cursor() as cursor:
        cursor.execute(statement, [[run.pk for run in runs], numbers, *patterns])
        return _sorted_places(cursor.fetchall())


def _sorted_places(rows: list[tuple[Any, ...]]) -> Places:
    found = sorted((row for row in rows if row[1] is not None), key=lambda row: (row[0], -row[3]))
    tasks: dict[object, Place] = {}
    texts: dict[UUID, Place] = {}
    for run, rollout, number, _step, task, _more in found:
        if number == 0:
            tasks.setdefault(rollout if task is None else (run, task), (rollout, number))
        else:
            texts.setdefault(rollout, (rollout, number))
    return list(tasks.values()), list(texts.values()), any(row[5] for row in rows)


def _turns(places: Sequence[Place], runs: Sequence[Run]) -> dict[Place, Turn]:
    by_id = {run.pk: run for run in runs}
    turns = Turn.objects.filter(pk__in=places).select_related("rollout").defer("words") if places else []
    for turn in turns:
        turn.rollout.run = by_id[turn.run_id]
    return {(turn.rollout_id, turn.number): turn for turn in turns}


def _hits(places: Sequence[Place], known: dict[Place, Turn], phrase: str) -> list[Hit]:
    """The phrase may be in a turn's JSON alone, such as its keys: then it is no hit."""
    found = ((known[place], snippet_in(known[place], phrase)) for place in places if place in known)
    return [Hit(turn.rollout, snippet) for turn, snippet in found if snippet is not None]
