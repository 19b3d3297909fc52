"""A trainer that trains nothing: it takes the real command line and writes a scripted journal as fast as it is set.

The script is ``model.revision`` of its config, as ``word-value/word-value``: ``sleep-20`` (ms a step),
``mode-ok|crash|hang| prepare|fail|kill|nul``, ``at-5`` (step of the mode), ``rollouts-2``, ``save-800`` (ms that a
save at a stop takes), ``busy-800`` (ms of processor time that the
update at hand of a stop takes before it). Like the real one it ends when its parent's pipe
closes, answers SIGTERM with ``stopped``, and drops a torn last line.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import yaml


class Stub:
    def __init__(self, argv):
        options = dict(zip(argv[2::2], argv[3::2], strict=True))
        self.config = yaml.safe_load(Path(argv[1]).read_text())
        self.folder, self.attempt = Path(options["--run-dir"]), int(options["--attempt"])
        resume = options.get("--resume-from")
        self.from_step = newest_step(Path(resume)) if resume else 0
        script = dict(part.split("-", 1) for part in self.config["model"]["revision"].split("/") if "-" in part)
        self.mode, self.at = script.get("mode", "ok"), int(script.get("at", 1))
        self.sleep, self.rollouts = int(script.get("sleep", 5)) / 1000, int(script.get("rollouts", 2))
        self.save_s = float(script.get("save", 0)) / 1000
        self.busy_s = float(script.get("busy", 0)) / 1000
        self.n, self.stopping = 0, False
        self.journal = open(self.folder / "journal.jsonl", "ab", buffering=0)  # noqa: SIM115

    def write(self, type, **fields):
        self.n += 1
        line = json.dumps({"v": 1, "n": self.n, "t": time.time(), "type": type, **fields})
        self.journal.write(line.encode() + b"\n")

    def run(self):
        total = self.config["run"]["max_steps"]
        self.write("run_started", kind="grpo", total_steps=total, from_step=self.from_step, pid=os.getpid())
        self.write("phase", phase="preparing", step=0)
        if self.mode == "crash":
            print("Traceback: token=supersecret123 out of luck", flush=True)
            os._exit(137)
        if self.mode == "prepare":
            self.hang()
        for step in range(self.from_step + 1, total + 1):
            self.step(step)
            if self.stopping:
                until = time.process_time() + self.busy_s
                while time.process_time() < until:
                    pass
                time.sleep(self.save_s)
                if self.save_s:
                    self.checkpoint(step)
                return self.write("run_finished", status="stopped", step=step)
        self.checkpoint(total, final=True)
        self.write("run_finished", status="succeeded", step=total)

    def hang(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "300"])
        while True:
            time.sleep(1)

    def step(self, step):
        self.write("phase", phase="generating", step=step)
        if step == self.at and self.mode == "hang":
            self.hang()
        if step == self.at and self.mode == "fail":
            error = {"code": "environment_unreachable", "boundary": "environment", "message": "gone", "hint": ""}
            self.write("run_finished", status="failed", step=step, error=error)
            sys.exit(1)
        if step == self.at and self.mode == "kill" and self.attempt == 1:
            self.write("rollout_started", rollout=str(uuid.uuid4()), step=step, group=9, index=0, task="unfinished")
            self.journal.write(b'{"v":1,"n":9,"t":1,"type":"log","message":"torn')
            os.kill(os.getpid(), signal.SIGKILL)
        names = [str(uuid.uuid4()) for _ in range(self.rollouts)]
        for index, name in enumerate(names):
            self.rollout(step, index, name)
        advantages = [float(index) for index in range(len(names))]
        self.write(
            "group_scored",
            step=step,
            group=0,
            rollouts=names,
            advantages=advantages,
            reward_mean=0.5,
            reward_std=0.1,
            zero_variance=False,
        )
        self.write("phase", phase="training", step=step)
        loss = "NaN" if step % 7 == 0 else 1.0 / step
        self.write("metrics", step=step, values={"reward": step / 100, "loss": loss, "kl": 0.01})
        every = self.config["run"]["save_every"]
        if every and step % every == 0:
            self.checkpoint(step)
        time.sleep(self.sleep)

    def rollout(self, step, index, name):
        self.write("rollout_started", rollout=name, step=step, group=0, index=index, row=index, task=f"task {index}")
        for number, role in enumerate(("user", "assistant", "tool")):
            text = f"{role} of {step} \u4e2d </script>" + ("\x00" if self.mode == "nul" else "")
            self.write("turn", rollout=name, turn=number, messages=[{"role": role, "content": text}], tokens=number)
        self.write(
            "rollout_finished",
            rollout=name,
            status="completed",
            reward=0.5,
            parts={"a": 0.5, "b": None},
            turns=1,
            tokens=3,
            seconds=0.01,
        )

    def checkpoint(self, step, final=False):
        path = "model" if final else f"checkpoints/{step}"
        folder, staging = self.folder / path, self.folder / f"{path}.staging"
        staging.mkdir(parents=True, exist_ok=True)
        (staging / "step").write_text(str(step))
        listed = [{"path": "step", "bytes": len(str(step)), "sha256": hashlib.sha256(str(step).encode()).hexdigest()}]
        (staging / "manifest.json").write_text(json.dumps({"version": 1, "step": step, "files": listed}))
        if folder.exists():  # the stop came in a step that was saved
            shutil.rmtree(folder)
        staging.rename(folder)
        self.write("checkpoint", step=step, path=path, bytes=1, final=final, seconds=self.save_s)


def newest_step(resume):
    """As the real one: a checkpoint itself, or the newest by (attempt, step) below the folder of a run's attempts."""
    if (resume / "step").exists():
        return int((resume / "step").read_text())
    found = [(int(path.parts[-4]), int(path.read_text())) for path in resume.glob("*/checkpoints/*/step")]
    return max(found, default=(0, 0))[1]


def watch(fd):
    os.read(fd, 1)
    os._exit(3)


if __name__ == "__main__":
    threading.Thread(target=watch, args=(int(os.environ["TILTYARD_PARENT_FD"]),), daemon=True).start()
    stub = Stub(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: setattr(stub, "stopping", True))
    stub.run()
