from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('rollouts', '0013_rollout_expected'),
    ]

    operations = [
        migrations.AddField(
            model_name='rollout',
            name='part',
            field=models.CharField(blank=True, db_default='', default='', help_text='of a mix: the part whose task it is', max_length=40),
        ),
    ]
