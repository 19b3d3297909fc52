"""What ended a token, and from where it was used last. Tokens that only slept until now end here."""

from django.db import migrations, models

SLEEPING = """
UPDATE teams_apitoken t SET revoked_at = now(), ended_by = 'deactivated'
FROM teams_user u WHERE u.id = t.user_id AND NOT u.is_active AND t.revoked_at IS NULL;
UPDATE teams_apitoken t SET revoked_at = now(), ended_by = 'left'
FROM teams_project p WHERE p.id = t.project_id AND t.revoked_at IS NULL AND NOT EXISTS (
    SELECT FROM teams_membership m WHERE m.user_id = t.user_id AND m.team_id = p.team_id
)
"""


class Migration(migrations.Migration):

    dependencies = [
        ('teams', '0013_branch_deleted'),
    ]

    operations = [
        migrations.AddField(
            model_name='apitoken',
            name='ended_by',
            field=models.CharField(blank=True, choices=[('revoked', 'revoked by you'), ('owner', 'revoked by an owner of the team'), ('administrator', 'revoked by an administrator'), ('password', 'your password was set'), ('deactivated', 'your account was deactivated'), ('left', 'you left a team that it reached')], db_default='', default='', max_length=20),
        ),
        migrations.AddField(
            model_name='apitoken',
            name='ended_who',
            field=models.CharField(blank=True, db_default='', default='', help_text='name of whoever did what ended it', max_length=150),
        ),
        migrations.AddField(
            model_name='apitoken',
            name='used_from',
            field=models.CharField(blank=True, db_default='', default='', help_text='IP address of that', max_length=45),
        ),
        migrations.RunSQL(SLEEPING, migrations.RunSQL.noop),
    ]
