"""Chats answered by a real worker: streamed, stopped, given up for a run, and lost with their worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from tests.chaos.services import descendants
from tests.servers import celery_processes
from tests.training.helpers import demonstration_rows
from training.starter import build_starter
from webapp.chat.models import Answer, AnswerState, Chat, Holder
from webapp.chat.services import answer_again, chat_stop, turn_send
from webapp.common.workers.models import Worker
from webapp.runs.models import Run
from webapp.runs.states import RunState

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180), pytest.mark.slow]
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def tiny_folder() -> Path:
    """A starter of many layers: the small one writes 3,500 words in less time than a run may wait for the device."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    folder = Path(settings.MODELS_DIR) / "deep"
    build_starter(demonstration_rows(), folder, seed=3)
    known = Qwen3Config.from_pretrained(folder).to_dict()
    torch.manual_seed(3)
    config = Qwen3Config(**(known | {"num_hidden_layers": 24, "layer_types": None}))
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture
def real_workers(tmp_path: Path) -> Iterator[Path]:
    """The usual processes, with a short patience for silence."""
    with celery_processes(tmp_path, TILTYARD_CHAT_IDLE_S="3"):
        yield tmp_path


def _until(found: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if (value := found()) is not None and value is not False:
            return value
        time.sleep(0.05)
    pytest.fail(f"not within {limit_s:g} s: {what}")


def _worker(queue: str) -> Worker:
    """The living worker of a queue."""
    found: Worker = _until(lambda: Worker.objects.filter(queues__contains=[queue]).first(), f"a worker of {queue}")
    return found


def _say(chat: Chat, text: str = "Say red please.", **parameters: Any) -> Answer:
    chat.refresh_from_db()
    return turn_send(chat=chat, user=chat.created_by, text=text, parameters=parameters).answers.get()


def _ended(answer: Answer) -> Answer:
    def over() -> bool:
        answer.refresh_from_db()
        return answer.state not in Answer.OPEN

    _until(over, f"the end of {answer}")
    return answer


def _long(chat: Chat) -> Answer:
    """An answer that would take long, of which something was read already: the most likely words of random weights
    repeat themselves, where drawn ones end by chance."""
    answer = _say(chat, temperature=0.0, max_tokens=3500)
    _until(lambda: Answer.objects.filter(pk=answer.pk).exclude(partial="").exists(), "its first words")
    return answer


def test_a_worker_answers_stops_and_lets_go_of_the_model(real_workers: Path, make_chat: Callable[..., Chat]) -> None:
    chat = make_chat(parameters={"max_tokens": 24, "temperature": 1.0})
    first = _ended(_say(chat))
    assert first.state == AnswerState.DONE, first.error
    assert first.messages[0]["role"] == "assistant" and 0 < first.ending["tokens"] <= 24
    holder = Holder.objects.get().owner
    loaded = descendants(_worker("train").pid)
    second = _ended(_say(chat, "And green?"))
    assert second.state == AnswerState.DONE and second.ending["first_s"] < 5
    assert descendants(_worker("train").pid) == loaded, "the model was in memory"
    assert Holder.objects.get().owner == holder
    again = _ended(answer_again(chat=chat, answer=second.pk))
    assert again.number == 1 and again.messages != second.messages
    long = _long(chat)
    chat_stop(chat=chat)
    stopped = _ended(long)
    assert stopped.state == AnswerState.STOPPED and stopped.partial
    assert chat_stop(chat=chat) == 0
    _until(lambda: not Holder.objects.exists(), "the idle worker lets go")


def test_a_run_gets_the_device_within_ten_seconds(
    real_workers: Path, make_chat: Callable[..., Chat], make_run: Callable[..., Run]
) -> None:
    answer = _long(make_chat())
    run = make_run(name="needs-it", state=RunState.QUEUED)
    Run.objects.filter(pk=run.pk).update(queued_at="2026-01-01T00:00:00Z")
    began = time.monotonic()
    _until(lambda: Run.objects.exclude(state=RunState.QUEUED).filter(pk=run.pk).exists(), "the run is taken", 15)
    assert time.monotonic() - began < 10
    answer = _ended(answer)
    assert answer.state == AnswerState.CUT and answer.partial
    assert answer.error["code"] == "chat_gave_way"


def test_a_small_model_answers_while_a_run_has_the_device(
    real_workers: Path, make_chat: Callable[..., Chat], make_run: Callable[..., Run]
) -> None:
    run = make_run(name="long", state=RunState.RUNNING)
    later = timezone.now() + timedelta(hours=1)
    Run.objects.filter(pk=run.pk).update(lease_worker=_worker("train").name, lease_beat_at=later)
    _worker("endpoint")
    answer = _ended(_say(make_chat(), max_tokens=8))
    assert (answer.state, answer.pool, answer.ending["device"]) == (AnswerState.DONE, "endpoint", "cpu"), answer.error


def test_a_killed_worker_is_noticed_within_half_a_minute(real_workers: Path, make_chat: Callable[..., Chat]) -> None:
    answer = _long(make_chat())
    pid = _worker("train").pid
    for victim in [*descendants(pid), pid]:
        os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    answer = _ended(answer)
    assert time.monotonic() - began < 30
    assert (answer.state, answer.error["code"]) == (AnswerState.CUT, "chat_cut")
    assert answer.partial, "what was written stays"
