"""``python -m training``: run a job, print the schema of its config, or check one before a launch."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from training.children import PARENT_VARIABLE
from training.config import JobConfig, config_load, nearest_option
from training.errors import ConfigError, TiltyardError
from training.floors import floors_broken
from training.plain import number_in
from training.words import complaint_of, option_of

EXIT_USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code: 0 succeeded, 1 failed, 2 bad usage or config, 4 stopped, 5 paused."""
    words = sys.argv[1:] if arguments is None else arguments
    if too_old := floors_broken():
        print("\n".join(too_old), file=sys.stderr)
        return 2
    if words[:1] == ["data"]:
        from training.data.__main__ import main as data_main

        return data_main(words[1:])
    if words[:1] == ["import"]:
        from training.imports.__main__ import main as import_main

        return import_main(words[1:])
    options = _parser().parse_args(words)
    does: Callable[[argparse.Namespace], int] = options.does
    return does(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training", description="Train tool-using models from a YAML config."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        own = commands.add_parser(command.name, help=command.about, add_help=command.does is not None)
        command.takes(own)
        own.set_defaults(does=command.does)
    return parser


def _takes_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="YAML file of options")


def _takes_run(parser: argparse.ArgumentParser) -> None:
    _takes_config(parser)
    parser.add_argument("--run-dir", type=Path, help="where journal and model go (default runs/<config>-<time>)")
    parser.add_argument(
        "--attempt", type=int, help="number of this attempt (default: one more than the journal's last)"
    )
    parser.add_argument(
        "--resume-from",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a checkpoint, a run directory with checkpoints, or one with numbered attempts; may be given several "
        "times: the newest whole checkpoint by attempt and step is taken",
    )
    parser.add_argument(
        "--earlier",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="run directory of an earlier attempt; may be given several times, oldest first: what judges answered "
        "there is not asked again, and a run that only samples continues after its last step",
    )
    parser.add_argument(
        "--run-id", default="", help="what other trackers know the run by (default: made of its folder)"
    )
    parser.add_argument("--parent-pipe", type=int, help=f"exit when this pipe closes (or set {PARENT_VARIABLE})")


def _takes_preflight(parser: argparse.ArgumentParser) -> None:
    _takes_config(parser)
    parser.add_argument("--device", default="", help="device to judge its memory by, as in `memory`")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _takes_memory(parser: argparse.ArgumentParser) -> None:
    _takes_config(parser)
    parser.add_argument(
        "--device", default="", help="cpu, t4, a10, a100, h100, ... or name=GiB[@capability] (default: what is here)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes")


def _takes_export(parser: argparse.ArgumentParser) -> None:
    _takes_config(parser)
    parser.add_argument("--output", type=Path, required=True, help="folder for train.parquet and config.yaml")


def _takes_pairs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, nargs="+", help="run directories of its attempts, oldest first")
    parser.add_argument("--output", type=Path, required=True, help="JSON Lines file to write")
    parser.add_argument("--min-gap", type=float, default=0.5, help="rewards of a pair differ at least so much (0.5)")


def _takes_template(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder of the model, or of its tokenizer alone")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _takes_rendered(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rows", type=Path, help="dataset of rows (rows.jsonl)")
    parser.add_argument("--model", required=True, help="folder of the model, or starter")
    parser.add_argument("--first", type=int, default=1, help="number of the first row to show (1)")
    parser.add_argument("--count", type=int, default=5, help="rows to show (5)")


def _takes_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="run directory, or one with numbered attempts")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another threshold")
    parser.add_argument("--json", action="store_true", help="print JSON, with the evidence")


def _takes_docs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", nargs="?", choices=list(PAGES), default="configuration")


def _takes_nothing(_parser: argparse.ArgumentParser) -> None:
    """Its own module reads what follows."""


def _with_config(does: Callable[[JobConfig, argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A command on the config that its first word names; a config that is wrong is said."""

    def loaded(options: argparse.Namespace) -> int:
        try:
            config = config_load(options.config)
        except (ConfigError, ValidationError) as exc:
            return _refuse(exc)
        return does(config, options)

    return loaded


def _run(config: JobConfig, options: argparse.Namespace) -> int:
    from training.main import run_job
    from training.sessions import watch_parent

    descriptor = options.parent_pipe if options.parent_pipe is not None else _descriptor_from_environment()
    if descriptor is not None:
        watch_parent(descriptor)
    run_dir = options.run_dir or Path("runs") / f"{options.config.stem}-{datetime.now():%Y%m%d-%H%M%S}"
    return run_job(
        config,
        run_dir,
        attempt=options.attempt,
        resume_from=options.resume_from,
        earlier=options.earlier,
        run_id=options.run_id,
    )


def _schema() -> int:
    print(json.dumps(JobConfig.model_json_schema(), ensure_ascii=False, indent=2))
    return 0


def _docs(page: str) -> int:
    print(import_module(PAGES[page]).reference(), end="")
    return 0


def _chat() -> int:
    from training.chat.serve import serve
    from training.sessions import watch_parent

    if (descriptor := _descriptor_from_environment()) is not None:
        watch_parent(descriptor)
    return serve()


def _preflight(config: JobConfig, device: str, *, as_json: bool) -> int:
    from training.preflight import each_check

    ok, between = True, "["
    for check in each_check(config, device=device):
        ok = ok and check.ok
        if as_json:  # a list with one finding a line, so that a reader may follow it as it grows
            print(between, check.model_dump_json(), sep="\n", flush=True)
            between = ","
        else:
            hint = f" {check.hint}" if check.hint and not check.ok else ""
            what = f"{check.check} ({check.stage})" if check.stage else check.check
            print(f"{'ok  ' if check.ok else 'FAIL'}  {what}: {check.message}{hint}")
    if as_json:
        print("[]" if between == "[" else "]")
    return 0 if ok else 1


def _memory(config: JobConfig, device: str, *, as_json: bool) -> int:
    from training.memory.advice import as_json as in_json
    from training.memory.advice import as_text, verdict_of

    try:
        verdict = verdict_of(config, device)
    except TiltyardError as exc:
        if as_json:
            print(json.dumps({"error": exc.info.model_dump(mode="json")}))
        sys.stderr.write(f"{exc.message} {exc.hint}".strip() + "\n")
        return EXIT_USAGE
    print(in_json(verdict) if as_json else as_text(verdict))
    return 0 if verdict.fits else 1


def _export_verl(config: JobConfig, output: Path, *, name: str) -> int:
    from training.exports.verl import export_parts, export_stages, export_verl

    try:
        output.mkdir(parents=True, exist_ok=True)
        if config.stages or config.mix.parts:
            rows = [Path(course.data.train) for course in config.courses]
            export = export_stages if config.stages else export_parts
            names = export(config, config.courses, rows, output, name=name)
        else:
            names = export_verl(config, Path(config.data.train), output, name=name)
    except TiltyardError as exc:
        sys.stderr.write(f"{exc.message} {exc.hint}".strip() + "\n")
        return EXIT_USAGE
    print(f"{output}: {', '.join(names)}")
    return 0


def _pairs(runs: list[Path], output: Path, min_gap: float) -> int:
    from training.exports.pairs import write_pairs
    from training.journal import JOURNAL_NAME

    try:
        made = write_pairs([run / JOURNAL_NAME for run in runs], output, min_gap)
    except (TiltyardError, OSError) as exc:
        message = f"{exc.message} {exc.hint}".strip() if isinstance(exc, TiltyardError) else str(exc)
        sys.stderr.write(message + "\n")
        return EXIT_USAGE
    print(f"{output}: {made.pairs} pairs of {made.groups} groups")
    return 0


def _template(folder: Path, *, as_json: bool) -> int:
    """Print what holds of a chat template. 1 where a run with tools could not use it."""
    from training.algorithms.loading import load_tokenizer
    from training.rollout.templates import NEEDED, facts_of
    from training.rollout.tokens import ChatTemplate

    try:
        tokenizer, note = load_tokenizer(folder)
        facts = facts_of(ChatTemplate(tokenizer))
    except TiltyardError as error:
        sys.stderr.write(f"{error.message} {error.hint}\n")
        return 1
    if as_json:
        found = [{"aspect": fact.aspect, "holds": fact.holds, "text": str(fact.text)} for fact in facts]
        print(json.dumps({"note": note or "", "facts": found}, ensure_ascii=False, indent=2))
    else:
        print("\n".join([*([note] if note else []), *(f"{'ok' if f.holds else 'no':4}{f.text}" for f in facts)]))
    return int(any(not fact.holds for fact in facts if fact.aspect in NEEDED))


def _rendered(options: argparse.Namespace) -> int:
    """Print rows as they are rendered."""
    from training.algorithms.lessons import load, render_rows
    from training.data.learned import SAMPLED
    from training.data.reader import load_rows

    first, count = max(1, options.first), max(1, options.count)
    try:
        rows = load_rows(options.rows, max(SAMPLED, first + count))
        tokenizer, note = load(options.model, rows)
        print(render_rows(rows, tokenizer, first, count, note).model_dump_json())
    except TiltyardError as error:
        sys.stderr.write(f"{error.message} {error.hint}\n")
        return 1
    return 0


def _doctor(run: Path, settings: list[str], *, as_json: bool) -> int:
    from training.doctor.reading import as_json as in_json
    from training.doctor.reading import as_text, doctor_of

    try:
        doctor = doctor_of(run, settings)
    except (TiltyardError, OSError) as exc:
        message = f"{exc.message} {exc.hint}".strip() if isinstance(exc, TiltyardError) else str(exc)
        sys.stderr.write(message + "\n")
        return EXIT_USAGE
    print(in_json(doctor) if as_json else as_text(doctor))
    return 1 if any(advisory.open for advisory in doctor.advisories) else 0


def _refuse(exc: ConfigError | ValidationError) -> int:
    if isinstance(exc, ConfigError):
        sys.stderr.write(f"{exc.message}\n")
        return EXIT_USAGE
    for error in exc.errors(include_url=False, include_input=False):
        where = option_of(error)
        near = nearest_option(where) if error["type"] == "extra_forbidden" else ""
        complaint = f"There is no such option. Did you mean {near}?" if near else complaint_of(error)
        sys.stderr.write(f"{where}: {complaint}\n" if where else f"{complaint}\n")
    return EXIT_USAGE


def _descriptor_from_environment() -> int | None:
    return number_in(os.environ.get(PARENT_VARIABLE, ""))


class Command(NamedTuple):
    """A word of the command line: what it is for, what it takes, and what it does with that; ``None`` where another
    module reads all that follows."""

    name: str
    about: str
    takes: Callable[[argparse.ArgumentParser], None]
    does: Callable[[argparse.Namespace], int] | None


PAGES = {
    "configuration": "training.reference",
    "metrics": "training.metrics",
    "algorithms": "training.algorithms.reference",
    "doctor": "training.doctor.reference",
    "families": "training.rollout.family",
}
"""Pages of docs/ and the modules that they are made by."""
COMMANDS = (
    Command("run", "train as the config says", _takes_run, _with_config(_run)),
    Command(
        "preflight", "check what a run needs, without training", _takes_preflight,
        _with_config(lambda config, given: _preflight(config, given.device, as_json=given.json)),
    ),
    Command(
        "memory", "how much memory a job needs on a device, term by term", _takes_memory,
        _with_config(lambda config, given: _memory(config, given.device, as_json=given.json)),
    ),
    Command(
        "export-verl", "write a job for verl: its rows as parquet, its options as YAML", _takes_export,
        _with_config(lambda config, given: _export_verl(config, given.output, name=given.config.stem)),
    ),
    Command(
        "pairs", "make preference pairs of a run's rollouts, for DPO", _takes_pairs,
        lambda given: _pairs(given.run, given.output, given.min_gap),
    ),
    Command(
        "template", "what a model's chat template writes, and whether it is read back", _takes_template,
        lambda given: _template(given.model, as_json=given.json),
    ),
    Command(
        "rendered", "rows as a model reads them, and what of them is learned, as JSON", _takes_rendered,
        lambda given: _rendered(given),
    ),
    Command(
        "doctor", "what goes wrong in a run, from its journals (docs/doctor.md)", _takes_doctor,
        lambda given: _doctor(given.run, given.set, as_json=given.json),
    ),
    Command(
        "chat", "answer a chat: JSON lines on stdin and stdout (training/chat/wire.py)", _takes_nothing,
        lambda _given: _chat(),
    ),
    Command("schema", "print the JSON schema of the config", _takes_nothing, lambda _given: _schema()),
    Command("data", "check and convert datasets: data --help", _takes_nothing, None),
    Command("import", "read runs of other trainers: import --help", _takes_nothing, None),
    Command(
        "docs", "print a page of docs/ that is made of the code", _takes_docs, lambda given: _docs(given.page)
    ),
)  # fmt: skip
"""In the order of `--help`."""

if __name__ == "__main__":
    raise SystemExit(main())
