"""Which team a deletion belongs to; for those that failed before, if the row that they name shows it."""

import django.db.models.deletion
from django.db import migrations, models


def find_teams(apps, schema_editor):
    removals = apps.get_model("removal", "Removal").objects.filter(team=None, state="failed")
    for kind, model, team in (("runs.run", "Run", "project__team_id"), ("teams.project", "Project", "team_id")):
        rows = apps.get_model(kind.split(".")[0], model)._base_manager
        for removal in removals.filter(kind=kind):
            removal.team_id = rows.filter(pk=removal.object_id).values_list(team, flat=True).first()
            removal.save(update_fields=["team"])


class Migration(migrations.Migration):
    dependencies = [
        ("removal", "0001_removal"),
        ("runs", "0009_removal"),
        ("teams", "0005_audit_actions"),
    ]

    operations = [
        migrations.AddField(
            model_name="removal",
            name="team",
            field=models.ForeignKey(
                help_text="who sees that it failed",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="removals",
                to="teams.team",
            ),
        ),
        migrations.RunPython(find_teams, migrations.RunPython.noop),
    ]
