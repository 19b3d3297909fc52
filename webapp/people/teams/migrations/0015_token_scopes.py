"""Tokens that may do less than any role."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('teams', '0014_token_ends'),
    ]

    operations = [
        migrations.AddField(
            model_name='apitoken',
            name='scope',
            field=models.CharField(blank=True, choices=[('metrics', 'read runs and their metrics'), ('ingest', 'send in datasets and runs')], db_default='', default='', help_text='empty: all of role', max_length=10),
        ),
    ]
