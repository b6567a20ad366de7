"""Classification: one label for each input, scored by error, likelihood and calibration."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from labelemb.lab.data import Examples, read_inputs
from labelemb.lab.tasks.records import Confusion, Evaluation, RunResult, to_json
from labelemb.lab.tasks.scores.classification import (
    Scores,
    confusions,
    error_percent,
    mean_nll,
    reliability,
    score,
    temperature_of,
)
from labelemb.lab.tasks.task import (
    Column,
    EvaluatedModel,
    FinalScores,
    MainScore,
    NotFinitePredictions,
    Prediction,
    Task,
    with_prefix,
)
from labelemb.lab.tasks.worst import FILE, KEPT, WorstExample, worst_examples
from labelemb.support.errors import UserError

MOST_CONFUSION_LABELS = 500
"""Labels up to which a run keeps its confusions."""
LEGEND = """\
Errors and ECE are in percent.
- test error: mean ± standard deviation over seeds, at the best dev evaluation (without a dev set: the last epoch)
- reduction: percent of plain's mean error; unclear unless the interval, of at least 3 seeds, leaves out 0
- difference to plain: paired over the seeds in common, with its 95 % interval and the p-value of the t-test
- s/epoch: seconds of training in an epoch, evaluations left out
- epochs to plain: the first epoch at plain's mean final error (in brackets: how many runs got there, if not all)
- fluctuation: standard deviation of the test error from epoch to epoch over the last third of the training
- scaled: after division of the logits by one temperature, fitted on the dev set"""
TABLES = (
    (
        Column("runs", "test_error", form="runs"),
        Column("test error", "test_error", form="spread", better="lower"),
        Column("best run", "test_error", form="min", better="lower"),
        Column("reduction", digits=1, form="reduction"),
        Column("difference to plain", form="difference"),
        Column("p", form="p"),
    ),
    (
        Column("s/epoch", "seconds_per_epoch", better="lower"),
        Column("epochs to plain", "epochs_to_plain", form="reached", better="lower"),
        Column("fluctuation", "fluctuation", digits=3, better="lower"),
        Column("NLL", "test_nll", digits=3, better="lower"),
        Column("ECE", "test_ece", better="lower"),
        Column("NLL scaled", "test_nll_scaled", digits=3, better="lower"),
        Column("ECE scaled", "test_ece_scaled", better="lower"),
        Column("dev error", "dev_error", better="lower"),
    ),
)


class ClassificationEvaluation(Evaluation, frozen=True, kw_only=True, omit_defaults=True):
    """Error and negative log-likelihood during a training."""

    dev_error: float | None = None
    dev_nll: float | None = None
    test_nll: float | None = None


class ClassificationResult(
    RunResult, frozen=True, kw_only=True, omit_defaults=True, tag_field="task", tag="classification"
):
    """The result of a run; scaled scores are those after division of the logits by the temperature."""

    test_nll: float
    test_ece: float
    test_nll_scaled: float | None
    test_ece_scaled: float | None
    dev_error: float | None = None


class Classification(Task):
    """Error, likelihood and calibration of the logits."""

    name = "classification"
    limit = "Every input gets one of the {labels:,} labels, even if none of them fits."
    evaluation_type = ClassificationEvaluation
    result_type = ClassificationResult
    main = MainScore("error", "error", "error", higher_is_better=False, unit=" %")
    summarised = (
        *("test_error", "dev_error", "test_nll", "test_ece", "test_nll_scaled", "test_ece_scaled"),
        *("final_error", "seconds_per_epoch"),
    )
    goal_field = "test_error"
    evaluate_columns: ClassVar[Mapping[str, str]] = {
        "error %": "error",
        "NLL": "nll",
        "ECE %": "ece",
        "NLL scaled": "nll_scaled",
        "ECE scaled %": "ece_scaled",
    }

    def evaluate(self, model: EvaluatedModel, name: str) -> dict[str, float]:
        examples = model.sets()[name]
        logits = model.predict(examples)
        if not bool(logits.isfinite().all()):
            raise NotFinitePredictions(name)
        return {
            f"{name}_error": error_percent(logits, examples.targets),
            f"{name}_nll": mean_nll(logits, examples.targets),
        }

    def finish(self, model: EvaluatedModel, reported: Evaluation) -> FinalScores:
        temperature, fields = None, {}
        if model.dev is not None:
            dev_logits = model.predict(model.dev)
            fields["dev_error"] = error_percent(dev_logits, model.dev.targets)
            # as the model keeps it, so that evaluating it again gives the same numbers
            fitted = temperature_of(dev_logits, model.dev.targets)
            temperature = float(model.classifier.head.temperature.fill_(fitted))
        test = model.sets()["test"]
        logits, targets = model.predict(test), test.targets
        scores = with_prefix(score(logits, targets, temperature), "test_", unprefixed=("temperature",))
        diagram = reliability(logits, targets).to_bins()
        worst = worst_examples(test, logits / (temperature or 1.0), model.label_names, KEPT)
        files: dict[str, Any] = {FILE: [to_json(example.shortened()) for example in worst]}
        if len(model.label_names) <= MOST_CONFUSION_LABELS:
            files["confusion.json"] = to_json(_confusion(model, logits, targets))
        return FinalScores({**scores, **fields, "reliability": diagram}, files)

    def score(self, model: EvaluatedModel, examples: Examples, temperature: float | None) -> Scores:
        return score(model.predict(examples), examples.targets, temperature)

    def errors(self, model: EvaluatedModel, count: int) -> tuple[list[WorstExample], Confusion]:
        test = model.sets()["test"]
        logits = model.predict(test)
        scaled = logits / float(model.classifier.head.temperature)
        return worst_examples(test, scaled, model.label_names, count), _confusion(model, logits, test.targets)

    def hub_name(self, preprocessing: Mapping[str, Any]) -> str:
        return f"{'image' if preprocessing.get('kind') == 'image' else 'text'}-{self.name}"

    def tables(self) -> Sequence[Sequence[Column]]:
        return TABLES

    def legend(self, about: Mapping[str, Any]) -> str:
        return LEGEND

    def goal(self, baseline: Sequence[RunResult]) -> float | None:
        """The mean test error after the last epoch."""
        return statistics.fmean(run.curve[-1].test_error for run in baseline) if baseline else None

    def describe(self, result: RunResult) -> str:
        assert isinstance(result, ClassificationResult)
        dev = "" if result.dev_error is None else f", dev {self.main.show(result.dev_error)}"
        return f"test {self.main.show(result.test_error)}{dev}"

    def predict(self, model: EvaluatedModel, files: Sequence[Path], k: int) -> Iterator[Prediction]:
        places, examples = read_inputs(model.inputs, model.recipe.data, files)
        temperature = float(model.classifier.head.temperature)
        probabilities = (model.predict(examples).double() / temperature).softmax(-1)
        labels = model.label_names
        values, indices = probabilities.topk(min(k, len(labels)))
        for place, row, best in zip(places, values.tolist(), indices.tolist(), strict=True):
            yield Prediction(place, [labels[label] for label in best], row)

    def check_export(self, model: EvaluatedModel) -> None:
        """Every model can be exported."""

    def _refuse(self, model: EvaluatedModel) -> NoReturn:
        raise UserError(
            f"{model.origin} is a run of {model.recipe.name}, which learned {self.name} and cannot generate text: use "
            "`labelemb predict`"
        )


def _confusion(model: EvaluatedModel, logits: Tensor, targets: Tensor) -> Confusion:
    totals = torch.bincount(targets, minlength=len(model.label_names)).tolist()
    return Confusion(model.label_names, totals, confusions(logits, targets))
