import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('removal', '0002_team'),
        ('runs', '0022_waiting_runs'),
        ('teams', '0021_retention_acts'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='StoredSize',
            fields=[
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='stored', serialize=False, to='runs.run')),
                ('words', models.BigIntegerField(default=0)),
                ('tokens', models.BigIntegerField(default=0)),
                ('logs', models.BigIntegerField(default=0)),
                ('turns', models.BigIntegerField(default=0)),
                ('sampled', models.IntegerField(default=0)),
                ('measured_at', models.DateTimeField(auto_now=True)),
            ],
        ),
        migrations.CreateModel(
            name='RetentionRules',
            fields=[
                ('project', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='retention', serialize=False, to='teams.project')),
                ('rules', models.JSONField(default=dict)),
                ('changed_at', models.DateTimeField(auto_now=True)),
                ('changed_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Expiry',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('run_name', models.CharField(max_length=80)),
                ('kind', models.CharField(choices=[('words', 'transcripts'), ('tokens', 'values of tokens'), ('logs', 'logs of trainers'), ('checkpoints', 'checkpoints')], max_length=12)),
                ('rule', models.JSONField()),
                ('bytes', models.BigIntegerField()),
                ('number', models.BigIntegerField()),
                ('seq', models.BigIntegerField()),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='expiries', to='teams.project')),
                ('removal', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='removal.removal')),
                ('run', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='expiries', to='runs.run')),
            ],
            options={
                'ordering': ['-at'],
                'indexes': [models.Index(fields=['project', '-at'], name='expiry_listed')],
            },
        ),
    ]
