"""`LabelEmbeddingClassifier`: a multilayer perceptron with a head, behind scikit-learn's estimator interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from labelemb.embeddings.make import EmbeddingName
from labelemb.heads.defaults import DEFAULT
from labelemb.integrations.sklearn.examples import Examples, Rows, make_examples, precision_of
from labelemb.integrations.sklearn.failures import (
    check_finite,
    earlier_attributes_after_error,
    earlier_state_after_error,
)
from labelemb.integrations.sklearn.network import Network, make_network
from labelemb.integrations.sklearn.parameters import check_parameters, design_of, threads
from labelemb.integrations.sklearn.training import (
    MOST_PASSES,
    BestState,
    accuracy,
    calibrate,
    count_batches,
    make_optimizer,
    planned_passes,
    predict_probabilities,
    train_pass,
)
from labelemb.labelspace import LabelSpace
from labelemb.losses.objective import Objective
from labelemb.support.tensors import sum_over_processes


class LabelEmbeddingClassifier(ClassifierMixin, BaseEstimator):
    """A multilayer perceptron that learns how similar its labels are, and trains with soft targets from that.

    By default it trains with the library's default method, as `LabelEmbeddingHead` does.

    Parameters that scikit-learn's MLPClassifier has too have the same meaning. All computations use the precision of X:
    float32 data trains faster than float64.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(100,)
        Sizes of the hidden layers.
    embedding : {"running", "dense", "compressed"}, default=None
        Kind of label embedding, as in `LabelEmbeddingHead`; None for the library's default.
    rank : int, default=None
        Rank of a "compressed" embedding; required for it.
    objective : Objective, default=None
        Weights and options of the loss; None for the library's default.
    method : str, default="label-embedding"
        "label-embedding", "plain" (cross entropy), "label-smoothing", "online-smoothing", "confidence-penalty",
        "teacher-free" or any other name in `labelemb.heads.registry`. All methods train the same network, so a grid
        search can choose between them.
    method_options : dict, default=None
        Further options of the method's head, such as {"label_smoothing": 0.2} for "label-smoothing".
    activation : {"relu", "tanh", "logistic", "identity"}, default="relu"
        Activation of the hidden layers.
    alpha : float, default=0.00003
        Strength of an L2 penalty: alpha / 2 times the squared weights is added to the mean loss. MLPClassifier divides
        the penalty by the rows of a batch.
    batch_size : int or "auto", default="auto"
        Largest number of rows in a batch; "auto" for 200. A pass is split into batches of nearly equal size.
    learning_rate_init : float, default=0.002
        Learning rate of Adam.
    embedding_learning_rate : float, default=0.05
        Learning rate of an embedding that is trained by gradient (dense or compressed).
    max_iter : int, default=None
        Number of passes over the data; None for as many as make 2,000 updates, but at least 20 and at most 200. An
        objective with a schedule (a mass floor, say) spans all of them.
    shuffle : bool, default=True
        Whether the rows are shuffled before every pass.
    early_stopping : bool, default=False
        Whether to hold out some rows, stop when their accuracy no longer rises, and keep the best state.
    validation_fraction : float, default=0.1
        Share of the rows that early stopping holds out, stratified by label.
    n_iter_no_change : int, default=10
        Number of passes without a rise after which early stopping stops.
    tol : float, default=0.0001
        Smallest rise of the accuracy that counts, as a share of 1.
    class_weight : dict or "balanced", default=None
        Weights of the classes, multiplied with those of the rows.
    calibrate : bool, default=True
        Whether `predict_proba` divides logits by a temperature, fitted to the held-out labels with early stopping, else
        to the observer's predictions on training rows (1 without an observer). Predicted labels do not depend on it.
    warm_start : bool, default=False
        Whether `fit` continues with the network of the last fit.
    n_jobs : int, default=None
        Number of threads of a fit and of predictions; None leaves torch's setting.
    verbose : bool, default=False
        Whether to print a line after every pass.
    random_state : int or RandomState, default=None
        Random numbers for the initial weights, the order of the rows, and the held-out rows.

    Attributes
    ----------
    classes_ : array of the class labels.
    label_space_ : `LabelSpace` of the classes; None for methods that learn nothing about them.
    network_ : the torch module: `network_.body` and `network_.head`.
    temperature_ : divisor of the logits in `predict_proba`.
    n_iter_ : number of passes so far, including those before a warm start.
    loss_, loss_curve_ : the mean loss of the last pass, and of all passes so far.
    validation_scores_, best_validation_score_ : the accuracy after each pass and the best; None without early stopping.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = LabelEmbeddingClassifier(random_state=0).fit(X / 16, y)
    >>> similar = classifier.label_space_.nearest("8", k=3)
    """

    network_: Network
    classes_: np.ndarray
    loss_curve_: list[float]
    validation_scores_: list[float] | None
    best_validation_score_: float | None
    _optimizer: torch.optim.Optimizer | None
    _random: np.random.RandomState
    _planned_passes: int | None = None  # of the last fit, with those before it; None before any

    def __init__(
        self,
        hidden_layer_sizes: int | Iterable[int] = (100,),
        *,
        embedding: EmbeddingName | None = None,
        rank: int | None = None,
        objective: Objective | None = None,
        method: str = "label-embedding",
        method_options: Mapping[str, Any] | None = None,
        activation: str = "relu",
        alpha: float = 3e-5,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate_init: float = 0.002,
        embedding_learning_rate: float = DEFAULT.embedding_lr,
        max_iter: int | None = None,
        shuffle: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-4,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        calibrate: bool = True,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.embedding = embedding
        self.rank = rank
        self.objective = objective
        self.method = method
        self.method_options = method_options
        self.activation = activation
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.embedding_learning_rate = embedding_learning_rate
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for `max_iter` passes, or until early stopping, on X (rows, features), dense or sparse, and y (rows,).

        Rows of weight 0 in `sample_weight` (rows,) are ignored.
        """
        check_parameters(self.get_params(deep=False))
        with earlier_attributes_after_error(self):
            self._fit(X, y, sample_weight)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one pass over these rows, starting from the network trained so far; arguments as in `fit`.

        The first call needs all `classes`. Each call is one of `max_iter` passes (200 if it is None) of the objective's
        schedule, which then stays at its end; after a `fit` that of the fit goes on. The temperature does not change.
        """
        check_parameters(self.get_params(deep=False))
        if self.early_stopping:
            raise ValueError("partial_fit has nothing to hold out from, but early_stopping is True")
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all data, but partial_fit sees a part: pass a dictionary")
        with earlier_attributes_after_error(self):
            self._partial_fit(X, y, classes, sample_weight)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (rows, classes), in the precision of the training."""
        check_is_fitted(self)
        X = self._read(X, reset=False)
        with threads(self.n_jobs):
            return predict_probabilities(self.network_, Rows(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithm of the probability of each class, (rows, classes)."""
        with np.errstate(divide="ignore"):  # a probability that vanished in this precision
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    @property
    def label_space_(self) -> LabelSpace | None:
        """What was learned about the classes, with their names as strings."""
        check_is_fitted(self)
        return self.network_.head.label_space([str(name) for name in self.classes_])

    @property
    def temperature_(self) -> float:
        check_is_fitted(self)
        return float(self.network_.head.temperature)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        going_on = self.warm_start and hasattr(self, "network_")
        X, y = self._read(X, y, reset=not going_on)
        check_classification_targets(y)
        classes = np.unique(y)
        if going_on and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"warm_start goes on with the classes {list(self.classes_)}, but y has {list(classes)}: "
                f"use warm_start=False"
            )
        random = check_random_state(self.random_state)
        examples = self._examples(X, y, classes, sample_weight).with_mean_weight_one()
        held_out = None
        if self.early_stopping:
            examples, held_out = examples.split(self.validation_fraction, random)
        if going_on:
            self._check_design(X)
            self._random, self.loss_curve_ = random, list(self.loss_curve_)
            self.validation_scores_ = self.best_validation_score_ = None
        else:
            self._start(X, classes, random, rows_per_epoch=len(examples))
        self._optimizer = None  # a later partial_fit starts one of its own: it would triple the size of every pickle
        optimizer = self._make_optimizer()
        with self._training(optimizer, new=not going_on):
            self.network_.head.temperature.fill_(1)  # that before a warm start fitted another network
            self._train(examples, held_out, optimizer)
            if self.calibrate:
                calibrate(self.network_, examples, held_out)

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        first = not hasattr(self, "network_")
        if first and classes is None:
            raise ValueError("the first call of partial_fit needs all classes: pass classes=")
        X, y = self._read(X, y, reset=first)
        known = self.classes_ if classes is None else np.unique(classes)
        if not first and not np.array_equal(known, self.classes_):
            raise ValueError(f"classes is {list(known)}, but earlier calls had {list(self.classes_)}")
        examples = self._examples(X, y, known, sample_weight)
        if first:
            self._start(X, known, check_random_state(self.random_state), rows_per_epoch=None)
        else:
            self._check_design(X)
        self._optimizer = self._make_optimizer(before=self._optimizer)
        planned = self._planned_passes or self.max_iter or MOST_PASSES
        progress = (min(1.0, self.n_iter_ / planned), min(1.0, (self.n_iter_ + 1) / planned))
        with self._training(self._optimizer, new=first):
            self._pass(examples, self._optimizer, progress)

    @contextmanager
    def _training(self, optimizer: torch.optim.Optimizer, *, new: bool) -> Iterator[None]:
        """`n_jobs` threads and no other processes; after an error a network that is not new is what it was before."""
        undo = nullcontext() if new else earlier_state_after_error(self.network_, optimizer)
        with threads(self.n_jobs), sum_over_processes.suspended(), undo:
            yield

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
        return validate_data(self, X, y, accept_sparse="csr", dtype=(np.float64, np.float32), reset=reset)

    def _examples(self, X: Any, y: np.ndarray, classes: np.ndarray, sample_weight: Any) -> Examples:
        return make_examples(X, y, classes, sample_weight=sample_weight, class_weight=self.class_weight)

    def _start(self, X: Any, classes: np.ndarray, random: np.random.RandomState, *, rows_per_epoch: int | None) -> None:
        """A fresh network for these classes, and nothing learned yet."""
        seed = int(random.randint(np.iinfo(np.int32).max))
        design = design_of(self.get_params(deep=False), X.shape[1], classes)
        self.network_ = make_network(design, rows_per_epoch=rows_per_epoch, seed=seed, dtype=precision_of(X))
        self.classes_, self._random, self._optimizer = classes, random, None
        self.n_iter_, self._planned_passes = 0, None
        self.loss_curve_ = []
        self.validation_scores_ = self.best_validation_score_ = None

    def _check_design(self, X: Any) -> None:
        design = design_of(self.get_params(deep=False), X.shape[1], self.classes_)
        changed = self.network_.design.difference(design)
        if changed:
            raise ValueError(f"the training cannot go on with the network that is there: {changed}")

    def _make_optimizer(self, before: torch.optim.Optimizer | None = None) -> torch.optim.Optimizer:
        return make_optimizer(
            self.network_,
            lr=self.learning_rate_init,
            embedding_lr=self.embedding_learning_rate,
            alpha=self.alpha,
            before=before,
        )

    def _train(self, examples: Examples, held_out: Examples | None, optimizer: torch.optim.Optimizer) -> None:
        best = None if held_out is None else BestState(self.network_, tol=self.tol, patience=self.n_iter_no_change)
        start, end = self.n_iter_, self.n_iter_ + planned_passes(examples, self.batch_size, self.max_iter)
        self._planned_passes = end
        for done in range(start, end):
            self._pass(examples, optimizer, (done / end, (done + 1) / end))
            if best is not None and held_out is not None:
                best.update(accuracy(self.network_, held_out))
                if self.verbose:
                    print(f"pass {self.n_iter_}: accuracy {best.scores[-1]:.4f} on held-out rows")
                if best.is_stale:
                    break
        if best is not None:
            best.restore()
            self.validation_scores_, self.best_validation_score_ = best.scores, best.score

    def _pass(self, examples: Examples, optimizer: torch.optim.Optimizer, progress: tuple[float, float]) -> None:
        order = self._random.permutation(examples.index) if self.shuffle else examples.index
        batches = count_batches(examples, self.batch_size)
        self.loss_ = train_pass(self.network_, optimizer, examples, order, batches, progress)
        check_finite(self.loss_, self.network_, optimizer, number_of_pass=self.n_iter_ + 1)
        self.n_iter_ += 1
        self.loss_curve_.append(self.loss_)
        if self.verbose:
            print(f"pass {self.n_iter_}: loss {self.loss_:.6f}")
