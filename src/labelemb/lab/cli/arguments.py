"""Arguments that several subcommands share, and the types of their values."""

import argparse
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelemb.lab.comparison.seeds import LARGEST_SEED, parse_seeds
from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.lab.recipes.settings import Cifar10Data, Cifar100Data, IdxData, ImageFolderData, TextTableData
from labelemb.support.errors import UserError
from labelemb.support.files import is_stream
from labelemb.support.interrupts import importing
from labelemb.support.wording import LONGEST_QUOTE, shorten

if TYPE_CHECKING:
    from labelemb.lab.comparison.ray import Cluster
    from labelemb.lab.runs.labels import LabelSource
    from labelemb.lab.runs.messages import RunOptions

RUNS = Path("runs")
"""Where runs go unless --out says otherwise."""

MOST_THREADS = MOST_JOBS = 1024
TRACKERS = ("tensorboard", "mlflow", "wandb")

Verbs = argparse._SubParsersAction  # argparse has no public name for what add_subparsers returns


def add_verb(verbs: "Verbs[argparse.ArgumentParser]", name: str, help: str, examples: str) -> argparse.ArgumentParser:
    """A verb with its description and examples."""
    return verbs.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """What to train: the recipe, its overrides and its data."""
    parser.add_argument(
        "recipe", metavar="RECIPE", help="name of a shipped recipe (see `labelemb recipes`), or a .toml file"
    )
    parser.add_argument("--data", type=a_path, metavar="PATH", help="the data: a file, its folder, or hf:NAME")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a recipe key, e.g. train.epochs=3"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), help="short for --set train.device=...")
    parser.add_argument("--precision", metavar="FORMAT", help="short for --set train.precision=..., e.g. bf16-mixed")


def add_running(parser: argparse.ArgumentParser, threads: int) -> None:
    """How to run."""
    text = f"CPU threads of a run (default: {threads or 'all'})"
    parser.add_argument("--threads", type=thread_count, default=threads, metavar="N", help=text)
    parser.add_argument(
        "--checkpoint-seconds",
        type=seconds,
        default=30.0,
        metavar="S",
        help="seconds between two checkpoints (default: 30)",
    )
    parser.add_argument(
        "--keep-checkpoints", action="store_true", help="keep the last checkpoint of a run that has finished"
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        choices=TRACKERS,
        help="also send evaluations to a tracker; can be repeated",
    )
    parser.add_argument("--tensorboard", action="store_true", help="short for --log tensorboard")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Where to run: on this machine, or on the machines of a Ray cluster."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="train on a Ray cluster whose machines share --out and --data: auto, or HOST:PORT",
    )
    parser.add_argument(
        "--cpus-per-run", type=positive, metavar="N", help="with --ray: CPUs that a run reserves (default: --threads)"
    )
    parser.add_argument(
        "--gpus-per-run", type=share, metavar="N", help="with --ray: GPUs that a run reserves, e.g. 1, 0.5 (default: 0)"
    )


def read_cluster(options: argparse.Namespace) -> "Cluster | None":
    """The Ray cluster that the arguments name, if they do."""
    if options.ray is None:
        for name in ("cpus_per_run", "gpus_per_run"):
            if getattr(options, name) is not None:
                raise UserError(f"--{name.replace('_', '-')} is for runs on a Ray cluster: pass --ray auto as well")
        return None
    with importing():
        from labelemb.lab.comparison.ray import Cluster

    return Cluster(options.ray, options.cpus_per_run, options.gpus_per_run or 0.0)


def add_labels(parser: argparse.ArgumentParser) -> None:
    """Labels that were learned before."""
    parser.add_argument(
        "--labels",
        type=a_path,
        metavar="RUN_OR_FILE",
        help="train with learned labels (method reused-labels), matched by name: the folder of a run, a label space "
        "file, or a CSV table of similarities with names",
    )
    parser.add_argument(
        "--labels-subset", action="store_true", help="allow labels that the data does not have; they are left out"
    )
    parser.add_argument(
        "--warm-start", action="store_true", help="train the reused labels further instead of keeping them fixed"
    )


def add_json(parser: argparse.ArgumentParser, default: Any = False) -> None:
    parser.add_argument("--json", action="store_true", default=default, help="print JSON, for programs")


def read_recipe(options: argparse.Namespace) -> Recipe:
    """The recipe that the arguments name, with all overrides."""
    overrides = list(options.set)
    for key in ("device", "precision"):
        if getattr(options, key) is not None:
            overrides.append(f"train.{key}={getattr(options, key)}")
    return load_recipe(options.recipe, overrides)


def check_data(recipe: Recipe, path: Path | None) -> None:
    """Refuse a path of data that does not exist, before anything slow is imported."""
    needs_file = isinstance(recipe.data, TextTableData | ImageFolderData | IdxData | Cifar10Data | Cifar100Data)
    if needs_file and path is not None and not str(path).startswith("hf:") and not path.exists():
        raise UserError(f"there is no file or folder {path} for --data")


def read_labels(options: argparse.Namespace) -> "LabelSource | None":
    """The labels to reuse, if there are any."""
    if options.labels is None:
        ways = {"labels_subset": "", "warm_start": ", or compare label-embedding,reused-labels@warm-start"}
        for flag, way in ways.items():
            if getattr(options, flag):
                name = flag.replace("_", "-")
                raise UserError(f"--{name} needs labels to reuse: pass --labels FILE as well{way}")
        return None
    with importing():
        from labelemb.lab.runs.labels import LabelSource

    return LabelSource(options.labels, subset=options.labels_subset)


def read_running(options: argparse.Namespace) -> "RunOptions":
    """How to run, as the arguments say."""
    from labelemb.lab.runs.messages import RunOptions

    return RunOptions(
        threads=options.threads,
        checkpoint_seconds=options.checkpoint_seconds,
        trackers=tuple(dict.fromkeys([*options.log, *(["tensorboard"] if options.tensorboard else [])])),
        keep_checkpoints=options.keep_checkpoints,
        command=_command(),
    )


def _command() -> str:
    """The command line, to be kept with results: of a folder on this machine only the last name."""
    return shlex.join(["labelemb", *map(_without_folder, sys.argv[1:])])


def _without_folder(word: str) -> str:
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return option + equals + (Path(value).name if Path(value).is_absolute() else value)


def a_path(text: str) -> Path:
    """A path that the system takes, of something that may or may not exist."""
    try:
        if not text:
            raise argparse.ArgumentTypeError("the path is empty: name a file or a folder")
        os.stat(text)  # noqa: PTH116  Path.exists hides some of the reasons
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise argparse.ArgumentTypeError(f"{shorten(text, LONGEST_QUOTE)!r} cannot be a path: {reason}") from error
    return Path(text)


def existing(what: str) -> Callable[[str], Path]:
    """The type of a path that must exist, checked before anything slow is imported."""

    def read(text: str) -> Path:
        path = a_path(text)
        if not path.exists():
            raise UserError(f"there is no {what} {path}")
        return path

    return read


def say_written(path: Path) -> None:
    """Print that a file was written; on standard error for a pipe, which may be standard output itself."""
    print(f"wrote {path}", file=sys.stderr if is_stream(path) else sys.stdout)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def not_negative(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def seed_number(text: str) -> int:
    """A seed that torch's generators take."""
    if not_negative(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"{text} is too large a seed: at most {LARGEST_SEED}")
    return int(text)


def seed_list(text: str) -> Sequence[int]:
    """Seeds of a comparison, as `parse_seeds` reads them."""
    try:
        return parse_seeds(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def thread_count(text: str) -> int:
    """A number of threads that a processor can have."""
    if positive(text) > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text} threads are too many: at most {MOST_THREADS}")
    return int(text)


def job_count(text: str) -> int:
    """A number of processes that a machine may train in at once."""
    if positive(text) > MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{text} jobs are too many: at most {MOST_JOBS}")
    return int(text)


def seconds(text: str) -> float:
    """A span of time, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return value


def share(text: str) -> float:
    """A number above 0, whole where it is above 1: a device, several, or a part of one."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf or (value > 1 and value != int(value)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a whole number of at least 1 nor a fraction below 1, as 0.5"
        )
    return value


def usable_cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
