"""`TrainedModel`: the model of a finished run, loaded to evaluate, predict and translate."""

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from labelemb.lab.bodies import make_body
from labelemb.lab.data import Dataset, Examples, TokenInputs, input_form, load_data
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.engine import make_fabric, predict_logits, settings_here
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.labels import load_space
from labelemb.lab.tasks import make_task
from labelemb.lab.tasks.beam import Hypothesis, SearchOptions, TextGenerator
from labelemb.lab.tasks.label_rows import LabelRow, by_error, label_rows
from labelemb.lab.tasks.model import Classifier, out_features
from labelemb.lab.tasks.task import EvaluatedModel, Prediction
from labelemb.lab.tasks.worst import WorstExample
from labelemb.support.errors import UserError

LONGEST_SOURCE = 5000
"""Words of a line, at most: a whole book in one line is a mistake, and would take memory accordingly."""
LINES_AT_ONCE = 2048
"""Lines read before some are written: they are searched by length."""


@dataclass(frozen=True)
class Translated:
    """One hypothesis of a line: text, score, and for each of its words the most attended source word, from 0."""

    text: str
    score: float
    alignment: list[int]


@dataclass(frozen=True)
class ModelErrors:
    """What a classifier gets wrong: examples and labels, the worst first."""

    examples: list[WorstExample]
    labels: list[LabelRow]


class TrainedModel:
    """The model of a finished run.

    `predict` labels inputs and `translate` generates texts; a model that learned the other raises a `UserError`.
    """

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        self.run = RunFolder(path)
        self.result = self.run.require_result()
        tensors, about = self.run.read_model()
        self.recipe: Recipe = self.run.recipe()
        self.task = make_task(self.recipe)
        self.label_names, self.inputs = about.label_names, input_form(about.preprocessing)
        body = make_body(self.recipe.body, self.inputs, len(self.label_names), about.body)
        method = parse_method(self.result.method)
        head = method.make_head(
            self.recipe,
            out_features(body),
            len(self.label_names),
            rows_per_epoch=self.result.examples.train,
            total_steps=self.result.steps,
            space=load_space(path) if method.reuses_labels else None,
        )
        self.classifier = Classifier(body, head)
        try:
            self.classifier.load_state_dict(tensors)
        except RuntimeError as error:
            raise UserError(
                f"{self.run.model_file} does not fit the recipe in its folder{_sizes(tensors, self.label_names)}"
            ) from error
        self.fabric = make_fabric(settings_here(self.recipe.train))
        self.model = self.fabric.setup_module(self.classifier)
        self._read: dict[Path | str | None, EvaluatedModel] = {}

    def _evaluated(self, dev: Examples | None = None, test: Examples | None = None) -> EvaluatedModel:
        """The model as its task evaluates it; without sets it only answers."""
        origin = str(self.run.path)
        return EvaluatedModel(
            self.recipe, self.classifier, self.inputs, self.label_names, self.logits, origin, dev=dev, test=test
        )

    def logits(self, examples: Examples) -> Tensor:
        """Logits (rows, labels) of examples, on the CPU."""
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

    @property
    def is_calibrated(self) -> bool:
        """Whether the temperature was fitted: it needs a dev set."""
        return self.result.temperature is not None

    def check_export(self) -> None:
        """Refuse a model that does not fit into one file."""
        self.task.check_export(self._evaluated())

    def evaluate(self, data_path: Path | str | None = None) -> dict[str, Any]:
        """Scores on the dev and test sets, each a dataclass of the task; `data_path` is for data that has moved."""
        model = self._with_data(data_path)
        return {name: self._score(model, part) for name, part in model.sets().items()}

    def evaluate_on(self, places: Iterable[Path | str]) -> dict[str, Any]:
        """Scores on other examples with labels, by place.

        A place is what `InputForm.read_labelled` takes: a table of texts, a folder with a folder of images per label,
        or the start of the names of two line files, as `news.test` for `news.test.en` and `news.test.vi`.
        """
        models = {str(place): self._with_test(place) for place in places}  # all are read before the first is scored
        return {place: self._score(model, model.sets()["test"]) for place, model in models.items()}

    def _score(self, model: EvaluatedModel, examples: Examples) -> Any:
        return self.task.score(model, examples, self.temperature if self.is_calibrated else None)

    def errors(self, count: int, data_path: Path | str | None = None, on: Path | str | None = None) -> ModelErrors:
        """The `count` most confident errors, and a row for every label, the largest error first.

        They are those on the test set, or on the examples at a place that `evaluate_on` takes.
        """
        model = self._with_data(data_path) if on is None else self._with_test(on)
        worst, confusion = self.task.errors(model, count)
        space = load_space(self.run.path) if self.run.labels_file.exists() else None
        return ModelErrors(worst, by_error(label_rows(confusion, space)))

    def _with_data(self, data_path: Path | str | None) -> EvaluatedModel:
        """The model with the sets of its data, which is read once."""
        if data_path not in self._read:
            data = self._load_data(data_path)
            self._read[data_path] = self._evaluated(data.dev, data.test)
        return self._read[data_path]

    def _with_test(self, place: Path | str) -> EvaluatedModel:
        """The model with the examples of another place as its test set."""
        return self._evaluated(test=self.inputs.read_labelled(Path(place), self.recipe.data, self.label_names))

    def _load_data(self, data_path: Path | str | None) -> Dataset:
        about = self.run.about()
        path = data_path or about.data
        tokens = self.inputs if isinstance(self.inputs, TokenInputs) else None
        data = load_data(self.recipe, None if path is None else Path(path), about.seed, tokens=tokens)
        if data.label_names != self.label_names or data.inputs != self.inputs:
            raise UserError(
                f"the data at {path or 'the usual place'} is not what {self.run.path} was trained on: "
                f"{_label_difference(data.label_names, self.label_names)}"
            )
        return data

    def predict(self, files: Sequence[Path | str], k: int = 3) -> Iterator[Prediction]:
        """The k most likely labels of every input in the files."""
        return self.task.predict(self._evaluated(), [Path(file) for file in files], k)

    @cached_property
    def generator(self) -> TextGenerator:
        """What generates texts, of a run that learned to."""
        return self.task.generator(self._evaluated())

    def search_options(self, **changes: Any) -> SearchOptions:
        """The recipe's way to search with calibrated probabilities; arguments that are not None change fields of it."""
        settings = self.recipe.decode
        beam = min(settings.beam, len(self.generator.encoder.target))
        usual = SearchOptions(beam, settings.max_length, temperature=self.temperature)
        return dataclasses.replace(usual, **{name: value for name, value in changes.items() if value is not None})

    def translate(
        self,
        lines: Iterable[str],
        options: SearchOptions | None = None,
        replace_unknown: bool | None = None,
        batch_size: int | None = None,
        lines_at_once: int = LINES_AT_ONCE,
    ) -> Iterator[list[Translated]]:
        """The best hypotheses of each line, in the order of the input; an empty line has one, which is empty.

        `options` and `replace_unknown` are by default the recipe's (see `search_options`).
        """
        generator = self.generator
        options = options or self.search_options()
        options.check(len(generator.encoder.target))
        replacing = self.recipe.decode.replace_unknown if replace_unknown is None else replace_unknown
        numbered = enumerate(lines, 1)
        while part := list(islice(numbered, lines_at_once)):
            sources = [_source(generator, number, line) for number, line in part]
            filled = [source for source in sources if source]
            encoded = generator.encoder.encode_sources(filled) if filled else None
            found = iter([] if encoded is None else generator.search(encoded, options, batch_size))
            for source in sources:
                if source:
                    yield [_translated(generator, hypothesis, source, replacing) for hypothesis in next(found)]
                else:
                    yield [Translated("", 0.0, [])]


def _source(generator: TextGenerator, number: int, line: str) -> list[str]:
    words = generator.encoder.source_units(line)
    if len(words) > LONGEST_SOURCE:
        raise UserError(
            f"line {number} of the input has {len(words)} words, at most {LONGEST_SOURCE} are read: split it"
        )
    return words


def _translated(generator: TextGenerator, hypothesis: Hypothesis, source: list[str], replacing: bool) -> Translated:
    words = generator.words(hypothesis, source, replacing)
    return Translated(generator.encoder.units.join(words), hypothesis.score, hypothesis.attention)


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
    """The number of labels of a model and of its names, where they differ."""
    weight = tensors.get("head.predictor.weight")
    if weight is None or len(weight) == len(label_names):
        return ""
    return f": it predicts {len(weight)} labels, model.json names {len(label_names)}"
