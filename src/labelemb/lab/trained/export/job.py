"""Exports the model of a run to one file, and checks that its predictions are the same."""

from dataclasses import dataclass
from pathlib import Path

import torch

from labelemb.lab.trained.export.formats import FORMATS, Answers, describe_model, describe_usage, quiet
from labelemb.lab.trained.export.portable import PortableModel, portable_model
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.errors import UserError
from labelemb.support.files import write_bytes
from labelemb.support.optional import import_optional

BATCHES = (1, 2, 7, 32)
"""Sizes of the batches with which the file is checked."""
TOLERANCE = 1e-4
"""How much a logit may differ, as a part of the largest: single precision, summed in another order."""


@dataclass(frozen=True)
class Exported:
    """The exported file, its size, and how far its answers are from the run's."""

    path: Path
    bytes: int
    parameters: int
    trained_parameters: int
    """Of the whole run, including what only training needs."""
    difference: float
    """The largest difference of a probability to the run's."""
    usage: str
    """How the file is used, in Markdown."""


def export_run(folder: Path, file_format: str | None = None, out: Path | None = None) -> Exported:
    """Write the model of a finished run to a file (model.pt2 or model.onnx in its folder).

    Without a format the ending of `out` says which; "torch" where it says nothing.
    """
    file_format = format_of(file_format, out)
    kind = FORMATS[file_format]
    trained = TrainedModel(folder)
    model = portable_model(trained)
    for module in kind.modules:
        import_optional(module, f"--format {file_format}", "onnx")
    run = {name: getattr(trained.result, name) for name in ("recipe", "method", "seed", "version")}
    with quiet():
        content = kind.write(model, describe_model(model, trained.label_names, run))
        difference = check_answers(trained, model, kind.load(content))
    path = out or folder / f"model{kind.suffix}"
    write_bytes(path, content)
    return Exported(
        path=path,
        bytes=len(content),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        trained_parameters=sum(parameter.numel() for parameter in trained.classifier.parameters()),
        difference=difference,
        usage=describe_usage(kind, path.name, model.input_name),
    )


def format_of(given: str | None, out: Path | None) -> str:
    """The format of a file: the one given, or that of its ending; refuses an ending of another format."""
    ending = "" if out is None else out.suffix.lower()
    named = next((name for name, kind in FORMATS.items() if kind.suffix == ending), None)
    if ending and named is None and given is None:
        endings = " or ".join(kind.suffix for kind in FORMATS.values())
        raise UserError(f"{out} has the ending {ending}, which is no format: write {endings}, or say --format as well")
    if given is not None and named not in (None, given):
        raise UserError(
            f"{out} has the ending of --format {named}, but --format {given} writes {FORMATS[given].suffix}: change one"
        )
    return given or named or "torch"


def check_answers(trained: TrainedModel, model: PortableModel, answers: Answers) -> float:
    """Ask the run and the exported model the same random inputs; gives the largest difference of a probability."""
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    for count in BATCHES:
        inputs = model.draw(count, generator)
        expected = trained.exact_logits(model.as_examples(inputs)) / trained.temperature
        found = answers(inputs)
        off = float((found - expected).abs().max())
        if not off <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise UserError(
                f"the predictions of the exported model differ from those of {trained.run.path}: a logit of a batch of "
                f"{count} differs by {off:.3g}; nothing was written"
            )
        largest = max(largest, float((found.softmax(-1) - expected.softmax(-1)).abs().max()))
    return largest
