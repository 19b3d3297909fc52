from django.db import migrations, models

from webapp.common.large_tables import BuildIndex, DropIndex, KeyOfFields
from webapp.runs.numbering import Block


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("rollouts", "0016_drop_needless_indexes")]

    operations = [
        BuildIndex("Rollout", models.Index(fields=["run", "step", "group"], name="rollout_of_group")),
        DropIndex("Rollout", "rollout_place"),
        BuildIndex("Rollout", models.Index(models.F("run"), Block("seq"), name="rollout_changed")),
        DropIndex("Rollout", "rollout_seq"),
        BuildIndex("Turn", models.Index(models.F("run"), Block("seq"), name="turn_changed")),
        DropIndex("Turn", "turn_seq"),
        KeyOfFields("Turn", ("rollout", "number"), "turn_once"),
        BuildIndex("RolloutGroup", models.Index(models.F("run"), Block("seq"), name="rollout_group_changed")),
        DropIndex("RolloutGroup", "rollout_group_seq"),
        KeyOfFields("RolloutGroup", ("run", "attempt", "step", "group"), "rollout_group_once"),
    ]
