"""HTTP and websockets of the web application."""

from __future__ import annotations

import gc
import os
from multiprocessing import parent_process

import django

from webapp.common.host import die_with_parent

if parent_process() is not None:  # one of several web servers: without their parent it would not be ended
    die_with_parent()  # first of all: a head may end while its servers still import
gc.disable()  # all that is imported stays: to walk it again and again as it grows takes a tenth of a start
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
django.setup(set_prefix=False)

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.sessions import SessionMiddlewareStack  # noqa: E402
from django.conf import settings  # noqa: E402

from training.garbage import freeze  # noqa: E402
from webapp import urls  # noqa: E402, F401 - every view, and what it needs
from webapp.common.serving import (  # noqa: E402
    Askers,
    Handler,
    look_without_locks,
    share_connections,
)
from webapp.people.body_limit import BodyLimit  # noqa: E402
from webapp.sockets import TrustedOrigins, websocket_urlpatterns  # noqa: E402

look_without_locks()
share_connections()
django_app = Handler()

application = ProtocolTypeRouter(
    {
        "http": Askers(BodyLimit(django_app)),  # type: ignore[arg-type]
        # Full origins: AllowedHostsOriginValidator would accept any port and scheme of this host.
        # The consumers look up the person behind the session in the live threads, which keep their connections:
        # AuthMiddlewareStack would open one to the database for each tab, all in a single thread.
        "websocket": TrustedOrigins(SessionMiddlewareStack(URLRouter(websocket_urlpatterns)), settings.TRUSTED_ORIGINS),
    }
)

# From time to time the garbage collector walks all long-lived objects, and no request is answered meanwhile: 130 ms for
# what is loaded here. All of it stays until the process ends, so it is never walked again.
freeze()
gc.enable()
