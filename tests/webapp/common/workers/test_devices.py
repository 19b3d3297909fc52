"""What devices do now: read every few seconds, kept in the worker's row, and shown."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from django.test import Client

from tests.chaos.services import wait_until
from tests.training.nvml import BUSY, GIB, IDLE, FakeNvml
from webapp.common.workers import beating
from webapp.common.workers.models import Worker
from webapp.people.teams.models import User


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device of this machine is read."""
    monkeypatch.setattr("training.devices.pynvml", FakeNvml())


def test_the_reader_forgets_what_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = beating.Reader(["0"])
    assert reader.latest() is None
    for age_s, found in ((beating.OLD_AFTER_S - 1, [BUSY._asdict()]), (beating.OLD_AFTER_S + 1, None)):
        reader._latest = (time.monotonic() - age_s, [BUSY])
        assert reader.latest() == found
    reader._latest = (time.monotonic(), None)
    assert reader.latest() is None


def test_the_reader_survives_a_fault_and_ends(monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(beating, "READ_EVERY_S", 0.01)
    answers = iter([[BUSY], ValueError("odd"), [IDLE]])

    def read(_indices: list[str]) -> Any:
        answer = next(answers, [IDLE])
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(beating, "read_devices", read)
    reader = beating.Reader(["0"])
    reader.start()
    wait_until(lambda: reader.latest() == [IDLE._asdict()], 20)
    reader.end()
    reader.join(10)
    assert not reader.is_alive() and "devices not read" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_driver_that_hangs_does_not_silence_the_worker(monkeypatch: Any, settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR = tmp_path
    hangs, asked = threading.Event(), list[list[str]]()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,GPU-1b")
    monkeypatch.setattr(beating, "BEAT_S", 0.05)
    monkeypatch.setattr(beating, "read_devices", lambda indices: asked.append(indices) or hangs.wait(30))
    monkeypatch.setattr(beating, "gpu", lambda: None)
    beats = beating.Beats("train@a", ["train"], 1)
    beats.start()
    try:
        wait_until(lambda: Worker.objects.filter(name="train@a", devices__isnull=True).exists(), 20)
        first = Worker.objects.get(name="train@a").beat_at
        wait_until(lambda: Worker.objects.get(name="train@a").beat_at > first, 20)
        assert asked == [["0", "GPU-1b"]]
    finally:
        hangs.set()
        beats.end()


@pytest.mark.django_db
def test_a_beat_writes_them_and_the_next_one_what_is_known_then(settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR = tmp_path
    beating.beat("train@a", 5, ["train"], 1, [BUSY._asdict()])
    assert Worker.objects.get().devices == [BUSY._asdict()]
    beating.beat("train@a", 5, ["train"])
    assert Worker.objects.get().devices is None


@pytest.mark.django_db
def test_a_beat_says_what_runs_find_there(settings: Any, tmp_path: Any, monkeypatch: Any) -> None:
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(beating, "gpu", lambda: beating.Gpu("NVIDIA H100", 85 * 10**9, "9.0"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-1b")
    beating.beat("train@a", 5, ["train"])
    row = Worker.objects.get()
    assert (row.gpus, row.gpu, row.gpu_bytes, row.cluster) == (2, "NVIDIA H100", 85 * 10**9, False)
    here = beating.worker_here()
    assert [getattr(here, name) for name in beating.hardware()] == [getattr(row, name) for name in beating.hardware()]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TILTYARD_RAY_ADDRESS", "http://192.0.2.7:8265")
    beating.beat("train@a", 5, ["train"])
    row.refresh_from_db()
    assert (row.gpus, row.cluster) == (0, True)


def test_its_own_queue_is_not_one_of_its_pools(monkeypatch: Any) -> None:
    made: list[list[str]] = []
    monkeypatch.setattr(beating, "Beats", lambda _name, queues, _places: made.append(queues) or Mock())
    monkeypatch.setattr(beating, "_beats", [])
    names = [Mock() for _number in range(3)]
    for one, name in zip(names, ("train", "endpoint", "train@a.dq2"), strict=True):
        one.name = name
    beating.begin_beating(Mock(hostname="train@a", task_consumer=Mock(queues=names), controller=Mock(concurrency=1)))
    assert made == [["endpoint", "train"]]


@pytest.mark.django_db
def test_the_page_and_the_metrics_show_them(
    client_for: Callable[..., Client], rita: User, settings: Any, tmp_path: Any
) -> None:
    settings.DATA_DIR = tmp_path
    part = BUSY._replace(id="MIG-7", busy=None, power_w=None, temperature_c=None)
    nothing = part._replace(id="MIG-8", memory_used=None, memory=None)
    beating.beat("train@a", 5, ["train"], 1, [reading._asdict() for reading in (BUSY, IDLE, part, nothing)])
    beating.beat("train@b", 6, ["train"], 1, [BUSY._asdict()])
    Worker.objects.filter(name="train@b").update(beat_at="2026-01-01T00:00:00Z")
    page = client_for(rita).get("/workers/").content.decode()
    assert "0: 93% busy · 40.0 of 140.0 GiB · 312 W · 61 °C" in page and page.count("93% busy") == 1
    assert "GPU-1b: 0% busy · 0.0 of 140.0 GiB · 70 W · 30 °C" in page
    assert "MIG-7: 40.0 of 140.0 GiB<" in page and "MIG-8" not in page
    text = Client().get("/metrics").content.decode()
    assert [line for line in text.splitlines() if line.startswith("tiltyard_device_busy")] == [
        'tiltyard_device_busy_ratio{index="0",worker="train@a"} 0.93',
        'tiltyard_device_busy_ratio{index="GPU-1b",worker="train@a"} 0.0',
    ]
    used = re.search(r'^tiltyard_device_memory_used_bytes{index="MIG-7",worker="train@a"} (.+)$', text, re.M)
    assert used is not None and float(used[1]) == 40 * GIB
    assert 'tiltyard_device_power_watts{index="0",worker="train@a"} 312.4' in text
    assert 'tiltyard_device_temperature_celsius{index="GPU-1b",worker="train@a"} 30.0' in text
    assert "MIG-8" not in text and text.count("tiltyard_device_temperature_celsius{") == 2
