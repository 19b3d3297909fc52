"""What devices do now: read from NVML (a fake in place of NVIDIA's module), kept in the worker's row, and shown."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from django.test import Client

from tests.chaos.services import wait_until
from webapp.common.workers import beating, devices
from webapp.common.workers.models import Worker
from webapp.people.teams.models import User

GIB = 1 << 30


class NVMLError(Exception):
    """As pynvml's."""


class FakeNvml:
    """The part of ``pynvml`` that is used, for two devices; a question in ``refused`` has no answer."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *refused: str) -> None:
        self.refused, self.open, self.inits = set(refused), 0, 0

    def _answer(self, question: str, value: Any) -> Any:
        if question in self.refused or not self.open:
            raise NVMLError(question)
        return value

    def nvmlInit(self) -> None:
        self.open += 1
        try:
            self._answer("init", None)
        except NVMLError:
            self.open -= 1
            raise
        self.inits += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index > 1:
            raise NVMLError("no such device")
        return int(self._answer("handle", index))

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid != "GPU-1b":
            raise NVMLError("no such device")
        return int(self._answer("handle", 1))

    def nvmlDeviceGetName(self, handle: int) -> str:
        return str(self._answer("name", "NVIDIA H200"))

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return self._answer("busy", SimpleNamespace(gpu=(93, 0)[handle], memory=5))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return self._answer("memory", SimpleNamespace(used=(40 * GIB, 0)[handle], total=140 * GIB))

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return int(self._answer("power", (312_400, 70_000)[handle]))

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return int(self._answer("temperature", (61, 30)[handle]))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNvml]:
    def use(*refused: str) -> FakeNvml:
        fake = FakeNvml(*refused)
        monkeypatch.setattr(devices, "pynvml", fake)
        return fake

    return use


BUSY = devices.Reading("0", "NVIDIA H200", 0.93, 40 * GIB, 140 * GIB, 312.4, 61)
IDLE = devices.Reading("GPU-1b", "NVIDIA H200", 0.0, 0, 140 * GIB, 70.0, 30)


def test_devices_are_read_by_number_and_by_id(nvml: Callable[..., FakeNvml]) -> None:
    fake = nvml()
    assert devices.read_devices(["0", "GPU-1b", "2", "GPU-other"]) == [BUSY, IDLE]
    assert devices.read_devices([]) == [] and (fake.open, fake.inits) == (0, 2)


@pytest.mark.parametrize(
    ("refused", "fields"),
    [
        ("busy", {"busy": None}), ("memory", {"memory_used": None, "memory": None}), ("power", {"power_w": None}),
        ("temperature", {"temperature_c": None}), ("name", {"name": ""}),
    ],
)  # fmt: skip
def test_what_a_device_does_not_report_is_missing_and_not_0(
    nvml: Callable[..., FakeNvml], refused: str, fields: dict[str, Any]
) -> None:
    nvml(refused)
    assert devices.read_devices(["0"]) == [BUSY._replace(**fields)]


def test_without_a_driver_or_the_package_nothing_is_known(
    nvml: Callable[..., FakeNvml], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nvml("init").open == 0 and devices.read_devices(["0"]) is None
    monkeypatch.setattr(devices, "pynvml", None)
    assert devices.read_devices(["0"]) is None


def test_the_reader_forgets_what_is_old(nvml: Callable[..., FakeNvml], monkeypatch: pytest.MonkeyPatch) -> None:
    nvml()
    reader = devices.Reader(["0"])
    assert reader.latest() is None
    for age_s, found in ((devices.OLD_AFTER_S - 1, [BUSY._asdict()]), (devices.OLD_AFTER_S + 1, None)):
        reader._latest = (time.monotonic() - age_s, [BUSY])
        assert reader.latest() == found
    reader._latest = (time.monotonic(), None)
    assert reader.latest() is None


def test_the_reader_survives_a_fault_and_ends(nvml: Callable[..., FakeNvml], monkeypatch: Any, caplog: Any) -> None:
    nvml()
    monkeypatch.setattr(devices, "READ_EVERY_S", 0.01)
    answers = iter([[BUSY], ValueError("odd"), [IDLE]])

    def read(_indices: list[str]) -> Any:
        answer = next(answers, [IDLE])
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(devices, "read_devices", read)
    reader = devices.Reader(["0"])
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
    monkeypatch.setattr(devices, "read_devices", lambda indices: asked.append(indices) or hangs.wait(30))
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
