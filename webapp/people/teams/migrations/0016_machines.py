"""Accounts of programs, which no person logs in to."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('teams', '0015_token_scopes'),
    ]

    operations = [
        migrations.CreateModel(
            name='Machine',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80, verbose_name='name')),
                ('role', models.CharField(choices=[('viewer', 'viewer'), ('editor', 'editor'), ('owner', 'owner')], help_text='as in its membership', max_length=10)),
                ('scope', models.CharField(blank=True, choices=[('metrics', 'read runs and their metrics'), ('ingest', 'send in datasets and runs')], help_text='empty: all of its role', max_length=10)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('ended_at', models.DateTimeField(null=True)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.AddField(
            model_name='user',
            name='is_machine',
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AlterField(
            model_name='apitoken',
            name='ended_by',
            field=models.CharField(blank=True, choices=[('revoked', 'revoked by you'), ('owner', 'revoked by an owner of the team'), ('administrator', 'revoked by an administrator'), ('password', 'your password was set'), ('deactivated', 'your account was deactivated'), ('left', 'you left a team that it reached'), ('replaced', 'another one took its place'), ('machine', 'its machine account was ended')], db_default='', default='', max_length=20),
        ),
        migrations.AlterField(
            model_name='auditentry',
            name='action',
            field=models.CharField(choices=[('token_made', 'API token made'), ('token_revoked', 'API token revoked'), ('custom_on', 'custom rewards switched on'), ('custom_off', 'custom rewards switched off'), ('code_tested', 'reward code tested without an error'), ('code_saved', 'reward code saved'), ('confirm_failed', 'wrong password at a confirmation'), ('password_set', 'password set'), ('machine_added', 'machine account made'), ('machine_ended', 'machine account ended'), ('member_added', 'member added'), ('member_role', "member's role changed"), ('member_removed', 'member removed'), ('link_made', 'login link made'), ('link_mailed', 'login link sent by mail'), ('link_used', 'logged in by a link'), ('mail_set', 'mail address changed'), ('deactivated', 'person deactivated'), ('reactivated', 'person reactivated'), ('project_added', 'project created'), ('project_deleted', 'project deleted'), ('hub_token_set', "project's Hugging Face token set"), ('hub_token_removed', "project's Hugging Face token removed"), ('doctor_changed', "doctor's rules changed"), ('run_added', 'run created'), ('run_launched', 'run launched'), ('run_stopped', 'run stopped'), ('run_paused', 'run paused'), ('run_resumed', 'run resumed'), ('rollout_ended', 'rollout in flight ended'), ('rollout_failed', 'rollout in flight marked as failed'), ('branch_deleted', 'branch of a rollout deleted'), ('run_imported', 'run imported'), ('run_exported', 'run exported'), ('run_labelled', "run's tags or notes changed"), ('run_archived', 'run archived'), ('run_restored', 'run taken out of the archive'), ('run_deleted', 'run deleted'), ('preset_begun', 'preset prepared'), ('preset_dropped', "preset's preparation dropped"), ('dataset_added', 'dataset added'), ('dataset_changed', 'dataset read again'), ('dataset_kept', 'dataset used without its bad rows'), ('dataset_ordered', 'dataset ordered from an environment'), ('dataset_exported', 'dataset exported'), ('dataset_deleted', 'dataset deleted'), ('reward_saved', 'reward spec saved'), ('reward_deleted', 'reward spec deleted'), ('case_saved', 'reward test case saved'), ('case_deleted', 'reward test case deleted'), ('view_saved', 'view of rollouts saved'), ('view_deleted', 'view of rollouts deleted'), ('set_added', 'rollout set made'), ('set_deleted', 'rollout set deleted'), ('environment_added', 'environment added'), ('environment_changed', 'environment changed'), ('environment_scaled', 'environment scaled'), ('environment_restart', 'environment restarted'), ('environment_deleted', 'environment deleted'), ('suite_saved', 'evaluation suite saved'), ('suite_deleted', 'evaluation suite deleted'), ('endpoint_added', 'endpoint added'), ('endpoint_changed', 'endpoint changed'), ('endpoint_key', "endpoint's key replaced or removed"), ('endpoint_deleted', 'endpoint deleted'), ('model_added', 'model registered'), ('model_marked', 'model marked'), ('model_unmarked', "model's mark taken away"), ('model_described', "model's tags, notes or card changed"), ('model_pushed', "model's push to a hub asked for"), ('model_downloaded', 'model downloaded'), ('model_deleted', 'model deleted'), ('checkpoint_deleted', 'checkpoint deleted'), ('rescoring_begun', 'scoring of recorded rollouts begun'), ('rescoring_cancelled', 'scoring of recorded rollouts cancelled'), ('comparison_saved', 'comparison saved'), ('comparison_renamed', 'comparison renamed'), ('comparison_deleted', 'comparison deleted'), ('comment_deleted', 'comment deleted'), ('comparison_shared', 'comparison shared by a link'), ('share_revoked', 'shared link revoked'), ('round_made', 'vote round made'), ('round_closed', 'vote round closed'), ('round_reopened', 'vote round reopened'), ('round_deleted', 'vote round deleted'), ('channel_added', 'notification channel added'), ('channel_changed', 'notification channel changed'), ('channel_resumed', 'notification channel resumed'), ('channel_deleted', 'notification channel deleted'), ('chat_added', 'chat started'), ('chat_deleted', 'chat deleted')], max_length=20),
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.CheckConstraint(condition=models.Q(('is_machine', False), models.Q(('password__startswith', '!'), ('email', ''), ('is_staff', False), ('is_superuser', False)), _connector='OR'), name='machine_without_a_way_in'),
        ),
        migrations.AddField(
            model_name='machine',
            name='created_by',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='machine',
            name='project',
            field=models.ForeignKey(help_text="None: all of the team's", null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='machines', to='teams.project'),
        ),
        migrations.AddField(
            model_name='machine',
            name='team',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='machines', to='teams.team'),
        ),
        migrations.AddField(
            model_name='machine',
            name='user',
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='machine', to=settings.AUTH_USER_MODEL),
        ),
    ]
