"""`LabelSpace`: how the labels of a trained model resemble each other, detached from training."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from labelemb.labelspace import exports, file_format, pictures
from labelemb.labelspace.changes import SpaceChanges, space_changes
from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.forms import DenseForm, FactorForm, Form, TopKForm
from labelemb.labelspace.groups import LabelGroups, label_groups
from labelemb.labelspace.labels import (
    ArrayLike,
    Label,
    Labels,
    float32_copy,
    integer_copy,
    plain_objective,
    refuse_other_names,
    refuse_repeated,
)
from labelemb.labelspace.neighbors import Neighbors, find_nearest
from labelemb.labelspace.pairs import LabelPairs, PairKind, label_pairs
from labelemb.labelspace.record import Kind, LabelRecord, check_kind, refuse_large
from labelemb.support.optional import import_optional
from labelemb.support.version import __version__
from labelemb.support.wording import quote_few

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# Row normalisers cheaper than this (a minute or two on one core) are worth the wait when a space is saved.
LARGEST_COST_AT_SAVE = 10**12


class About(TypedDict, total=False):
    """Optional arguments of the constructors of `LabelSpace`; see its attributes."""

    counts: ArrayLike | None
    specials: Iterable[Label]
    objective: Mapping[str, Any] | None
    superclasses: Mapping[str, Iterable[str]] | None


class LabelSpace(LabelRecord):
    """The label similarities that a training learned: row y is a distribution that says how similar each label is to y.

    Make one with `head.label_space(names)`, `from_matrix`, `from_factors`, `from_top_k`, `from_csv` or `load`. All
    methods take a label as its name or its index. A label space is immutable.

    >>> space = LabelSpace.from_matrix([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]], ["cat", "dog", "car"])
    >>> space.nearest("cat", k=1)
    nearest to cat:
      dog  0.2

    Attributes:
        names: one name per label, all different.
        counts: how often the observer was right about each label in training, int64 (labels,); None if not known.
        specials: names that `nearest` leaves out, such as padding.
        objective: the fields of the training objective, or None.
        superclasses: named sets of labels, such as the coarse classes of CIFAR-100, or None.
        versions: the versions of labelemb that made the space ("labelemb") and of the file format ("format").
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
        superclasses: Mapping[str, Iterable[str]] | None = None,
        versions: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(form, names, counts, specials)
        self.objective = None if objective is None else plain_objective(objective)
        self.superclasses = None if superclasses is None else self._checked_superclasses(superclasses)
        self.versions = dict(versions or {"labelemb": __version__}) | {"format": file_format.VERSION}

    @classmethod
    def from_matrix(
        cls,
        matrix: ArrayLike,
        names: Iterable[str] | None = None,
        kind: Kind = "probability",
        **about: Unpack[About],
    ) -> Self:
        """Make a label space from a (labels, labels) matrix whose row y says how similar each label is to y.

        Args:
            matrix: a tensor, an array or nested lists.
            names: one name per label. None: "0", "1", ...
            kind: "probability" (0 or more, rows sum to 1) or "logit" (softmax of a row is its distribution).
            **about: `counts=`, `specials=`, `objective=`, `superclasses=` as in the attributes of the class.
        """
        check_kind(kind)
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
        """Make a label space whose row y has the logits ReLU(A_y B + bias).

        Args:
            A: (labels, rank).
            B: (rank, labels).
            bias: (labels,), or None.
            names: one name per label. None: "0", "1", ...
            **about: `counts=`, `specials=`, `objective=`, `superclasses=` as in the attributes of the class.
        """
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
        """Make a label space from the k largest probabilities of each row.

        The remaining probability of a row is spread evenly over the labels that it does not list.

        Args:
            indices: (labels, k), the labels that each row lists, each once; -1 marks an unused place.
            probabilities: (labels, k), their probabilities, with a sum of at most 1 per row; 0 at unused places.
            names: one name per label. None: "0", "1", ...
            **about: `counts=`, `specials=`, `objective=`, `superclasses=` as in the attributes of the class.
        """
        form = TopKForm(integer_copy("indices", indices), float32_copy("probabilities", probabilities))
        return cls(form, names=names, **about)

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str], delimiter: str | None = None, **about: Unpack[About]) -> Self:
        """Make a label space from a table of similarities with the label names in the first row and first column.

        Each row is divided by its sum. There is a warning if a label is not the most similar to itself.

        Args:
            path: a text file in UTF-8.
            delimiter: the character between the cells. None: tab if the first line has one, else comma.
            **about: `counts=`, `specials=`, `objective=`, `superclasses=` as in the attributes of the class.
        """
        names, matrix = exports.read_csv(path, delimiter)
        return cls.from_matrix(matrix, names, **about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` wrote. It runs no code; an invalid file is a `LabelSpaceError`."""
        content = file_format.read(path)
        with file_format.naming(path):
            about = dict(content.about)
            space = cls(content.form, counts=content.counts, superclasses=about.pop("groups"), **about)
        space._log_normalisers = content.log_normalisers
        return space

    def save(self, path: str | os.PathLike[str], *, normalisers: bool | None = None) -> None:
        """Write a safetensors file (docs/label-space-format.md). An older file is replaced only when all is written.

        Args:
            path: the file.
            normalisers: whether to store the row normalisers that `nearest(symmetric=True)` needs. None: yes, unless
                computing them would take minutes (beyond about 100,000 labels at rank 100).
        """
        if normalisers is None:
            normalisers = self._log_normalisers is not None or self.form.normaliser_cost <= LARGEST_COST_AT_SAVE
        about = {
            "names": self.names,
            "specials": self.specials,
            "objective": self.objective,
            "groups": self.superclasses,
            "versions": self.versions,
        }
        stored = self.log_normalisers() if normalisers and self.form.normaliser_cost else None
        file_format.write(path, file_format.Content(self.form, self.counts, stored, about))

    def __repr__(self) -> str:
        size = "" if self.rank is None else f", rank {self.rank}"
        return f"LabelSpace({self.num_labels} labels, {self.form.storage}{size}: {quote_few(self.names, 3)})"

    def _repr_html_(self) -> str:
        """A few labels as a coloured table, for notebooks."""
        return pictures.html_table(self)

    def nearest(self, label: Label, k: int = 5, symmetric: bool = False) -> Neighbors:
        """The k labels most similar to this one, best first; ties in the order of the labels.

        The label itself and the specials are left out, and so are labels that are not similar (their entry is exactly
        zero after ReLU, or is not among the stored largest). So the result may have fewer than k labels; its `note`
        then says how many are similar.

        Args:
            label: name or index.
            k: number of labels, 1 or more.
            symmetric: rank by the mean of log p(label -> other) and log p(other -> label). The similarity is the
                exponential of that mean, and a label counts as similar if it is in at least one direction.
        """
        return find_nearest(self, self.index(label), k, symmetric)

    def pairs(self, k: int = 20, kind: PairKind = "alike") -> LabelPairs:
        """The k pairs of labels that resemble each other most, as a table that prints and has `to_pandas`.

        Pairs are searched among the 20 nearest labels of each label, without specials; no (labels, labels) matrix is
        made.

        Args:
            k: the most pairs to return.
            kind: "alike" ranks by likeness, sqrt(p(a->b) p(b->a) / (p(a->a) p(b->b))), which is 1 if each label gives
                the other as much as itself. "one-sided" ranks by p(a->b) - p(b->a), for labels that resemble another
                label which does not resemble them, such as a rare variant of a frequent label.
        """
        return label_pairs(self, k, kind)

    def groups(self, threshold: float = 0.5) -> LabelGroups:
        """Groups of similar labels: labels linked by pairs with a likeness of at least `threshold` (needs scipy).

        A group may be a chain whose ends are less alike; a higher threshold splits it.

        Args:
            threshold: smallest likeness of a linking pair, above 0; likeness is defined in `pairs`.
        """
        return label_groups(self, threshold)

    def compare(self, other: "LabelSpace", k: int = 5) -> SpaceChanges:
        """Compare with another label space, such as that of a second training (needs scipy).

        For each label that both spaces have (by name), the result has the labels that it gained and lost among its `k`
        nearest, and the rank correlation (Spearman) of its similarities to all others. With more than 1,000 labels only
        those observed right most often have a correlation. Labels of only one space are left out and listed.

        Args:
            other: another `LabelSpace`.
            k: number of nearest labels to compare, 1 or more.
        """
        if not isinstance(other, LabelSpace):
            raise TypeError(f"compare needs another LabelSpace, not {type(other).__name__}")
        only_here, only_there = set(self.names) - set(other.names), set(other.names) - set(self.names)
        common = [name for name in self.names if name not in only_here]
        if not common:
            names = f"{quote_few(self.names)} here, {quote_few(other.names)} there"
            raise LabelSpaceError(f"the spaces have no label in common: {names}")
        here = self if not only_here else self.select(common)
        there = other if other.names == here.names else other.select(common)
        return space_changes(here, there, k, tuple(sorted(only_here)), tuple(sorted(only_there)))

    def reorder(self, names: Iterable[str]) -> Self:
        """The same space with its labels in the order of `names`, which must contain the same names."""
        ordered = list(names)
        refuse_other_names(self.names, ordered)
        space = self.select(ordered)
        if self._log_normalisers is not None:
            space._log_normalisers = self._log_normalisers[self.indices(ordered)]
        return space

    def select(self, labels: Labels) -> Self:
        """The label space of only these labels, in this order.

        Each row is renormalised over the chosen labels; a row that gave them no probability becomes even. Other labels
        are removed from superclasses and specials.

        Args:
            labels: names, indices, or a tensor of indices.
        """
        indices = self.indices(labels)
        names = [self.names[index] for index in indices.tolist()]
        if not names:
            raise LabelSpaceError("select needs at least one label")
        refuse_repeated(names)
        chosen = set(names)
        kept = {name: [member for member in members if member in chosen] for name, members in self._superclasses()}
        return type(self)(
            self.form.select(indices),
            names=names,
            counts=None if self.counts is None else self.counts[indices],
            specials=[name for name in self.specials if name in chosen],
            objective=self.objective,
            superclasses=None if self.superclasses is None else {name: kept[name] for name in kept if kept[name]},
            versions=self.versions,
        )

    def to_csv(
        self,
        path: str | os.PathLike[str],
        labels: Labels | None = None,
        kind: Kind = "probability",
        delimiter: str = ",",
    ) -> None:
        """Write `matrix(labels, kind)` with the names as first row and first column; delimiter "\\t" for TSV."""
        indices = self.indices(labels)
        names = [self.names[index] for index in indices.tolist()]
        exports.write_csv(path, names, self.matrix(indices, kind), delimiter)

    def to_word2vec(self, path: str | os.PathLike[str]) -> None:
        """Write one vector per label in word2vec's text format, which gensim and embedding projectors read.

        The vectors are the rows of A for factors, the rows of logits for a dense space, and the rows of probabilities
        if the largest k are stored. The format separates by spaces, so each white space or control character of a name
        becomes "_", an empty name becomes "_", and repeated names get "_2", "_3", ...
        """
        refuse_large(self.num_labels, self.rank or self.num_labels, "use select() to write some of the labels")
        exports.write_word2vec(path, self.names, self.form)

    def to_pandas(self, labels: Labels | None = None, kind: Kind = "probability") -> "DataFrame":
        """`matrix(labels, kind)` as a data frame with the names as index and columns (needs the extra `[plot]`)."""
        pandas = import_optional("pandas", "to_pandas()", "plot")
        indices = self.indices(labels)
        names = [self.names[index] for index in indices.tolist()]
        return pandas.DataFrame(self.matrix(indices, kind).numpy(), index=names, columns=names)

    def heatmap(self, labels: Labels | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw `matrix(labels)` as a heatmap and return its axes (needs the extra `[plot]`).

        The colours span the similarities of different labels.

        Args:
            labels: the labels to draw. None: all; if there are more than 150, those with the strongest resemblances.
            ax: matplotlib axes to draw into. None: a new figure.
        """
        return pictures.heatmap(self, labels, ax)

    def map(self, ax: "Axes | None" = None) -> "Axes":
        """Draw all labels as points in the plane and return the axes (needs the extra `[plot]`).

        Labels that resemble the same labels are close together. The title says which share of the differences the two
        dimensions hold.

        Args:
            ax: matplotlib axes to draw into. None: a new figure.
        """
        return pictures.draw_space_map(self, ax)

    def _checked_superclasses(self, given: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise TypeError("superclasses must be a dict from a name to the names of its labels")
        return {name: [self.names[self.index(member)] for member in members] for name, members in given.items()}

    def _superclasses(self) -> Iterable[tuple[str, list[str]]]:
        return (self.superclasses or {}).items()
