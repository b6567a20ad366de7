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
    """What a space may know beside its rows; see the attributes of `LabelSpace`."""

    counts: ArrayLike | None
    specials: Iterable[Label]
    objective: Mapping[str, Any] | None
    superclasses: Mapping[str, Iterable[str]] | None


class LabelSpace(LabelRecord):
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
        superclasses: named sets of labels, such as the coarse classes of CIFAR-100, or None.
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
        """A space from a (labels, labels) matrix whose row y says how similar each label is to y.

        Args:
            matrix: a tensor, an array or nested lists.
            names: one name a label; "0", "1", ... without them.
            kind: "probability" (not negative, rows sum to 1) or "logit" (softmax of a row is its distribution).
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
            about = dict(content.about)
            space = cls(content.form, counts=content.counts, superclasses=about.pop("groups"), **about)
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
            "groups": self.superclasses,
            "versions": self.versions,
        }
        stored = self.log_normalisers() if normalisers and self.form.normaliser_cost else None
        file_format.write(path, file_format.Content(self.form, self.counts, stored, about))

    def __repr__(self) -> str:
        size = "" if self.rank is None else f", rank {self.rank}"
        return f"LabelSpace({self.num_labels} labels, {self.form.storage}{size}: {quote_few(self.names, 3)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: a few labels as a table with colours."""
        return pictures.html_table(self)

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

    def pairs(self, k: int = 20, kind: PairKind = "alike") -> LabelPairs:
        """The k pairs of labels that resemble each other most, as a table that prints and has `to_pandas`.

        Looked for among the 20 nearest labels of each label, without specials; no (labels, labels) matrix is made.

        Args:
            k: how many pairs, at most.
            kind: "alike" ranks by likeness, sqrt(p(a->b) p(b->a) / (p(a->a) p(b->b))), which is 1 where each label
                gives the other what it keeps itself; "one-sided" ranks by p(a->b) - p(b->a): labels that look like
                another one which does not look like them, as a rare variant of a frequent label does.
        """
        return label_pairs(self, k, kind)

    def groups(self, threshold: float = 0.5) -> LabelGroups:
        """Labels that belong together: those linked by pairs with a likeness of at least `threshold` (needs scipy).

        A group may be a chain whose ends are less alike: a higher threshold cuts it. Likeness as in `pairs`.
        """
        return label_groups(self, threshold)

    def compare(self, other: "LabelSpace", k: int = 5) -> SpaceChanges:
        """What is different in another space, such as that of a second training (needs scipy).

        Of each label that both have by name: which labels it gained and lost among its `k` nearest, and the rank
        correlation (Spearman) of its similarities to all others; of more than 1,000 labels, the correlation of those
        that were observed right most often. Labels that only one of the spaces has are left out and listed.
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
        (a row that gave the chosen ones nothing becomes even). Superclasses and specials lose the labels that are gone.
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
        refuse_large(self.num_labels, self.rank or self.num_labels, "use select() to write some of the labels")
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

    def _checked_superclasses(self, given: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise TypeError("superclasses must be a dict from a name to the names of its labels")
        return {name: [self.names[self.index(member)] for member in members] for name, members in given.items()}

    def _superclasses(self) -> Iterable[tuple[str, list[str]]]:
        return (self.superclasses or {}).items()
