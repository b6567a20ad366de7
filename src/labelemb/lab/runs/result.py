"""The end of a run: the reported scores, and the files that are kept."""

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy
import torch

from labelemb import LabelSpace, LabelSpaceError, __version__
from labelemb.lab.data import Dataset
from labelemb.lab.runs.example_pictures import FILE, draw_examples
from labelemb.lab.runs.folder import RunIdentity
from labelemb.lab.tasks.main_score import ERROR, MainScore
from labelemb.support.errors import UserError
from labelemb.support.files import write_bytes, write_json

if TYPE_CHECKING:
    from labelemb.lab.runs.loop import Run


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
    scores, files = run.evaluation.final(run)
    reported = run.best or run.records[-1]
    ends = [record for record in run.records if record["step"] % run.batches_per_epoch == 0]
    result = {
        **identity.to_dict(),
        **scores,
        "best_step": reported["step"],
        "best_epoch": reported["epoch"],
        "final_error": ends[-1]["test_error"],
        "curve": [{"epoch": round(record["epoch"]), **_curve_point(record, run.evaluation.main)} for record in ends],
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
            "head": _count(run.classifier) - _count(run.classifier.body),
            "predicting": _count(run.classifier.body, run.classifier.head.predictor),
        },
        "method_settings": run.method.describe(run.recipe, run.total_steps),
        "command": run.options.command,
        "processes": run.fabric.world_size,
        "machine": machine(),
        "versions": versions(),
    }
    if run.notes:
        result["note"] = "; ".join(run.notes)
    if run.labels is not None:
        result["labels_from"] = run.labels.origin
    if run.fabric.is_global_zero:
        _write_files(run, files)
        write_json(run.folder.result_file, result)
        if run.events is not None:
            run.events.close()
    run.fabric.barrier()
    return result


def _curve_point(record: dict[str, Any], main: MainScore) -> dict[str, float]:
    """The test error at the end of an epoch; of a translation also the scores that its runs are compared by."""
    names = ["test_error"] if main is ERROR else ["test_error", f"dev_{main.evaluated}", f"test_{main.evaluated}"]
    return {name: record[name] for name in names if name in record}


def _write_files(run: "Run", files: dict[str, Any]) -> None:
    names = run.data.label_names
    tensors = {name: value.detach().cpu() for name, value in run.classifier.state_dict().items()}
    about: dict[str, Any] = {"label_names": names, "preprocessing": run.data.inputs.to_dict()}
    if run.data.label_counts is not None:
        about["label_counts"] = run.data.label_counts
    run.folder.write_model(tensors, about)
    space = run.classifier.head.label_space(names)
    if space is not None:
        try:
            _with_data(space, run.data).save(run.folder.labels_file)
        except LabelSpaceError as error:  # a full disk, say
            raise UserError(str(error)) from error
    for name, content in files.items():
        write_json(run.folder.path / name, content)
    examples = draw_examples(run.data)
    if examples is not None:
        write_bytes(run.folder.path / FILE, examples)


def _with_data(space: LabelSpace, data: Dataset) -> LabelSpace:
    """The space with what the data says of its labels: groups, such as CIFAR-100's coarse classes, and specials."""
    if data.groups is None and not data.specials:
        return space
    return LabelSpace(
        space.form,
        names=space.names,
        counts=space.counts,
        objective=space.objective,
        superclasses=data.groups,
        specials=data.specials,
    )


def _count(*modules: torch.nn.Module) -> int:
    """Numbers in the parameters; those that modules share count once."""
    return sum(parameter.numel() for parameter in torch.nn.ModuleList(modules).parameters())
