"""Facts of the trainer and of the agent loop by value, in verl's virtualenv and without a Ray.

Run with verl's Python: ``python -m tests.training.verl_backend.in_trainer``. It names each fact that held.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import torch
from ray.exceptions import ActorDiedError, RayTaskError
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.utils.metric import Metric
from verl.utils.tensordict_utils import get_tensordict
from verl.workers.config import ActorConfig

from training.config import JobConfig
from training.errors import ClusterShort, PolicyFault, ProcessLost, SamplerDied, StopRequested
from training.journal import Held
from training.lanes import Lane
from training.verl_backend import cluster, devices, loop, lost, trainer
from training.verl_backend.actor import Lesson, error_of
from training.verl_backend.beats import Ranks
from training.verl_backend.cluster import Hold
from training.verl_backend.figures import made_of
from training.verl_backend.trainer import GroupTrainer, TaskRunner, places_of
from training.verl_backend.updates import Dealt, trained_on, update_loss

SIZE, PROMPTS = 2, 3


def bare(step: int = 4, mini: int = 1) -> Any:
    """A trainer of ``PROMPTS`` groups of ``SIZE`` in a sampling, dealt to ``mini`` updates; nothing else is set up."""
    made: Any = GroupTrainer.__new__(GroupTrainer)
    made.global_steps = step
    made.config = SimpleNamespace(data=SimpleNamespace(train_batch_size=PROMPTS))
    config = SimpleNamespace(
        rollouts_per_step=PROMPTS * SIZE, mini_batches=mini, run=SimpleNamespace(seed=42), updates_per_step=mini
    )
    made._updates, made._apart = mini, 0
    made.at = 0.0
    made._job = SimpleNamespace(config=config, log=lambda text: None, lane=Lane(lambda: made.at))
    made._failures = SimpleNamespace(check=lambda *given: None)
    made._prove = lambda rows: None
    made._began = 0.0
    return made


def facts(name: str, reward: float | None) -> dict[str, Any]:
    """What a process that plays says of a rollout."""
    empty: dict[str, Any] = {"env_parts": {}, "env_errors": 0, "latencies": [], "parts": None, "error": None}
    empty |= {"sampled": [(1.0, 3.0)] if name.endswith("i0") else [(2.0, 4.0)], "ended": 6.0}
    return empty | {"status": "completed", "turns": 1, "name": name, "row": 0, "reward": reward, "tokens": 2}


class Rows:
    """A step's rows as verl keeps them, the last group first; of each group the first advantage is positive."""

    def __init__(self, silent: bool = False) -> None:
        self.keys = [f"s4-g{group}_{index}_0" for group in (2, 1, 0) for index in range(SIZE)]
        self.tags: list[dict[str, Any]] = [{} for _ in self.keys]
        self.partition_id = "train"
        masks = [[0, 0, 0] if silent or "g1_" in key else [1, 0, 1] for key in self.keys]
        self.extra = [
            {"advantage": (group + 1.0) * (1 - 2 * index), "facts": facts(f"a1-s4-g{group}-i{index}", float(group))}
            for group in (2, 1, 0)
            for index in range(SIZE)
        ]
        self.masks = torch.nested.as_nested_tensor([torch.tensor(mask) for mask in masks], layout=torch.jagged)

    def __len__(self) -> int:
        return len(self.keys)

    def get(self, **_asked: Any) -> dict[str, Any]:
        """In the place of ``tq.kv_batch_get``."""
        return dict.fromkeys(trainer.FIELDS, self.masks) | {"extra_fields": self.extra, "response_mask": self.masks}


def computed(made: Any, rows: Rows) -> tuple[list[list[float]], int]:
    """The advantages that verl is given for each row, and how often it computed its own."""
    given, own = [], []

    def put(keys: list[str], partition_id: str, fields: TensorDict) -> Any:
        assert keys == rows.keys and partition_id == "train"
        given.extend(row.tolist() for row in fields["advantages"].unbind())
        assert [row.tolist() for row in fields["returns"].unbind()] == given
        return rows

    def theirs(_trainer: Any, batch: Any, _metrics: Any) -> Any:
        own.append(batch)
        return batch

    with (
        patch.object(trainer.tq, "kv_batch_get", rows.get),
        patch.object(trainer.tq, "kv_batch_put", put),
        patch.object(PPOTrainerSync, "_compute_advantage", theirs),
    ):
        made._compute_advantage(rows, {})
    return given, len(own)


def names_and_places() -> None:
    """A group is named by its step and its number in the step, and a row's key says both and the rollout's index."""
    batch = get_tensordict({"place": torch.tensor([9, 10, 11])}, {})
    with patch.object(PPOTrainerSync, "_fetch_one_gen_batch", lambda _trainer: batch):
        found = bare()._fetch_one_gen_batch()
    assert list(found["uid"]) == ["s4-g0", "s4-g1", "s4-g2"], list(found["uid"])
    again = get_tensordict({"place": torch.tensor([9])}, {})
    with patch.object(PPOTrainerSync, "_fetch_one_gen_batch", lambda _trainer: again):
        assert list(bare(mini=2)._fetch_one_gen_batch()["uid"]) == ["s7-g0"], "the fourth sampling begins at step 7"
    assert places_of(["s4-g2_1_0", "s4-g10_0_0"]) == [(2, 1), (10, 0)]


def advantages_are_ours() -> None:
    """Each row has the advantage that was computed where it was played, at the tokens that are learned from."""
    made = bare()
    made._job.lane.turn("waiting")
    made.at = 10.0
    made._job.lane.turn("training")
    given, own = computed(made, Rows())
    made.at = 12.0
    lane = [
        ("environment", 0, 1),
        ("generation", 1, 4),
        ("environment", 4, 6),
        ("scoring", 6, 10),
        ("training", 10, 12),
    ]
    assert made._job.lane.finish() == lane
    assert given == [[3, 0, 3], [-3, 0, -3], [0, 0, 0], [0, 0, 0], [1, 0, 1], [-1, 0, -1]], given
    assert own == 1 and made._dealt == Dealt([[4, 5, 1, 0, 2, 3]], 8.0, 4.0, (4,)), made._dealt
    assert made._entropy() == {"actor/entropy": 1.0}
    assert [rollout.name for rollout in made._rollouts] == [f"a1-s4-g{g}-i{i}" for g in range(3) for i in range(SIZE)]


def a_step_that_teaches_nothing() -> None:
    """Neither advantages of verl's nor an update: a mean over no token would be no number."""
    made = bare()
    given, own = computed(made, Rows(silent=True))
    assert own == 0 and made._dealt.share_of_tokens == 0 and given == [[0, 0, 0]] * 6
    made.timing_raw = {"gen": 2.0}
    with patch.object(trainer, "trained_on", side_effect=AssertionError("it must not be asked")):
        made._update_actor(Rows(), {"actor/entropy": 3.0})
    assert made._last == {"actor/loss": 0.0, "actor/grad_norm": 0.0, "timing_s/gen": 2.0}


def several_updates() -> None:
    """Each update has its own rows, shares and step; rows that teach nothing fill the smaller ones up."""
    made = bare(mini=2)
    assert made._first == 7, "verl's fourth sampling"
    computed(made, Rows())
    rows, tokens, each, taught = made._dealt
    assert (tokens, each, taught) == (4.0, 2.0, (2, 2)) and [len(own) for own in rows] == [3, 3]
    assert sorted(rows[0] + rows[1]) == list(range(6)) and {rows[0][2], rows[1][2]} == {2, 3}
    asked: list[tuple[list[int], dict[str, Any]]] = []
    reported: list[tuple[int, dict[str, Any]]] = []

    def once(_workers: Any, _batch: Any, rows: list[int], given: dict[str, Any], devices: int) -> dict[str, Any]:
        assert devices == 1
        asked.append((list(rows), given))
        return {"actor/loss": float(len(asked)), "actor/grad_norm": 1.0, "actor/lr": 0.5}

    made.actor_rollout_wg, made._rate, made.timing_raw = None, None, {"gen": 2.0}
    optim = SimpleNamespace(schedule="constant", warmup_steps=0)
    grpo = SimpleNamespace(entropy_coef=0.0)
    vars(made._job.config).update(optim=optim, learning_rate=0.25, hardware=SimpleNamespace(shares=1), grpo=grpo)
    made._job.config.needs_entropy = JobConfig.needs_entropy.fget(made._job.config)
    made.config.actor_rollout_ref = SimpleNamespace(rollout=SimpleNamespace(temperature=0.7))
    made._report = lambda step, figures: reported.append((step, figures))
    written: list[Any] = []
    made._write, made._ranks = written.append, Ranks(lambda _function, *_given: [("a", "cpu"), ("a", "cpu")], "cpu")
    made.at = 5.0
    with patch.object(trainer, "trained_on", once):
        made._update_actor(Rows(), {})
    lanes = [(each.step, each.host, each.device, each.phases, each.busy) for each in written]
    assert lanes == [(7, "a", f"cpu:{rank}", {"training": 5.0}, None) for rank in (0, 1)], "the last one continues"
    assert [own for own, _given in asked] == rows
    wanted = {"share_of_tokens": 4.0, "share_of_rows": 2.0, "own_rows": 2, "temperature": 0.7}
    assert [given for _own, given in asked] == [wanted | {"calculate_entropy": True}] * 2
    ((step, first),) = reported
    assert (step, first["actor/loss"], first["actor/lr"], first["timing_s/gen"]) == (7, 1.0, 0.25, 2.0)
    assert "actor/entropy" not in first, "each update computes its own"
    assert (made._last["actor/loss"], made._last["actor/lr"]) == (2.0, 0.5) and "timing_s/gen" not in made._last


def rows_of_devices() -> None:
    """Each device has as many rows of an update, the work is divided, and verl makes one update of them."""
    rows, sent = Rows(), []
    batch = KVBatchMeta(keys=rows.keys, tags=[{"seq_len": size} for size in (12, 1, 1, 1, 5, 5)], partition_id="train")
    batch.extra_info = {"temperature": 0.7, "epochs": 9}

    def update_actor(own: Any) -> dict[str, Any]:
        sent.append(own)
        return {"metrics": {"loss": [1.0, 3.0], "actor/kl": [0.5], "grad_norm": 2.0}}

    found = trained_on(SimpleNamespace(update_actor=update_actor), batch, [0, 1, 2, 3], {"share_of_rows": 1.5}, 2)
    assert found == {"actor/loss": 2.0, "actor/kl": 0.5, "actor/grad_norm": 2.0}, found
    (own,) = sent
    halves = [sorted(tag["seq_len"] for tag in own.tags[begin : begin + 2]) for begin in (0, 2)]
    assert sorted(halves) == [[1, 1], [1, 12]] and set(own.keys) == set(rows.keys[:4])
    given = {name: own.extra_info[name] for name in ("mini_batch_size", "epochs", "share_of_rows", "temperature")}
    assert given == {"mini_batch_size": 4, "epochs": 1, "share_of_rows": 1.5, "temperature": 0.7}
    assert own.extra_info["dataloader_kwargs"] == {"shuffle": False} and batch.extra_info["epochs"] == 9


def losses_by_value() -> None:
    """Two rows of 3 and 1 tokens on one of two devices: clipped, pulled to a reference, with a bonus."""
    for mode, wanted in (("token-mean", 1.48), ("seq-mean-token-mean", 3.12), ("seq-mean-token-sum-norm", 0.74)):
        loss, figures = one_loss(mode, entropy=None)
        assert abs(loss - wanted) < 1e-6, (mode, loss)
        assert "kl" not in figures and "entropy" not in figures
    # of 8 tokens of the update on both devices; the figures are of this device, twice as large
    assert figures["clipped"] == figures["clipped_low"] + figures["clipped_high"]
    assert (figures["clipped_high"], figures["clipped_low"]) == (2 * 1 / 8, 2 * 1 / 8), figures
    plain = one_loss("token-mean", entropy=None)[0]
    loss, figures = one_loss("token-mean", entropy=[1.0, 2.0, 3.0, 5.0])
    assert abs(figures["entropy"] - 2 * 11 / 8) < 1e-6
    assert abs(plain - loss - 0.5 * (3 / 2.5) * 2 * 11 / 8) < 1e-6, "weighed by the rows that the update has"
    loss, figures = one_loss("token-mean", entropy=None, pull=True)
    kl = (1.5 + 0.6 + 0.7 + 1.0) * (math.exp(0.5) - 0.5 - 1)  # weighed by the ratios
    assert abs(figures["kl"] - 2 * kl / 8) < 1e-6 and abs(loss - plain - 0.1 * 2 * kl / 5) < 1e-5


def one_loss(mode: str, entropy: list[float] | None, *, pull: bool = False) -> tuple[float, dict[str, float]]:
    """Ratios 1.5, 0.6 and 0.7 with advantages 1, -2 and 1, and ratio 1 with advantage -4, where ε is 0.2."""

    def of(*rows: list[float]) -> torch.Tensor:
        return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)

    old = of([-1.0, -1.0, -1.0], [-1.0])
    new = [[0.0, *(-1 + math.log(ratio) for ratio in row), 0.0] for row in ([1.5, 0.6, 0.7], [1.0])]
    tensors = {
        "prompts": of([1.0, 1.0], [1.0, 1.0]),
        "responses": of([1.0] * 3, [1.0]),
        "response_mask": of([1.0] * 3, [1.0]),
        "old_log_probs": old,
        "advantages": of([1.0, -2.0, 1.0], [-4.0]),
    }
    if pull:
        tensors["ref_log_prob"] = of(*([value + 0.5 for value in row[1:-1]] for row in new))
    words = {"dp_size": 2, "batch_num_tokens": 8, "global_batch_size": 99, "share_of_tokens": 5.0}
    data = get_tensordict(tensors, words | {"share_of_rows": 2.5, "own_rows": 3})
    config = ActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        use_dynamic_bsz=True,
        clip_ratio=0.2,
        clip_ratio_low=0.2,
        clip_ratio_high=0.2,
        clip_ratio_c=1e6,
        loss_agg_mode=mode,
        loss_scale_factor=4,
        entropy_coeff=0.5,
    )
    output = {"log_probs": of(*new)}
    if entropy is not None:
        output["entropy"] = of([0.0, *entropy[:3], 0.0], [0.0, entropy[3], 0.0])
    loss, found = update_loss(config, 0.1 if pull else 0.0, output, data)
    figures = {name: value.aggregate() for name, value in found.items() if isinstance(value, Metric)}
    return float(loss), figures


def rows_that_lack_or_fail() -> None:
    """Filled up or missing rows are no batch, and an error of a process that plays is the run's."""
    padded, short, failed = Rows(), Rows(), Rows()
    padded.tags[0] = {"is_padding": True}
    short.keys = short.keys[:-1]
    for rows in (padded, short):
        try:
            computed(bare(), rows)
        except PolicyFault as error:
            assert str(error).startswith("1 of 6 rollouts of step 4 did not come"), error
        else:
            raise AssertionError("it was taken for whole")
    failed.extra[3]["facts"] = {"fatal": error_of(SamplerDied("it is gone"))}
    try:
        computed(bare(), failed)
    except Exception as error:  # it is made again of its plain values
        assert getattr(error, "code", "") == SamplerDied.code, error
    else:
        raise AssertionError("the error was lost")


def a_rollout_of_the_loop() -> None:
    """The place says the group, and the row says of which weights it is: those of the step before."""
    asked: list[tuple[int, int, int]] = []

    class Plays:
        config = SimpleNamespace(rollout=SimpleNamespace(prompts_per_step=PROMPTS))

        async def play(self, step: int, group: int, index: int) -> Lesson:
            asked.append((step, group, index))
            return Lesson([1], [2, 3], [1, 0], [-0.5, 0.0], 0.75, {"reward": None, "turns": 2})

    made: Any = loop.PlayerLoop.__new__(loop.PlayerLoop)
    made._actor = Plays
    found = asyncio.run(made.run({}, global_steps=4, place=11, session_id=1))
    assert asked == [(4, 2, 1)]
    assert (found.prompt_ids, found.response_ids, found.response_mask) == ([1], [2, 3], [1, 0])
    assert (found.response_logprobs, found.reward_score, found.num_turns) == ([-0.5, 0.0], 0.0, 2)
    extra = found.extra_fields
    assert (extra["min_global_steps"], extra["max_global_steps"], extra["advantage"]) == (3, 3, 0.75)


def ends(error: Exception) -> tuple[list[Any], Exception | None]:
    """What a run whose training raises this writes, and what its task raises then."""
    written: list[Any] = []
    job = SimpleNamespace(step=3, run_dir=Path("/"), journal=SimpleNamespace(write=written.append, close=lambda: None))
    job.enter = lambda phase, step: written.append((phase, step))
    job.log = lambda text, level="info": written.append((level, text))
    folder = SimpleNamespace(take_variables=lambda: None, run_dir=Path("/"), config=None, own_journal=Path("/"))
    folder.plan = SimpleNamespace(attempt=1, earlier=[], base=None, resolved={})
    made: Any = TaskRunner.__ray_metadata__.modified_class()
    made._train = Mock(side_effect=error)
    given = {"JobFolder": lambda path: folder, "Job": lambda *a, **b: job, "Journal": lambda path: None}
    try:
        with patch.multiple(trainer, configure_verl_logging=lambda: None, **given):
            made.run(SimpleNamespace(data=SimpleNamespace(train_files="/")))
    except Exception as exc:
        return written[1:], exc
    return written[1:], None


def faults_of_other_processes() -> None:
    """Memory, a GPU and a disk that fail in a worker pause the run, and the log names the process and its host. The
    death of a process leaves no last word, so that another attempt continues; a defect fails the run."""

    def there(cause: Exception) -> Exception:
        return RayTaskError("update_actor", "Traceback …", cause, pid=77, ip="192.0.2.9")

    for cause, code, text in (
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory", "CUDA out of memory"),
        (MemoryError("no more"), "out_of_memory", "no more"),
        (RuntimeError("CUDA error: unspecified launch failure"), "device_failed", "launch failure"),
        (OSError(28, "No space left on device"), "storage_full", ""),
    ):
        for error, where in ((there(cause), "(process 77 on 192.0.2.9)"), (cause, "")):
            (line, last), raised = ends(error)
            assert raised is None and line[0] == "error" and text in line[1]
            assert line[1].endswith(where) and ("process" in line[1]) == bool(where)
            assert (last.status, last.step, last.error.code) == ("paused", 3, code), last
    (line,), raised = ends(ActorDiedError())
    assert line[1].startswith("A process of the job was lost") and isinstance(raised, ActorDiedError)
    *_lines, last = ends(there(ValueError("a defect")))[0]
    assert (last.status, last.error.code) == ("failed", "trainer_crashed")


def processes_that_are_lost() -> None:
    """verl's wait for rollouts ends where a process of the job dies in it; those that ended before are no news. Another
    attempt continues, so nothing is said of the run. The samplers sleep once all rollouts have come, and not before."""
    made, polls, sleeps = bare(), list[tuple[Any, ...]](), list[str]()
    made.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: sleeps.append("sleep"))
    made.curr_step_profile = False
    made.replay_buffer = SimpleNamespace(_wait_for_next_poll=lambda *given: polls.append(given))
    address = {"IPAddress": "192.0.2.9"}
    dead: dict[str, Any] = {"old": {"ActorClassName": "Once", "Pid": 3, "Address": address}}
    with patch.object(lost, "dead_actors", lambda: dict(dead)):
        made._watch_processes()
        made.replay_buffer._wait_for_next_poll("train", 0.0)
        made.on_sample_end()
        assert polls == [("train", 0.0)] and sleeps == ["sleep"]
        dead["new"] = {"ActorClassName": "made.<locals>.AgentLoopWorkerTQ", "Pid": 77, "Address": address}
        for look in (made.replay_buffer._wait_for_next_poll, made.on_sample_end):
            try:
                look()
            except ProcessLost as error:
                wanted = "A process of the job was lost: AgentLoopWorkerTQ, process 77 on 192.0.2.9."
                assert str(error) == wanted, error
            else:
                raise AssertionError("it was not noticed")
    assert len(polls) == 1 and sleeps == ["sleep"]
    for error in (ProcessLost("it is gone"), made_of(error_of(ProcessLost("it is gone")))):
        written, raised = ends(error)
        assert written == [("error", "it is gone")] and raised is error, written


class Pool:
    """A pool of one host whose devices are there once ``free`` is set."""

    store, max_colocate_count = [2], 3

    def __init__(self, error: Exception | None = None) -> None:
        self.free, self.error, self.taken = threading.Event(), error, 0

    def get_placement_groups(self) -> None:
        if self.error is not None:
            raise self.error
        assert self.free.wait(10)
        self.taken += 1


def pools_of(*pools: Pool, rest: Any) -> tuple[Any, list[Held]]:
    """verl's pools with these, and what is journalled while they wait."""
    said: list[Held] = []
    made = devices.Pools(ResourcePoolManager({}, {}), Hold(said.append), rest)
    made.resource_pool_dict = dict(enumerate(pools))  # type: ignore[arg-type]
    return made, said


def devices_that_are_waited_for() -> None:
    """What lacks is said; a wait of moments is not. It ends with the devices, with a stop, or with the patience."""
    first, second = Pool(), Pool()
    asked: list[str] = []

    def shortage(hosts: list[int], cpus: int) -> str:
        assert (hosts, cpus) == ([2], 3)
        asked.append("it lacks")
        return asked[-1]

    def frees(_seconds: float) -> None:
        first.free.set()
        second.free.set()

    with patch.object(devices, "shortage", shortage), patch.object(devices, "GRACE_S", 0.05):
        waiting, said = pools_of(first, second, rest=frees)
        waiting._check_resource_available()
        assert (first.taken, second.taken) == (1, 1)
        assert [held.error and (held.error.code, held.error.message) for held in said] == [
            ("cluster_short", "it lacks"),
            None,
        ]
        there, said = pools_of(first, rest=Mock(side_effect=AssertionError))
        there._check_resource_available()
        assert (first.taken, said) == (2, [])
        for error, raised in ((StopRequested("stop"), StopRequested), (None, ClusterShort)):
            never, said = pools_of(Pool(), rest=Mock(side_effect=error))
            with patch.object(cluster, "PATIENCE_S", 0.2):
                try:
                    never._check_resource_available()
                except raised:
                    assert len(said) == 1
                else:
                    raise AssertionError("it waits on")
        broken, said = pools_of(Pool(ValueError("no such kind")), rest=None)
        try:
            broken._check_resource_available()
        except ValueError:
            assert said == []
        else:
            raise AssertionError("the error was lost")


def what_a_cluster_lacks() -> None:
    """By value, with the hosts that it has lost."""
    nodes = [{"NodeManagerAddress": f"192.0.2.{n}", "Alive": n != 2} for n in (1, 2, 3)]
    has = {"CPU": 8.5}
    found = {"cluster_resources": has, "nodes": nodes}
    platform = SimpleNamespace(ray_resource_name=lambda: "GPU")
    with (
        patch.multiple(devices.ray, **{name: Mock(return_value=value) for name, value in found.items()}),
        patch.object(devices, "get_platform", lambda: platform),
    ):
        lacks = devices.shortage([2, 2], 3)
        assert lacks == (
            "The Ray cluster has no place for 2 × 2 devices with 3 CPUs each: it has 0 devices and 8.5 CPUs on 2 "
            "hosts, some of which other jobs may use. It has lost 192.0.2.2."
        ), lacks
        nodes[1]["Alive"] = True
        has["GPU"] = 4.0
        assert devices.shortage([2, 2], 3).endswith(
            "it has 4 devices and 8.5 CPUs on 3 hosts, some of which other jobs may use."
        )


FACTS = (
    processes_that_are_lost,
    devices_that_are_waited_for,
    what_a_cluster_lacks,
    names_and_places,
    advantages_are_ours,
    a_step_that_teaches_nothing,
    several_updates,
    rows_of_devices,
    losses_by_value,
    rows_that_lack_or_fail,
    a_rollout_of_the_loop,
    faults_of_other_processes,
)

if __name__ == "__main__":
    for fact in FACTS:
        fact()
        print(f"HELD {fact.__name__}", flush=True)
    sys.exit(0)
