"""The end of a run: computes the reported scores and writes the result files."""

import platform
from importlib.metadata import version

import numpy
import torch

from labelemb import LabelSpace, LabelSpaceError, __version__
from labelemb.lab.bodies import kept_architecture
from labelemb.lab.data import Dataset
from labelemb.lab.runs.example_pictures import FILE, draw_examples
from labelemb.lab.runs.held_out import predict_held_out, write_predictions
from labelemb.lab.runs.state import Run
from labelemb.lab.tasks.records import (
    ExampleCounts,
    Machine,
    ModelRecord,
    ParameterCounts,
    RunIdentity,
    RunResult,
    Seconds,
    to_json,
)
from labelemb.lab.tasks.task import FinalScores
from labelemb.support.errors import FileError
from labelemb.support.files import write_bytes, write_json


def versions() -> dict[str, str]:
    """Versions of the packages that may change a number."""
    return {
        "labelemb": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "lightning-fabric": version("lightning-fabric"),
    }


def machine() -> Machine:
    """The machine of this process."""
    return Machine(
        cpu=_processor_name(),
        threads=torch.get_num_threads(),
        system=f"{platform.system()} {platform.machine()}",
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    )


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123  not a path of ours
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def finish_run(run: Run, identity: RunIdentity) -> RunResult:
    """Go back to the reported evaluation, score it, and write model, label space and result."""
    run.restore_reported()
    final = run.task.finish(run.evaluated_model, run.reported)
    held_out = None
    if run.data.held_out is not None and run.losses is not None:
        temperature = float(run.classifier.head.temperature)
        held_out = predict_held_out(run.data.held_out, run.logits, temperature, run.losses)
    checksums = _write_files(run, final) if run.fabric.is_global_zero else {}
    if run.fabric.is_global_zero and held_out is not None:
        checksums |= write_predictions(run.folder.path, held_out)
    result = make_result(run, identity, final, checksums)
    if run.fabric.is_global_zero:
        write_json(run.folder.result_file, to_json(result))
        for log in run.evaluation_logs:
            log.close()
    run.fabric.barrier()
    return result


def make_result(run: Run, identity: RunIdentity, final: FinalScores, checksums: dict[str, str]) -> RunResult:
    """The result of a run with these scores and this model."""
    data, body, head = run.data, run.whole.body, run.whole.head
    curve = [run.task.curve_point(record) for record in run.records if record.step % run.batches_per_epoch == 0]
    return run.task.result_type(
        **to_json(identity),
        **final.fields,
        best_step=run.reported.step,
        best_epoch=run.reported.epoch,
        final_error=curve[-1].test_error,
        curve=tuple(curve),
        epochs=run.settings.epochs,
        steps=run.total_steps,
        seconds_per_epoch=run.seconds["training"] / run.settings.epochs,
        seconds=Seconds(**run.seconds),
        examples=ExampleCounts(len(data.train), len(data.dev or ()), len(data.test), run.num_labels),
        parameters=ParameterCounts(_count(body), _count(run.whole) - _count(body), _count(body, head.predictor)),
        method_settings=run.method.describe(),
        command=run.options.command,
        processes=run.fabric.world_size,
        machine=machine(),
        versions=versions(),
        note="; ".join(run.notes),
        labels_from=None if run.labels is None else run.labels.origin,
        checksums=checksums,
    )


def _write_files(run: Run, final: FinalScores) -> dict[str, str]:
    """Write all files but result.json; the checksums of the model's."""
    names = run.data.label_names
    tensors = {name: value.detach().cpu() for name, value in run.whole.state_dict().items()}
    form, body = run.data.inputs.to_dict(), kept_architecture(run.whole.body)
    checksums = run.folder.write_model(tensors, ModelRecord(names, form, run.data.label_counts, body))
    space = run.classifier.head.label_space(names)
    if space is not None:
        try:
            _with_data(space, run.data).save(run.folder.labels_file)
        except LabelSpaceError as error:  # a full disk, say
            raise FileError(str(error)) from error
    for name, content in final.files.items():
        write_json(run.folder.path / name, content)
    examples = draw_examples(run.read_data)
    if examples is not None:
        write_bytes(run.folder.path / FILE, examples)
    return checksums


def _with_data(space: LabelSpace, data: Dataset) -> LabelSpace:
    """The space with the data's groups of labels, such as CIFAR-100's coarse classes, and its special labels."""
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
    """The number of parameters; those that modules share count once."""
    return sum(parameter.numel() for parameter in torch.nn.ModuleList(modules).parameters())
