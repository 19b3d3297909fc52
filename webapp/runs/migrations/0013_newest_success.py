from django.db import migrations

FILL = """
UPDATE runs_run SET {column} = found.value
FROM runs_run AS run CROSS JOIN LATERAL (
    SELECT value FROM metrics_metricpoint WHERE run_id = run.id AND name = '{metric}'
    ORDER BY step DESC, attempt DESC LIMIT 1
) AS found
WHERE runs_run.id = run.id
"""


class Migration(migrations.Migration):
    """Runs that were there before tell their task success, too."""

    dependencies = [("runs", "0012_run_list"), ("metrics", "0002_initial")]

    operations = [
        migrations.RunSQL(FILL.format(column="success", metric="rollouts/task_success"), migrations.RunSQL.noop),
        migrations.RunSQL(FILL.format(column="heldout_success", metric="heldout/success"), migrations.RunSQL.noop),
    ]
