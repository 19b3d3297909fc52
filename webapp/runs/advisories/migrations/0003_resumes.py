from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('advisories', '0002_doctor_rules'),
    ]

    operations = [
        migrations.AddField(
            model_name='doctorrules',
            name='resumes',
            field=models.BooleanField(default=True, help_text='whether runs go on by themselves (webapp.engine.recovery)'),
        ),
    ]
