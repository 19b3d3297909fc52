from typing import Any

from django.db import migrations

from webapp.runs.records.sessions import reserved_fields

OPEN = ["queued", "preparing", "running", "pausing", "stopping"]


def reserve(apps: Any, _schema: Any) -> None:
    """Runs that wait, or that a worker has, and were launched before 0024 and 0026 get what a launch writes now. Without
    it any worker may take them, and their sessions do not count. Others get it when they are launched or resumed."""
    runs, environments = apps.get_model("runs", "Run").objects, apps.get_model("environments", "Environment").objects
    columns = ("pk", "project_id", "pool", "config", "resolved", "needs", "sessions")
    for row in runs.filter(state__in=OPEN, imported=False).values(*columns).iterator(chunk_size=100):
        known = dict(environments.filter(project=row["project_id"]).values_list("name", "pk"))
        found = reserved_fields(row["pool"], row["config"], row["resolved"], known)
        if lacking := {name: value for name, value in found.items() if value and not row[name]}:
            runs.filter(pk=row["pk"]).update(**lacking)


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0026_sessions'),
        ('environments', '0005_work_claims'),
    ]

    operations = [migrations.RunPython(reserve, migrations.RunPython.noop)]
