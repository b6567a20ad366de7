"""How the runs of a task are evaluated: during the training, and at the end of it."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch

from labelemb.lab.data import Examples, InputForm, PairEncoder, PairInputs, SequenceExamples
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.tasks.beam import SearchOptions
from labelemb.lab.tasks.generate import TextGenerator
from labelemb.lab.tasks.main_score import MainScore, main_score
from labelemb.lab.tasks.model import Classifier
from labelemb.lab.tasks.scores.classification import (
    confusions,
    error_percent,
    mean_nll,
    reliability,
    score,
    temperature_of,
)
from labelemb.lab.tasks.scores.texts import score_texts
from labelemb.lab.tasks.scores.tokens import TokenScores, token_scores, token_temperature
from labelemb.support.errors import not_finite

if TYPE_CHECKING:
    from labelemb.lab.runs.state import Run

MOST_CONFUSION_LABELS = 500


class Evaluation(Protocol):
    """What a run asks of its task."""

    main: MainScore

    def scores(self, run: "Run", name: str, examples: Examples) -> dict[str, float]:
        """The record of an evaluation on the set `name`."""

    def final(self, run: "Run") -> tuple[dict[str, Any], dict[str, Any]]:
        """The result's fields at the reported evaluation, and JSON files to keep, by name."""


def evaluation_of(recipe: Recipe) -> Evaluation:
    return Classification(recipe) if recipe.task == "classification" else Translation(recipe)


class Classification:
    """Error, likelihood and calibration of the logits."""

    def __init__(self, recipe: Recipe) -> None:
        self.main = main_score(recipe.task, recipe.decode.metric)

    def scores(self, run: "Run", name: str, examples: Examples) -> dict[str, float]:
        logits = run.logits(examples)
        if not bool(logits.isfinite().all()):
            raise not_finite(f"the predictions on the {name} set are", run.step)
        return {
            f"{name}_error": error_percent(logits, examples.targets),
            f"{name}_nll": mean_nll(logits, examples.targets),
        }

    def final(self, run: "Run") -> tuple[dict[str, Any], dict[str, Any]]:
        data = run.data
        temperature, dev = None, {}
        if data.dev is not None:
            dev_logits = run.logits(data.dev)
            dev = {"dev_error": error_percent(dev_logits, data.dev.targets)}
            # as the model keeps it, so that evaluating it again gives the same numbers
            temperature = float(run.classifier.head.temperature.fill_(temperature_of(dev_logits, data.dev.targets)))
        logits, targets = run.logits(data.test), data.test.targets
        files = {}
        if run.num_labels <= MOST_CONFUSION_LABELS:
            totals = torch.bincount(targets, minlength=run.num_labels).tolist()
            names = run.data.label_names
            files["confusion.json"] = {"labels": names, "examples": totals, "wrong": confusions(logits, targets)}
        scores = score(logits, targets, temperature).to_dict("test_")
        return {**scores, **dev, "reliability": reliability(logits, targets).to_list()}, files


@dataclass(frozen=True)
class TextScores:
    """A model on one set: how likely the references are, and how good the texts that it generates.

    error, nll, perplexity and ece are of the words of the references; bleu and what follows of the texts found with the
    recipe's beam and no length penalty; penalised: with length penalty 1; calibrated: with logits divided by the
    temperature; greedy: with a beam of 1.
    """

    error: float
    nll: float
    perplexity: float
    temperature: float | None
    nll_scaled: float | None
    perplexity_scaled: float | None
    ece: float
    ece_scaled: float | None
    bleu: float
    length_ratio: float
    chrf: float
    rouge1: float
    rouge2: float
    rougeL: float
    exact: float
    bleu_penalised: float
    length_ratio_penalised: float
    rouge1_penalised: float
    bleu_calibrated: float
    length_ratio_calibrated: float
    rouge1_calibrated: float
    bleu_greedy: float
    length_ratio_greedy: float
    rouge1_greedy: float
    exact_greedy: float
    bleu_signature: str
    reliability: list[dict[str, float]]

    def to_dict(self, prefix: str) -> dict[str, Any]:
        """`{prefix}error` and so on; the temperature and the signature keep their names."""
        kept = ("temperature", "bleu_signature", "reliability")
        return {name if name in kept else prefix + name: value for name, value in asdict(self).items()}


class Translation:
    """BLEU or ROUGE of generated texts; the likelihood of the references beside it.

    Every process of a run evaluates everything: what a beam finds does not add up as errors do.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.main = main_score(recipe.task, recipe.decode.metric)
        self.settings = recipe.decode

    def scores(self, run: "Run", name: str, examples: Examples) -> dict[str, float]:
        examples = cast(SequenceExamples, examples)
        device = run.fabric.device
        tokens = token_scores(run.classifier, examples, device)
        if not tokens.nll < float("inf"):
            raise not_finite(f"the predictions on the {name} set are", run.step)
        found = self._generated(_generator(run), examples, SearchOptions(max_length=self.settings.max_length))
        greedy = {f"{name}_{key}_greedy": found[key] for key in ("bleu", "rouge1", "exact", "length_ratio")}
        return {f"{name}_error": tokens.error, f"{name}_nll": tokens.nll, **greedy}

    def final(self, run: "Run") -> tuple[dict[str, Any], dict[str, Any]]:
        device = run.fabric.device
        temperature, dev = None, {}
        if run.data.dev is not None:
            examples = cast(SequenceExamples, run.data.dev)
            fitted = token_temperature(run.classifier, examples, device)
            temperature = float(run.classifier.head.temperature.fill_(fitted))
            dev = {name: value for name, value in (run.best or run.records[-1]).items() if name.startswith("dev_")}
        scores = self.score(_generator(run), cast(SequenceExamples, run.data.test), temperature)
        beam = self._beam(run.num_labels)
        about = {"task": "translation", "main_score": self.main.reported, "beam": beam}
        return {**about, **scores.to_dict("test_"), **dev}, {}

    def score(self, generator: TextGenerator, examples: SequenceExamples, temperature: float | None) -> TextScores:
        """All scores on one set."""
        tokens: TokenScores = token_scores(generator.classifier, examples, generator.device, temperature)
        longest = self.settings.max_length
        beam = self._beam(len(generator.encoder.target))
        searches = {
            "beam": SearchOptions(beam, longest),
            "penalised": SearchOptions(beam, longest, length_penalty=1.0),
            "calibrated": SearchOptions(beam, longest, temperature=temperature or 1.0),
            "greedy": SearchOptions(1, longest),
        }
        found = {name: self._generated(generator, examples, options) for name, options in searches.items()}
        others = {
            f"{key}_{name}": found[name][key]
            for name, keys in (
                ("penalised", ("bleu", "length_ratio", "rouge1")),
                ("calibrated", ("bleu", "length_ratio", "rouge1")),
                ("greedy", ("bleu", "length_ratio", "rouge1", "exact")),
            )
            for key in keys
        }
        return TextScores(
            error=tokens.error,
            nll=tokens.nll,
            perplexity=tokens.perplexity,
            temperature=temperature,
            nll_scaled=tokens.nll_scaled,
            perplexity_scaled=tokens.perplexity_scaled,
            ece=tokens.diagram.error(),
            ece_scaled=None if tokens.diagram_scaled is None else tokens.diagram_scaled.error(),
            reliability=tokens.diagram.to_list(),
            **found["beam"],
            **others,
        )

    def _beam(self, num_labels: int) -> int:
        """The recipe's beam, as far as the vocabulary allows."""
        return min(self.settings.beam, num_labels)

    def _generated(
        self, generator: TextGenerator, examples: SequenceExamples, options: SearchOptions
    ) -> dict[str, Any]:
        texts = list(generator.scored_texts(examples, options, self.settings.replace_unknown))
        return score_texts(texts, examples.references)


def make_generator(
    classifier: Classifier, inputs: InputForm, label_names: list[str], device: torch.device
) -> TextGenerator:
    assert isinstance(inputs, PairInputs)
    return TextGenerator(classifier, PairEncoder.from_form(inputs, label_names), device)


def _generator(run: "Run") -> TextGenerator:
    return make_generator(run.classifier, run.data.inputs, run.data.label_names, run.fabric.device)
