from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('rewards', '0006_found_by'),
    ]

    operations = [
        migrations.AddField(
            model_name='rewardcase',
            name='origin',
            field=models.JSONField(default=dict, help_text='of a recorded rollout: {run, run_name, rollout, step, group, index, view}'),
        ),
    ]
