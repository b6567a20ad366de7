"""Trained models back from their run folders: to evaluate again, and to predict."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from labelemb.lab.bodies import make_body
from labelemb.lab.data import Examples, SequenceExamples, input_form, load_data, read_inputs
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.engine import make_fabric, predict_logits, settings_here
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.label_files import load_space
from labelemb.lab.tasks.evaluation import TextScores, Translation, make_generator
from labelemb.lab.tasks.generate import TextGenerator
from labelemb.lab.tasks.model import Classifier, out_features
from labelemb.lab.tasks.scores.classification import Scores, score
from labelemb.support.errors import UserError


@dataclass(frozen=True)
class Prediction:
    """The likeliest labels of one input with their calibrated probabilities, the best first."""

    name: str
    labels: list[str]
    probabilities: list[float]


class TrainedModel:
    """The model of a finished run."""

    def __init__(self, path: Path) -> None:
        self.run = RunFolder(path)
        self.result = self.run.require_result()
        tensors, about = self.run.read_model()
        self.recipe: Recipe = self.run.recipe()
        self.label_names: list[str] = about["label_names"]
        self.preprocessing: dict[str, Any] = about["preprocessing"]
        self.inputs = input_form(self.preprocessing)
        body = make_body(self.recipe.body, self.inputs, len(self.label_names))
        method = parse_method(self.result["method"])
        head = method.make_head(
            self.recipe,
            out_features(body),
            len(self.label_names),
            rows_per_epoch=self.result["examples"]["train"],
            total_steps=self.result["steps"],
            space=load_space(path) if method.reuses_labels else None,
        )
        self.classifier = Classifier(body, head)
        try:
            self.classifier.load_state_dict(tensors)
        except RuntimeError as error:
            raise UserError(
                f"{self.run.model_file} does not fit the recipe beside it{_sizes(tensors, self.label_names)}"
            ) from error
        self.fabric = make_fabric(settings_here(self.recipe.train))
        self.model = self.fabric.setup_module(self.classifier)

    def logits(self, examples: Examples) -> Tensor:
        return predict_logits(self.fabric, self.model, examples, self.recipe.train.batch_size, len(self.label_names))

    @torch.inference_mode()
    def exact_logits(self, examples: Examples) -> Tensor:
        """Logits in single precision, whatever the recipe computes in: what an exported model is compared with."""
        classifier = copy.deepcopy(self.classifier).cpu().float().eval()
        inputs, _ = examples.batch(torch.arange(len(examples)))
        return cast(Tensor, classifier(inputs))

    @property
    def temperature(self) -> float:
        """Fitted on the dev set at the end of the training; 1 without one."""
        return float(self.classifier.head.temperature)

    def evaluate(self, data_path: Path | None) -> dict[str, Scores] | dict[str, TextScores]:
        """Scores on the dev and test sets of the training data, or of a like data set elsewhere."""
        about = self.run.about()
        if data_path is None and about["data"]:
            data_path = Path(about["data"])
        data = load_data(self.recipe, data_path, about["seed"])
        if data.label_names != self.label_names or data.inputs != self.inputs:
            raise UserError(
                f"the data at {data_path or 'the usual place'} is not what {self.run.path} was trained on: "
                f"{_label_difference(data.label_names, self.label_names)}"
            )
        scaled = self.temperature if data.dev is not None else None
        parts = {name: part for name, part in (("dev", data.dev), ("test", data.test)) if part is not None}
        if self.recipe.task == "translation":
            evaluation, generator = Translation(self.recipe), self.generator()
            return {
                name: evaluation.score(generator, cast(SequenceExamples, part), scaled) for name, part in parts.items()
            }
        return {name: score(self.logits(part), part.targets, scaled) for name, part in parts.items()}

    def generator(self) -> TextGenerator:
        """What generates texts, of a run that learned to."""
        if self.recipe.task != "translation":
            raise UserError(
                f"{self.run.path} is a run of {self.recipe.name}, which learned {self.recipe.task} and not to generate "
                "text: use `labelemb predict`"
            )
        return make_generator(self.classifier, self.inputs, self.label_names, self.fabric.device)

    def predict(self, files: list[Path], k: int) -> Iterator[Prediction]:
        """The k likeliest labels of every input in the files."""
        if self.recipe.task != "classification":
            raise UserError(f"{self.run.path} learned {self.recipe.task}: use `labelemb translate`")
        names, examples = read_inputs(self.inputs, self.recipe.data, files)
        probabilities = (self.logits(examples).double() / self.temperature).softmax(-1)
        values, places = probabilities.topk(min(k, len(self.label_names)))
        for name, row, labels in zip(names, values.tolist(), places.tolist(), strict=True):
            yield Prediction(name, [self.label_names[label] for label in labels], row)


def _label_difference(there: list[str], here: list[str]) -> str:
    """In what the labels of data differ from those of a run."""
    others = sorted({*there} ^ {*here})
    found = f"{len(there)} labels there, {len(here)} in the run"
    if others:
        found += f"; {others[0]!r} is only {'there' if others[0] in there else 'in the run'}"
    elif there == here:
        found = "the labels are the same"
    return f"its labels or its vocabulary differ ({found})"


def _sizes(tensors: dict[str, Tensor], label_names: list[str]) -> str:
    """Where the model and its vocabulary are of different sizes, these."""
    weight = tensors.get("head.predictor.weight")
    if weight is None or len(weight) == len(label_names):
        return ""
    return f": it predicts {len(weight)} labels, model.json names {len(label_names)}"
