"""The end of a run: the reported scores, and the files that are kept."""

import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from labelemb import LabelSpace, __version__
from labelemb.lab.files import write_json
from labelemb.lab.metrics import confusions, error_percent, reliability, score, temperature_of
from labelemb.lab.runfolder import RunIdentity

if TYPE_CHECKING:
    from labelemb.lab.train import Run

MOST_CONFUSION_LABELS = 500


def versions() -> dict[str, str]:
    """Of everything that may change a number."""
    return {
        "labelemb": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "lightning-fabric": version("lightning-fabric"),
    }


def machine() -> dict[str, Any]:
    """What the run ran on: processor, threads, system, and the GPU if there is one."""
    about: dict[str, Any] = {
        "cpu": _processor_name(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if torch.cuda.is_available():
        about["gpu"] = torch.cuda.get_device_name()
    return about


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123  not a path of ours
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def finish_run(run: "Run", identity: RunIdentity) -> dict[str, Any]:
    """Go back to the reported evaluation, score it, and write model, label space and result."""
    if run.best_state is not None:
        run.model.load_state_dict(run.best_state)
    data = run.data
    temperature, dev = None, {}
    if data.dev is not None:
        dev_logits = run.logits(data.dev)
        dev = {"dev_error": error_percent(dev_logits, data.dev.targets)}
        # as the model keeps it, so that evaluating it again gives the same numbers
        temperature = float(run.classifier.head.temperature.fill_(temperature_of(dev_logits, data.dev.targets)))
    test_logits = run.logits(data.test)
    reported = run.best or run.records[-1]
    ends = [record for record in run.records if record["step"] % run.batches_per_epoch == 0]
    result = {
        **asdict(identity),
        **score(test_logits, data.test.targets, temperature).to_dict("test_"),
        **dev,
        "best_step": reported["step"],
        "best_epoch": reported["epoch"],
        "final_error": ends[-1]["test_error"],
        "curve": [{"epoch": round(record["epoch"]), "test_error": record["test_error"]} for record in ends],
        "epochs": run.settings.epochs,
        "steps": run.total_steps,
        "seconds_per_epoch": run.seconds["training"] / run.settings.epochs,
        "seconds": dict(run.seconds),
        "examples": {
            "train": len(data.train),
            "dev": len(data.dev) if data.dev is not None else 0,
            "test": len(data.test),
            "labels": run.num_labels,
        },
        "parameters": {
            "body": _count(run.classifier.body),
            "head": _count(run.classifier.head),
            "predicting": _count(run.classifier.body) + _count(run.classifier.head.predictor),
        },
        "method_settings": run.method.describe(run.recipe),
        "reliability": reliability(test_logits, data.test.targets),
        "command": run.options.command,
        "processes": run.fabric.world_size,
        "machine": machine(),
        "versions": versions(),
    }
    if run.fabric.is_global_zero:
        _write_files(run, test_logits)
        write_json(run.folder.result_file, result)
        if run.writer is not None:
            run.writer.close()
    run.fabric.barrier()
    return result


def _write_files(run: "Run", test_logits: Tensor) -> None:
    names = run.data.label_names
    tensors = {name: value.detach().cpu() for name, value in run.classifier.state_dict().items()}
    run.folder.write_model(tensors, {"label_names": names, "preprocessing": run.data.preprocessing})
    space = run.classifier.head.label_space(names)
    if space is not None:
        _with_groups(space, run.data.groups).save(run.folder.labels_file)
    if run.num_labels <= MOST_CONFUSION_LABELS:
        totals = torch.bincount(run.data.test.targets, minlength=run.num_labels)
        confusion = {"labels": names, "examples": totals.tolist()}
        write_json(
            run.folder.path / "confusion.json", confusion | {"wrong": confusions(test_logits, run.data.test.targets)}
        )


def _with_groups(space: LabelSpace, groups: dict[str, list[str]] | None) -> LabelSpace:
    """The space with the data's groups of labels, such as CIFAR-100's coarse classes."""
    if groups is None:
        return space
    return LabelSpace(space.form, names=space.names, counts=space.counts, objective=space.objective, groups=groups)


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
