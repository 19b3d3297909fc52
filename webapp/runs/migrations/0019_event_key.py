from django.db import migrations

from webapp.common.large_tables import KeyOfFields


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("runs", "0018_places")]

    operations = [KeyOfFields("RunEvent", ("run", "seq"), "run_event_once")]
