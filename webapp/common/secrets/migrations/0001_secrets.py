"""The table of secrets, and the move of the files that held them into it; taking it back writes the files again.

The files are removed once the rows are committed. Neither way changes anything when it is repeated.
"""

import logging
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import migrations, models, transaction
from django.utils import timezone

from webapp.common.host import write_private
from webapp.common.secrets.vault import SITE_OWNER, SITE_TEXT, seal, unseal

logger = logging.getLogger(__name__)
PLACES = {
    "endpoint_key": ("endpoints", "key"),
    "hub_token": ("projects", "hub-token"),
    "environment_token": ("environments", "token"),
    "webhook": ("channels", "webhook.json"),
}


def take_files(apps, schema_editor):
    secrets, taken = apps.get_model("secrets", "Secret").objects, []
    now = timezone.now()
    secrets.create(kind="site", owner=SITE_OWNER, sealed=seal("site", SITE_OWNER, SITE_TEXT), set_at=now)
    for kind, (folder, name) in PLACES.items():
        for path in sorted(Path(settings.DATA_DIR).glob(f"{folder}/*/{name}")):
            try:
                owner = UUID(path.parent.name)
            except ValueError:
                continue
            text = path.read_text(encoding="utf-8").strip()
            if text:
                at = timezone.datetime.fromtimestamp(path.stat().st_mtime, timezone.get_default_timezone())
                secrets.create(kind=kind, owner=owner, sealed=seal(kind, owner, text), set_at=at)
            taken.append(path)
    transaction.on_commit(lambda: remove(taken))


def remove(taken):
    for path in taken:
        path.unlink(missing_ok=True)
        if path.parent.parent.name in ("endpoints", "channels"):
            with suppress(OSError):
                path.parent.rmdir()
    logger.info("secrets moved into the database", extra={"action": "secrets", "files": len(taken)})


def write_files(apps, schema_editor):
    """What cannot be read stops the way back before anything is lost."""
    for row in apps.get_model("secrets", "Secret").objects.exclude(kind="site"):
        folder, name = PLACES[row.kind]
        path = Path(settings.DATA_DIR) / folder / str(row.owner) / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, unseal(row.kind, row.owner, row.sealed))


class Migration(migrations.Migration):
    initial = True
    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Secret",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("endpoint_key", "Endpoint Key"),
                            ("hub_token", "Hub Token"),
                            ("environment_token", "Environment Token"),
                            ("webhook", "Webhook"),
                            ("site", "Site"),
                        ],
                        max_length=20,
                    ),
                ),
                (
                    "owner",
                    models.UUIDField(help_text="id of the endpoint, project, environment or channel that it belongs to"),
                ),
                (
                    "sealed",
                    models.TextField(
                        help_text="encrypted with a key that is made of the site's secret key, kind and owner"
                    ),
                ),
                ("set_at", models.DateTimeField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=["owner", "kind"], name="secret_once")],
            },
        ),
        migrations.RunPython(take_files, write_files),
    ]
