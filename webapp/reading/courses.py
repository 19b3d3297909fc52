"""Which dataset a step's tasks are rows of: a run's stages may have several, and then one number is several tasks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from webapp.datasets.models import Dataset
from webapp.runs.config import config_of, of_step
from webapp.runs.models import Run


class Courses(NamedTuple):
    """From step ``begins[i]`` on (until the next one) tasks are rows of dataset ``numbers[i + 1]``; before the first
    of them, of dataset ``numbers[0]``. ``paths`` has the rows of each dataset by its number. In a mix the part says
    which dataset it is, by ``parts``."""

    begins: list[int]
    numbers: list[int]
    paths: list[str]
    parts: dict[str, int] = {}

    def at(self, step: int, part: str = "") -> int:
        """The number of the dataset whose rows a step, or a part of its mix, played."""
        return self.parts.get(part, self.numbers[sum(begin <= step for begin in self.begins)])


def courses_of(run: Run) -> Courses:
    """The datasets of a run in the order of its stages, each once."""
    config = config_of(run)
    if config is None:
        return Courses([], [0], [""])
    if config.mix.parts:
        of_part = {name: course.data.train for name, course in config.named_courses.items()}
        paths = list(dict.fromkeys(of_part.values()))
        return Courses([], [0], paths, {name: paths.index(path) for name, path in of_part.items()})
    begins = sorted({int(stage["began"]) + 1 for stage in (run.health or {}).get("stages") or []})
    begins = [begin for begin in begins if begin > 1]
    paths = []
    numbers = []
    for step in (0, *begins):
        path = of_step(run, config, max(step, 1)).data.train
        if path not in paths:
            paths.append(path)
        numbers.append(paths.index(path))
    return Courses(begins, numbers, paths)


def dataset_at(run: Run, courses: Courses, number: int) -> Dataset | None:
    """The dataset of that number, if it is one of the project's."""
    path = Path(courses.paths[number])
    try:
        found = Dataset.objects.filter(pk=UUID(path.parent.name), project=run.project_id).first()
    except ValueError:
        return None
    return found if found is not None and found.rows_path == path else None
