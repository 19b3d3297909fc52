from django.db import migrations, models

from webapp.common.large_tables import BuildIndex, DropIndex, KeyOfFields
from webapp.runs.numbering import Block


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("metrics", "0003_drop_needless_indexes")]

    operations = [
        BuildIndex("MetricPoint", models.Index(models.F("run"), Block("seq"), name="metric_point_changed")),
        DropIndex("MetricPoint", "metric_point_seq"),
        KeyOfFields("MetricPoint", ("run", "name", "step", "attempt"), "metric_point_once"),
    ]
