"""All settings of the web application, in one file. Everything comes from the environment or has a safe default.

``manage.py up`` starts an embedded PostgreSQL and Redis and writes where they listen into ``<data>/services.json``;
``DATABASE_URL`` and ``REDIS_URL`` take precedence. docs/settings.md lists every variable; a test keeps it complete.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

from webapp.common.env import (
    database_from_url,
    database_parameters,
    env_bool,
    env_int,
    env_list,
    env_ports,
    env_str,
    files_place,
    private_folder,
    proxy_addresses,
    redis_url,
    retention,
    secret_key,
    sign_on_groups,
    sign_on_issuer,
)
from webapp.common.logs import FORMATS

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(env_str("TILTYARD_DATA_DIR", str(BASE_DIR / ".tiltyard"))).resolve()
SERVICES_FILE = DATA_DIR / "services.json"
# Where files that never change are published for hosts with other data folders: s3://bucket/prefix, or a folder that
# all of them see. Empty: all hosts share the data folder.
FILES = files_place()
FILES_ACCESS = {
    "access_key_id": env_str("TILTYARD_FILES_KEY_ID"),
    "secret_access_key": env_str("TILTYARD_FILES_SECRET"),
    "region": env_str("TILTYARD_FILES_REGION", "us-east-1"),
    "endpoint": env_str("TILTYARD_FILES_ENDPOINT"),
}
_services: dict[str, str] = json.loads(SERVICES_FILE.read_text()) if SERVICES_FILE.exists() else {}

# --- Security -------------------------------------------------------------------------------------------------------
DEBUG = env_bool("TILTYARD_DEBUG", False)
SECRET_KEY = secret_key(DATA_DIR / "secret_key", "TILTYARD_SECRET_KEY")
SECRET_KEY_FALLBACKS = env_list("TILTYARD_SECRET_KEY_FALLBACKS", [])
LOOPBACK_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
ALLOWED_HOSTS = env_list("TILTYARD_HOSTS", LOOPBACK_HOSTS)
if "*" in ALLOWED_HOSTS or (DEBUG and set(ALLOWED_HOSTS) - set(LOOPBACK_HOSTS)):
    raise ImproperlyConfigured("TILTYARD_HOSTS must name each host, and TILTYARD_DEBUG is for loopback hosts only.")
PORT = env_int("TILTYARD_PORT", 8000)
# Full origins (scheme, host, port): a page of another port or scheme on this host is a stranger.
TRUSTED_ORIGINS = env_list("TILTYARD_ORIGINS", [f"http://{host}:{PORT}" for host in LOOPBACK_HOSTS])
CSRF_TRUSTED_ORIGINS = [origin for origin in TRUSTED_ORIGINS if origin.startswith("https://")]
HTTPS = env_bool("TILTYARD_HTTPS", False)
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_NAME = "__Host-tiltyard" if HTTPS else "tiltyard"
CSRF_COOKIE_NAME = "__Host-tiltyard-csrf" if HTTPS else "tiltyard-csrf"
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = env_int("TILTYARD_HSTS_SECONDS", 0)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env_bool("TILTYARD_BEHIND_PROXY", False) else None
# Addresses of the proxies in front: only their X-Forwarded-For is believed, from the right up to the first stranger.
PROXY_ADDRESSES = proxy_addresses()
# Who may read /metrics: bearers of this token, without one only this machine.
METRICS_TOKEN = env_str("TILTYARD_METRICS_TOKEN")
if METRICS_TOKEN and not (len(METRICS_TOKEN) >= 16 and METRICS_TOKEN.isascii() and METRICS_TOKEN.isprintable()):
    raise ImproperlyConfigured("TILTYARD_METRICS_TOKEN must be at least 16 printable ASCII characters.")
# The host and port by which a monitor inside our network asks for /metrics with that token, and for nothing else.
METRICS_HOST = env_str("TILTYARD_METRICS_HOST")
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
AUTH_USER_MODEL = "teams.User"
AUTH_PASSWORD_VALIDATORS = [
    *(
        {"NAME": f"django.contrib.auth.password_validation.{name}"}
        for name in (
            "UserAttributeSimilarityValidator",
            "MinimumLengthValidator",
            "CommonPasswordValidator",
            "NumericPasswordValidator",
        )
    ),
    {"NAME": "webapp.people.teams.services.EndsCredentials"},
]

# Single sign-on (webapp/people/teams/oidc.py), where an issuer is named; other OIDC_ names are mozilla-django-oidc's.
OIDC_ISSUER = sign_on_issuer()
OIDC_NAME = env_str("TILTYARD_OIDC_NAME", urlsplit(OIDC_ISSUER).hostname or "")
OIDC_GROUPS, OIDC_GROUPS_CLAIM = sign_on_groups(), env_str("TILTYARD_OIDC_GROUPS_CLAIM", "groups")
OIDC_RP_CLIENT_ID, OIDC_RP_CLIENT_SECRET = env_str("TILTYARD_OIDC_CLIENT_ID"), env_str("TILTYARD_OIDC_CLIENT_SECRET")
OIDC_RP_SCOPES = env_str("TILTYARD_OIDC_SCOPES", "openid email profile")
OIDC_USE_PKCE, OIDC_MAX_STATES = True, 10
OIDC_AUTHENTICATION_CALLBACK_URL = "sign-on-callback"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
if OIDC_ISSUER:
    AUTHENTICATION_BACKENDS.append("webapp.people.teams.oidc.Backend")

# Login links by mail; without a host there are none, and an owner or administrator makes the link.
EMAIL_HOST = env_str("EMAIL_HOST")
EMAIL_PORT = env_int("EMAIL_PORT", 587)
EMAIL_HOST_USER = env_str("EMAIL_HOST_USER")
EMAIL_HOST_PASSWORD = env_str("EMAIL_HOST_PASSWORD")
EMAIL_USE_TLS = env_bool("EMAIL_USE_TLS", True)
EMAIL_USE_SSL = env_bool("EMAIL_USE_SSL", False)
EMAIL_TIMEOUT = 15
DEFAULT_FROM_EMAIL = env_str("EMAIL_FROM", f"tiltyard@{ALLOWED_HOSTS[0]}")

# --- Application ----------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "webapp.people.teams",
    "webapp.people.notifications",
    "webapp.datasets",
    "webapp.rewards",
    "webapp.environments",
    "webapp.runs.registry",
    "webapp.runs",
    "webapp.endpoints",
    "webapp.common.workers",
    "webapp.common.secrets",
    "webapp.runs.metrics",
    "webapp.runs.rollouts",
    "webapp.runs.advisories",
    "webapp.runs.removal",
    "webapp.engine",
    "webapp.chat",
    "webapp.foreign",
    "webapp.evaluation.rescoring",
    "webapp.reading",
    "webapp.reading.rewinding",
    "webapp.launch",
    "webapp.evaluation.suites",
    "webapp.evaluation.sharing",
    "webapp.reading.inspector",
    "webapp.evaluation.votes",
    "webapp.runs.pins",
    "webapp.site.run_pages",
    "webapp.live",
    "webapp.api",
    "webapp.ops",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "channels",
]
MIDDLEWARE = [
    "webapp.common.middleware.RequestIdMiddleware",
    "webapp.site.monitoring.views.InsideMiddleware",
    "webapp.common.middleware.CleanAddressMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "webapp.common.middleware.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "webapp.common.middleware.PrivateAnswersMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "webapp.people.teams.audit.AuditMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "webapp.common.middleware.ErrorShapeMiddleware",
    "webapp.people.teams.sudo.ConfirmMiddleware",
]
ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "libraries": {"reading": "webapp.reading.tags", "site": "webapp.site.tags", "ui": "webapp.common.ui"},
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "webapp.common.middleware.page",
            ],
            "loaders": None
            if DEBUG
            else [
                (
                    "django.template.loaders.cached.Loader",
                    ["django.template.loaders.filesystem.Loader"],
                )
            ],
        },
    }
]
FORM_RENDERER = "webapp.common.ui.Renderer"
if DEBUG:
    del TEMPLATES[0]["OPTIONS"]["loaders"]  # type: ignore[attr-defined]
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Ours alone: what packages bring along for pages that we do not have stays out.
STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
STATIC_ROOT = Path(env_str("TILTYARD_STATIC_ROOT", str(DATA_DIR / "static")))
# Straight from static/, so that a fresh clone and the tests need no collectstatic. `up` and the image collect the files
# and set this to False: compressed, under hashed names, kept by browsers without end.
WHITENOISE_USE_FINDERS = env_bool("TILTYARD_STATIC_FINDERS", True)
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
_STATIC_BACKEND = "webapp.common.static_files.HashedStorage"
if WHITENOISE_USE_FINDERS:
    _STATIC_BACKEND = "django.contrib.staticfiles.storage.StaticFilesStorage"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": _STATIC_BACKEND},
}
WHITENOISE_AUTOREFRESH = DEBUG
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LANGUAGE_CODE = "en"
LANGUAGE_COOKIE_NAME = "tiltyard-language"
LOCALE_PATHS = [BASE_DIR / "locale", BASE_DIR / "locale" / "retired"]  # the second: texts of stored rows
USE_I18N = USE_TZ = True
TIME_ZONE = env_str("TILTYARD_TIME_ZONE", "UTC")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Storage --------------------------------------------------------------------------------------------------------
DATABASE_URL = env_str("DATABASE_URL", _services.get("database_url", ""))
REDIS_URL = redis_url(env_str("REDIS_URL", _services.get("redis_url", "")))
# Connections that each web server hands from request to request (webapp/common/serving.py); 0: each request opens
# its own, of a pooler.
DATABASE_POOL = env_int("TILTYARD_DATABASE_POOL", 20, least=0)
# Web limits, in milliseconds; nothing in a request may hold a row or a transaction for longer. Compiling a query takes
# longer than any of ours.
SESSION = {
    "statement_timeout": "15000",
    "lock_timeout": "5000",
    "idle_in_transaction_session_timeout": "30000",
    "jit": "off",
}
DATABASES = {
    "default": {
        **database_from_url(DATABASE_URL or "postgresql://postgres@127.0.0.1:5432/tiltyard"),
        "CONN_MAX_AGE": 0,  # ASGI threads come and go: a kept connection would leak with each of them.
        "OPTIONS": {
            "connect_timeout": 5,
            # A link that is cut answers nothing: without these a question waits for a quarter of an hour, and a lease
            # that cannot be renewed goes unnoticed as long.
            "tcp_user_timeout": 20_000,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 2,
            **database_parameters(DATABASE_URL),
            # A pooler such as PgBouncer refuses a connection that brings options: there a query sets them
            # (webapp/common/database.py).
            **({"options": " ".join(f"-c {each}={value}" for each, value in SESSION.items())} if DATABASE_POOL else {}),
        },
    }
}
# Uploads stay out of the web root, readable by us only, and are streamed by a counting handler.
MAX_UPLOAD_BYTES = env_int("TILTYARD_MAX_UPLOAD_BYTES", 2 * 1024**3)
MAX_DATASET_ROWS = env_int("TILTYARD_MAX_DATASET_ROWS", 1_000_000)
FILE_UPLOAD_PERMISSIONS = 0o600
FILE_UPLOAD_TEMP_DIR = DATA_DIR / "uploads"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024**2
DATA_UPLOAD_MAX_NUMBER_FIELDS = 500
DATA_UPLOAD_MAX_NUMBER_FILES = 40  # the dumps of a run; BFCL: questions, answers and eight function documents
# How long what runs leave is kept where a project has no rule of its own (webapp/retention/); by default without end.
RETENTION = retention()
MODELS_DIR = Path(env_str("TILTYARD_MODELS_DIR", str(DATA_DIR / "models")))
# The one folder below which editors choose data for servers that they start: catalogues, tool documents, queries.
ENVIRONMENT_DATA_DIR = Path(env_str("TILTYARD_ENVIRONMENT_DATA_DIR", str(DATA_DIR / "environment-data")))
for _folder in (DATA_DIR, FILE_UPLOAD_TEMP_DIR, MODELS_DIR, ENVIRONMENT_DATA_DIR):
    private_folder(_folder)

# --- Jobs (Celery) --------------------------------------------------------------------------------------------------
# The message is only a hint "try to claim run X"; the lease in Postgres decides, so early acknowledgement is right.
CELERY_BROKER_URL = REDIS_URL or "redis://127.0.0.1:6379/0"
# By default Celery takes any certificate of a rediss:// server. Options of the URL count instead of this; what they
# leave out is the default of redis-py, which verifies the certificate and its name.
CELERY_BROKER_USE_SSL = {"ssl_cert_reqs": "required"} if CELERY_BROKER_URL.startswith("rediss://") else False
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_TASK_ACKS_LATE = False  # late acknowledgement would redeliver any run longer than the visibility timeout
CELERY_WORKER_PREFETCH_MULTIPLIER = 1  # default 4 would park runs behind a busy worker
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # default 100: a worker that was cut off for an hour would end
CELERY_WORKER_DIRECT = True  # a queue of its own for each worker: for runs that only some workers can train
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False  # losing Redis must not end a training run
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 60  # default 0.0 kills supervisors at once
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 300,
    "global_keyprefix": "celery:",
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
}
CELERY_TASK_DEFAULT_QUEUE = "short"
# Web servers behind one port: Python answers with one core each, and training wants cores too.
WEB_PROCESSES = env_int("TILTYARD_WEB_PROCESSES", max(1, min(4, (os.cpu_count() or 1) // 2)), least=1)
# How much of people's work is done at a time: what takes seconds, and what may take hours.
POOLS = {
    "short": env_int("TILTYARD_SHORT_PLACES", 2, least=1),
    "long": env_int("TILTYARD_LONG_PLACES", 2, least=1),
}
# Runs and chats that ask an endpoint need no device: this many of them are at work besides those that do. Models of up
# to so many parameters are sampled there too, on the processor, while runs have the devices; 0: none.
CPU_SAMPLER_PARAMETERS = env_int("TILTYARD_CPU_SAMPLER_PARAMETERS", 1_000_000_000, least=0)
ENDPOINT_PLACES = env_int("TILTYARD_ENDPOINT_PLACES", 2, least=1)
CELERY_TASK_TIME_LIMIT = None  # the train queue has none; short tasks set their own

# --- Leases ---------------------------------------------------------------------------------------------------------
LEASE_BEAT_S = 5
LEASE_TTL_S = env_int("TILTYARD_LEASE_TTL_S", 20)
MAX_ATTEMPTS_WITHOUT_PROGRESS = 3
STALL_AFTER_S = env_int("TILTYARD_STALL_AFTER_S", 300)
STOP_GRACE_S = 8
# A worker that answers chats gives its device back after this time without a question.
CHAT_IDLE_S = env_int("TILTYARD_CHAT_IDLE_S", 120)
STOP_GRACE_MAX_S = 300  # however long the last save took: programs.TRAIN_STOP_WAIT_S and docker-compose.yml allow it

# --- Live view (Channels) -------------------------------------------------------------------------------------------
# The layer carries only nudges {run, seq}: a lost one costs nothing, so capacity is small and expiry short.
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {
            # Every use has a limit of its own. With this one redis-py sends through `asyncio.wait_for`, which in
            # Python 3.11 swallows a cancellation that comes as the send ends: a listener would never end.
            "hosts": [
                {
                    "address": REDIS_URL or "redis://127.0.0.1:6379/0",
                    "socket_timeout": None,
                    "socket_connect_timeout": 10,
                }
            ],
            "prefix": "live",
            "capacity": 1000,
            "expiry": 10,
            "group_expiry": 3600,
        },
    }
}

# --- Outbound requests ----------------------------------------------------------------------------------------------
# host:port or CIDR that may be reached although it is private; the embedded tools server is one.
OUTBOUND_ALLOW = env_list("TILTYARD_OUTBOUND_ALLOW", [])
if _services.get("tools_address"):
    OUTBOUND_ALLOW.append(_services["tools_address"])
# Where datasets of Hugging Face are fetched from: the hub itself, or a mirror of it.
HUB_URL = env_str("TILTYARD_HUB_URL", "https://huggingface.co").rstrip("/")
# With a token that may write there, models can be pushed to the hub; without one they cannot.
HUB_TOKEN = env_str("TILTYARD_HUB_TOKEN")
TOOLS_URL, TOOLS_TOKEN = _services.get("tools_url", ""), _services.get("tools_token", "")
# Names of images (without tag) that editors may start as environments; `*` lets them start any that is on the machine.
ENVIRONMENT_IMAGES = env_list("TILTYARD_ENVIRONMENT_IMAGES", ["tiltyard-env-*"])
# The name under which runs and pages reach servers that the keeper started, and the ports that they may have.
REPLICA_HOST = env_str("TILTYARD_REPLICA_HOST", "127.0.0.1")
REPLICA_PORTS = env_ports("TILTYARD_REPLICA_PORTS")
# The token that the servers listed above by host:port expect; no other server gets it.
ENVIRONMENT_TOKEN = env_str("TILTYARD_ENV_TOKEN")

# --- Custom rewards -------------------------------------------------------------------------------------------------
# Members' own Python, in a sandbox. The operator allows it here, an administrator switches it on at /site/.
CUSTOM_REWARDS = env_bool("TILTYARD_CUSTOM_REWARDS", False)

# --- Logs -----------------------------------------------------------------------------------------------------------
LOG_FORMAT = env_str("TILTYARD_LOG_FORMAT", "line")
if LOG_FORMAT not in FORMATS:
    raise ImproperlyConfigured(f"TILTYARD_LOG_FORMAT must be {' or '.join(FORMATS)}, not {LOG_FORMAT!r}.")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"redact": {"()": "webapp.common.logs.RedactFilter"}},
    "formatters": {
        "line": {"()": "webapp.common.logs.LineFormatter"},
        "json": {"()": "webapp.common.logs.JsonFormatter"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "stream": sys.stderr,
            "filters": ["redact"],
            "formatter": LOG_FORMAT,
        }
    },
    "root": {"handlers": ["console"], "level": env_str("TILTYARD_LOG_LEVEL", "INFO")},
    "loggers": {
        "django.server": {"propagate": True},
        "httpx": {"level": "WARNING"},
        # A line for each short task would bury everything else.
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
    },
}
if LOG_FORMAT == "json":
    logging.captureWarnings(True)  # Python would print them as they are
PRODUCT_NAME = _("Tiltyard")
PRODUCT_VERSION = tomllib.loads((BASE_DIR / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
