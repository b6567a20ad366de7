"""`LabelSpace`: how the labels of a trained model resemble each other, detached from training."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack

import torch
from torch import Tensor

from labelemb.labelspace import exports, file_format, pictures
from labelemb.labelspace.conversion import ArrayLike, checked_counts, float32_copy, integer_copy, plain_objective
from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.forms import DenseForm, FactorForm, Form
from labelemb.labelspace.html import html_table
from labelemb.labelspace.labels import Label, LabelIndex, Labels
from labelemb.labelspace.neighbors import Neighbors, find_nearest
from labelemb.labelspace.selection import about_selection, refuse_other_names
from labelemb.labelspace.top_k_form import TopKForm
from labelemb.support.optional import import_optional
from labelemb.support.version import __version__
from labelemb.support.wording import quote_few

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Kind = Literal["probability", "logit"]

LARGEST_MATRIX_BYTES = 2 * 10**9
# Row normalisers cheaper than this (a minute or two on one core) are worth the wait when a space is saved.
LARGEST_COST_AT_SAVE = 10**12


class About(TypedDict, total=False):
    """What a space may know beside its rows; see the attributes of `LabelSpace`."""

    counts: ArrayLike | None
    specials: Iterable[Label]
    objective: Mapping[str, Any] | None
    groups: Mapping[str, Iterable[str]] | None


class LabelSpace:
    """What a label embedding learned: row y is a distribution that says how similar every label is to y.

    Made by `head.label_space(names)`, `from_matrix`, `from_factors`, `from_top_k`, `from_csv` or `load`. A label is
    given as its name or its index everywhere. Nothing in a space changes after it is made.

    >>> space = LabelSpace.from_matrix([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]], ["cat", "dog", "car"])
    >>> space.nearest("cat", k=1)
    nearest to cat:
      dog  0.2

    Attributes:
        names: one name a label, all different.
        counts: how often each label was observed right in training, int64 (labels,); None if that is not known.
        specials: names such as padding that `nearest` leaves out.
        objective: the fields of the objective that was trained, or None.
        groups: named sets of labels, such as the coarse classes of CIFAR-100, or None.
        versions: of labelemb when the space was made ("labelemb") and of the file format ("format").
        form: how the rows are stored: `DenseForm`, `FactorForm` or `TopKForm`.
    """

    def __init__(
        self,
        form: Form,
        *,
        names: Iterable[str] | None = None,
        counts: ArrayLike | None = None,
        specials: Iterable[Label] = (),
        objective: Mapping[str, Any] | None = None,
        groups: Mapping[str, Iterable[str]] | None = None,
        versions: Mapping[str, Any] | None = None,
    ) -> None:
        self.form = form
        self._labels = LabelIndex(names, form.num_labels)
        self.names = self._labels.names
        self.counts = None if counts is None else checked_counts(counts, form.num_labels)
        if isinstance(specials, str):
            raise TypeError(f"specials must be a sequence of labels, not the one string {specials!r}")
        self.specials = tuple(dict.fromkeys(self.names[self.index(special)] for special in specials))
        self.objective = None if objective is None else plain_objective(objective)
        self.groups = None if groups is None else self._checked_groups(groups)
        self.versions = dict(versions or {"labelemb": __version__}) | {"format": file_format.VERSION}
        self._log_normalisers: Tensor | None = None

    @classmethod
    def from_matrix(
        cls,
        matrix: ArrayLike,
        names: Iterable[str] | None = None,
        kind: Kind = "probability",
        **about: Unpack[About],
    ) -> Self:
        """A space from a (labels, labels) matrix whose row y says how similar each label is to y.

        Args:
            matrix: a tensor, an array or nested lists.
            names: one name a label; "0", "1", ... without them.
            kind: "probability" (not negative, rows sum to 1) or "logit" (softmax of a row is its distribution).
            **about: `counts=`, `specials=`, `objective=`, `groups=` as in the attributes of the class.
        """
        _check_kind(kind)
        make = DenseForm.from_probabilities if kind == "probability" else DenseForm
        return cls(make(float32_copy("matrix", matrix)), names=names, **about)

    @classmethod
    def from_factors(
        cls,
        A: ArrayLike,
        B: ArrayLike,
        bias: ArrayLike | None = None,
        names: Iterable[str] | None = None,
        **about: Unpack[About],
    ) -> Self:
        """A space whose row y is ReLU(A_y B + bias), with A (labels, rank), B (rank, labels) and bias (labels,)."""
        offset = None if bias is None else float32_copy("bias", bias)
        return cls(FactorForm(float32_copy("A", A), float32_copy("B", B), offset), names=names, **about)

    @classmethod
    def from_top_k(
        cls,
        indices: ArrayLike,
        probabilities: ArrayLike,
        names: Iterable[str] | None = None,
        **about: Unpack[About],
    ) -> Self:
        """A space from the largest probabilities of each row: `indices` and `probabilities`, both (labels, k).

        What a row leaves of 1 is spread evenly over the labels it does not list. Index -1 with probability 0 is an
        unused place.
        """
        form = TopKForm(integer_copy("indices", indices), float32_copy("probabilities", probabilities))
        return cls(form, names=names, **about)

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str], delimiter: str | None = None, **about: Unpack[About]) -> Self:
        """A space from a table of similarities with the label names as its first row and first column.

        Each row is divided by its sum. A label that is not the most similar to itself is a warning. Without
        `delimiter`, tabs are used if the first line has any, else commas.
        """
        names, matrix = exports.read_csv(path, delimiter)
        return cls.from_matrix(matrix, names, **about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` wrote. Everything is checked, nothing is executed; `LabelSpaceError` if it is bad."""
        content = file_format.read(path)
        with file_format.naming(path):
            space = cls(content.form, counts=content.counts, **content.about)
        space._log_normalisers = content.log_normalisers
        return space

    def save(self, path: str | os.PathLike[str], *, normalisers: bool | None = None) -> None:
        """Write one safetensors file (docs/label-space-format.md); an older file is replaced only by a whole one.

        Args:
            path: the file.
            normalisers: whether to store what `nearest(symmetric=True)` needs. By default yes, unless computing it
                now would take minutes (beyond about 100,000 labels at rank 100).
        """
        if normalisers is None:
            normalisers = self._log_normalisers is not None or self.form.normaliser_cost <= LARGEST_COST_AT_SAVE
        about = {
            "names": self.names,
            "specials": self.specials,
            "objective": self.objective,
            "groups": self.groups,
            "versions": self.versions,
        }
        stored = self.log_normalisers() if normalisers and self.form.normaliser_cost else None
        file_format.write(path, file_format.Content(self.form, self.counts, stored, about))

    @property
    def num_labels(self) -> int:
        return self.form.num_labels

    @property
    def rank(self) -> int | None:
        """The rank of the factors; None for the other forms."""
        return self.form.rank

    def __len__(self) -> int:
        return self.num_labels

    def __repr__(self) -> str:
        size = "" if self.rank is None else f", rank {self.rank}"
        return f"LabelSpace({self.num_labels} labels, {self.form.storage}{size}: {quote_few(self.names, 3)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: a few labels as a table with colours."""
        return html_table(self)

    def index(self, label: Label) -> int:
        """The index of a label given by name or index; an unknown name is an error that suggests the closest."""
        return self._labels.index(label)

    def indices(self, labels: Labels | None = None) -> Tensor:
        """The indices (k,) int64 of labels given by name or index; of all labels without `labels`."""
        return self._labels.indices(labels)

    def learned(self, label: Label) -> bool:
        """False where the label was never observed right, so that its row still holds initial values."""
        index = self.index(label)
        return self.counts is None or bool(self.counts[index] > 0)

    def rows(self, labels: Labels) -> Tensor:
        """Logits (k, labels) float32 of these labels; log-probabilities where the largest k are stored."""
        return self.form.rows(self.indices(labels))

    def distribution(self, label: Label) -> Tensor:
        """How similar every label is to this one: softmax of its row, (labels,)."""
        return self.rows(self.index(label))[0].softmax(dim=0)

    def similarity(self, label: Label, other: Label) -> float:
        """distribution(label)[other]. Not symmetric."""
        return float(self.distribution(label)[self.index(other)])

    def matrix(self, labels: Labels | None = None, kind: Kind = "probability") -> Tensor:
        """The (k, k) entries among these labels (all of them without `labels`), as in `similarity` or as logits.

        Probabilities are those among all labels, so a part of the matrix does not sum to 1; `select` renormalises.
        """
        _check_kind(kind)
        indices = self.indices(labels)
        _refuse_large(len(indices), len(indices), "pass labels= for the part you need, or use rows() and nearest()")
        matrix = torch.empty(len(indices), len(indices))
        start = 0
        for piece in self.form.blocks(indices):
            rows = self.form.rows(piece)
            if kind == "probability":
                rows = rows.softmax(dim=1)
            matrix[start : start + len(piece)] = rows[:, indices]
            start += len(piece)
        return matrix

    def log_normalisers(self) -> Tensor:
        """log sum exp of every row, (labels,): computed in blocks the first time, then kept, also in the file."""
        if self._log_normalisers is None:
            self._log_normalisers = self.form.log_normalisers()
        return self._log_normalisers

    def nearest(self, label: Label, k: int = 5, symmetric: bool = False) -> Neighbors:
        """The k labels most similar to this one, best first; ties in the order of the labels.

        Left out are the label itself, the specials, and labels that are not similar at all (ReLU made their entry
        exactly zero, or they are not among the stored largest), so fewer than k may come back; `note` says why.

        Args:
            label: name or index.
            k: how many.
            symmetric: rank by the mean of log p(label -> other) and log p(other -> label); the similarity given is
                the exponential of that mean, and a label counts that is similar in at least one direction.
        """
        return find_nearest(self, self.index(label), k, symmetric)

    def reorder(self, names: Iterable[str]) -> Self:
        """The same space with its labels in the order of `names`, which must be the same set of names."""
        ordered = list(names)
        refuse_other_names(self.names, ordered)
        space = self.select(ordered)
        if self._log_normalisers is not None:
            space._log_normalisers = self._log_normalisers[self.indices(ordered)]
        return space

    def select(self, labels: Labels) -> Self:
        """The space of these labels alone, in this order.

        Each row is conditioned on the chosen labels: what it gave to the others goes to the chosen ones in proportion
        (a row that gave the chosen ones nothing becomes even). Groups and specials lose the labels that are gone.
        """
        indices = self.indices(labels)
        about = about_selection(self, indices)
        return type(self)(self.form.select(indices), **about, versions=self.versions)

    def to_csv(
        self,
        path: str | os.PathLike[str],
        labels: Labels | None = None,
        kind: Kind = "probability",
        delimiter: str = ",",
    ) -> None:
        """Write `matrix(labels, kind)` with the names as first row and first column; delimiter "\\t" gives TSV."""
        indices = self.indices(labels)
        names = [self.names[index] for index in indices.tolist()]
        exports.write_csv(path, names, self.matrix(indices, kind), delimiter)

    def to_word2vec(self, path: str | os.PathLike[str]) -> None:
        """Write one vector a label in word2vec's text format, which gensim and embedding projectors read.

        The vectors are the stored numbers: the rows of A for factors, the rows of logits of a dense space, the rows of
        probabilities where the largest k are stored. The format separates by spaces, so every white space or control
        character of a name becomes "_", an empty name "_", and a name that is then taken gets "_2", "_3", ...
        """
        _refuse_large(self.num_labels, self.rank or self.num_labels, "use select() to write some of the labels")
        exports.write_word2vec(path, self.names, self.form)

    def to_pandas(self, labels: Labels | None = None, kind: Kind = "probability") -> "DataFrame":
        """`matrix(labels, kind)` as a data frame with the names as its index and columns (extra `[plot]`)."""
        pandas = import_optional("pandas", "to_pandas()", "plot")
        indices = self.indices(labels)
        names = [self.names[index] for index in indices.tolist()]
        return pandas.DataFrame(self.matrix(indices, kind).numpy(), index=names, columns=names)

    def heatmap(self, labels: Labels | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw `matrix(labels)` as colours (extra `[plot]`), into a new picture without `ax`; gives the axes.

        Without `labels`, all are shown; of more than 150, those with the strongest resemblances. The colours span the
        similarities of different labels.
        """
        return pictures.heatmap(self, labels, ax)

    def map(self, ax: "Axes | None" = None) -> "Axes":
        """Draw all labels in the plane, those that resemble the same labels close together (extra `[plot]`).

        Without `ax` into a new picture; gives the axes. The title says how much of the differences the plane holds.
        """
        return pictures.draw_space_map(self, ax)

    def _checked_groups(self, groups: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        if not isinstance(groups, Mapping) or not all(isinstance(group, str) for group in groups):
            raise TypeError("groups must be a dict from a group's name to the names of its labels")
        return {group: [self.names[self.index(name)] for name in members] for group, members in groups.items()}


def _check_kind(kind: str) -> None:
    if kind not in ("probability", "logit"):
        raise LabelSpaceError(f'kind must be "probability" or "logit", not {kind!r}')


def _refuse_large(rows: int, columns: int, advice: str) -> None:
    size = 4 * rows * columns
    if size > LARGEST_MATRIX_BYTES:
        raise LabelSpaceError(
            f"a matrix of {rows} x {columns} takes {size / 1e9:.1f} GB (at most 2 GB are made): {advice}"
        )
