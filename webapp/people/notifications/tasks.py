"""What workers do for notifications."""

from __future__ import annotations

from webapp.common.work import Kind, register
from webapp.people.notifications.delivering import delivery_failed, delivery_run, reader_failed, reader_test
from webapp.people.notifications.events import event_failed, event_spread
from webapp.people.notifications.models import Delivery, Event, Reader

register(Kind(Event, event_spread, event_failed))
register(Kind(Delivery, delivery_run, delivery_failed))
register(Kind(Reader, reader_test, reader_failed))
