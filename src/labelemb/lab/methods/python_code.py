"""A method as Python code for a training loop of your own."""

from labelemb.embeddings.base import LabelEmbedding
from labelemb.embeddings.compressed import CompressedEmbedding
from labelemb.embeddings.dense import DenseEmbedding
from labelemb.embeddings.running import RunningEmbedding
from labelemb.heads.base import Head
from labelemb.heads.defaults import DEFAULT
from labelemb.heads.label_embedding import LabelEmbeddingHead
from labelemb.heads.online_smoothing import OnlineSmoothingHead
from labelemb.heads.plain import PlainHead
from labelemb.lab.methods.method import Method
from labelemb.lab.recipes.recipe import Recipe
from labelemb.support.errors import UserError

CLOCK = "total_steps=total_steps"
ROWS = "rows_per_epoch=rows_per_epoch"
CLEAN_HINT = "# with dropout, call head(hidden, labels, observed_hidden=hidden of a pass without dropout)"


def python_lines(method: Method, recipe: Recipe, num_labels: int) -> tuple[str, ...]:
    """The import and the constructor of the method's head, and for a learned embedding the optimiser's groups.

    A comment says where the observer reads a pass of its own.

    `in_features`, `num_labels` and, where the method needs them, `rows_per_epoch` (training examples) and
    `total_steps` (optimiser updates) are names that the reader sets; so are `model`, which holds the head, and `lr`.
    """
    head = method.make_head(recipe, 2, num_labels, rows_per_epoch=num_labels, total_steps=1)
    names, options = {type(head).__name__}, _options(method, head)
    if isinstance(head, LabelEmbeddingHead):
        names |= {name for name in ("Objective", "CompressedEmbedding") if name in " ".join(options)}
    groups = _groups(method.embedding_lr(recipe), head)
    hints = [CLEAN_HINT] if method.clean_observer else []
    names |= {"parameter_groups"} if groups else set()
    arguments = ", ".join(["in_features", "num_labels", *options])
    return (
        f"from labelemb import {', '.join(sorted(names))}",
        f"head = {type(head).__name__}({arguments})",
        *groups,
        *hints,
    )


def _groups(embedding_lr: float | None, head: Head) -> list[str]:
    """The line that gives the parameters to an optimiser, for a head whose embedding is trained by gradient."""
    if not (isinstance(head, LabelEmbeddingHead) and head.embedding.trained_by_gradient):
        return []
    own = "" if embedding_lr == DEFAULT.embedding_lr else f", embedding_lr={embedding_lr}"
    return [f"groups = parameter_groups(model, lr=lr{own})"]


def _options(method: Method, head: Head) -> list[str]:
    """Arguments of the head's constructor after the sizes."""
    if isinstance(head, PlainHead):
        options = [f"label_smoothing={head.label_smoothing}"] if head.label_smoothing else []
        return options + ([f"mass_floor={head.mass_floor}", CLOCK] if head.mass_floor else [])
    if isinstance(head, OnlineSmoothingHead):
        mixing = head.mixing
        if mixing.mass_floor:
            return [ROWS, f"soft_weight={mixing.soft_weight}", f"mass_floor={mixing.mass_floor}", CLOCK]
        return [ROWS, f"hard_weight={mixing.hard_weight}", f"soft_weight={mixing.soft_weight}"]
    if type(head) is LabelEmbeddingHead:
        options = _embedding(head.embedding)
        if head.objective != DEFAULT.objective:
            options.append(f"objective={head.objective!r}")
        return options + ([CLOCK] if head.total_steps is not None else [])
    raise UserError(f"{method.name} is a control for experiments and has no Python code")


def _embedding(embedding: LabelEmbedding) -> list[str]:
    if isinstance(embedding, RunningEmbedding):
        prior = [f"prior_rows={embedding.prior_rows:g}"] if embedding.prior_rows else []
        return ['embedding="running"', ROWS, *prior]
    if isinstance(embedding, CompressedEmbedding):
        if embedding.bias is None:
            return ['embedding="compressed"', f"rank={embedding.rank}"]
        return [f"embedding=CompressedEmbedding(num_labels, {embedding.rank}, bias=True)"]
    return ['embedding="dense"'] if isinstance(embedding, DenseEmbedding) else []
