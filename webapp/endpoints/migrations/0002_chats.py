"""What chats used of endpoints."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("endpoints", "0001_endpoints")]

    operations: ClassVar = [
        migrations.RemoveConstraint(model_name="endpointspend", name="endpoint_spend_once"),
        migrations.RenameField(model_name="endpointspend", old_name="run_name", new_name="name"),
        migrations.AlterField(
            model_name="endpointspend",
            name="name",
            field=models.CharField(blank=True, help_text="of the run, or the chat's title", max_length=80),
        ),
        migrations.AddField(model_name="endpointspend", name="chat_id", field=models.UUIDField(null=True)),
        migrations.AddConstraint(
            model_name="endpointspend",
            constraint=models.UniqueConstraint(
                fields=("endpoint", "run_id", "chat_id", "day"), name="endpoint_spend_once", nulls_distinct=False
            ),
        ),
    ]
