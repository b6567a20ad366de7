"""File formats of exported models, and how a user loads them."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labelemb.lab.trained.export.portable import PortableModel
from labelemb.support.errors import UserError
from labelemb.support.optional import import_optional

Answers = Callable[[Tensor], Tensor]
LARGEST_ONNX = 2**31
"""Bytes that fit into one protobuf message, which an ONNX file is."""


TORCH_USAGE = """\
import json

import torch

parts = {{"labels.json": "", "preprocessing.json": ""}}  # filled by loading
model = torch.export.load({file}, extra_files=parts).module()
labels, how = json.loads(parts["labels.json"]), json.loads(parts["preprocessing.json"])
probabilities = model({inputs}).softmax(-1)  # `how` says how {inputs} are made
"""
ONNX_USAGE = """\
import json

import onnxruntime

session = onnxruntime.InferenceSession({file})
parts = session.get_modelmeta().custom_metadata_map
labels, how = json.loads(parts["labels.json"]), json.loads(parts["preprocessing.json"])
[logits] = session.run(None, {{"{inputs}": {inputs}}})  # `how` says how {inputs} are made
"""


@dataclass(frozen=True)
class FileFormat:
    """How a kind of file is written (the model, and JSON texts by name) and how it answers once it is loaded."""

    suffix: str
    usage: str
    """Python that loads `file` and asks it `inputs`, both in braces."""
    write: Callable[[PortableModel, dict[str, str]], bytes]
    load: Callable[[bytes], Answers]
    modules: tuple[str, ...] = ()
    """Packages that it needs beside torch."""


def describe_model(model: PortableModel, labels: list[str], run: dict[str, Any]) -> dict[str, str]:
    """JSON texts that go into every file beside the model: labels, preprocessing and the run."""
    parts = {"labels.json": labels, "preprocessing.json": model.preprocessing, "run.json": run}
    # in ASCII: names of files that are not UTF-8 cannot be written in another way
    return {name: json.dumps(part) for name, part in parts.items()}


def describe_usage(file_format: FileFormat, file_name: str, inputs: str) -> str:
    """How a file is used without labelemb, in Markdown."""
    code = file_format.usage.format(file=json.dumps(file_name), inputs=inputs)
    return f"The file needs no labelemb:\n\n```python\n{code}```"


def write_torch(model: PortableModel, about: dict[str, str]) -> bytes:
    """A program of torch.export: JSON and the raw bytes of the weights, nothing pickled."""
    program = exported_program(model)
    program.example_inputs = None  # they would be pickled
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files=about)
    return buffer.getvalue()


def load_torch(content: bytes) -> Answers:
    return torch.export.load(io.BytesIO(content)).module()


def write_onnx(model: PortableModel, about: dict[str, str]) -> bytes:
    """An ONNX graph in one file, with the texts in its metadata."""
    size = sum(tensor.nbytes for tensor in model.state_dict().values())
    if size >= LARGEST_ONNX:
        raise UserError(f"the model has {size:,} bytes, more than an ONNX file can hold (2 GB): use --format torch")
    program = torch.onnx.export(
        exported_program(model),
        dynamo=True,
        input_names=[model.input_name],
        output_names=["logits"],
        dynamic_shapes=(dict(enumerate(model.dimensions)),),  # the program's own names of them are numbered
        external_data=False,
        verbose=False,
    )
    assert program is not None  # it is None only where a file name is given
    proto = program.model_proto
    for node in proto.graph.node:
        del node.metadata_props[:]  # the source lines of each operation, with the paths of this machine
    for name, text in about.items():
        proto.metadata_props.add(key=name, value=text)
    return proto.SerializeToString()


def load_onnx(content: bytes) -> Answers:
    onnxruntime = import_optional("onnxruntime", "--format onnx", "onnx")
    session = onnxruntime.InferenceSession(content)
    [given] = session.get_inputs()

    def answers(inputs: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {given.name: inputs.numpy()})[0])

    return answers


FORMATS = {
    "torch": FileFormat(".pt2", TORCH_USAGE, write_torch, load_torch),
    "onnx": FileFormat(".onnx", ONNX_USAGE, write_onnx, load_onnx, modules=("onnx", "onnxscript", "onnxruntime")),
}


def exported_program(model: PortableModel) -> torch.export.ExportedProgram:
    """The model as a graph for inputs of any number."""
    # torch takes a size of 1 for one that never changes
    example = model.draw(2, torch.Generator().manual_seed(0))
    sizes = {place: torch.export.Dim(name, max=model.largest.get(name)) for place, name in enumerate(model.dimensions)}
    program = torch.export.export(model, (example,), dynamic_shapes=(sizes,))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # the paths of this machine
    return program


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the exporter's warnings and log messages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
