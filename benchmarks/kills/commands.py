"""The commands that are killed: one for each verb that trains, all on a few texts."""

from pathlib import Path

SETTINGS = ("train.epochs=3", "body.hidden=[8]", "train.batch_size=8", "body.embedding_size=8", "body.dropout=0.2")
VERBS: dict[str, tuple[str, ...]] = {
    "train": (),
    "compare": ("--methods", "plain,label-embedding", "--seeds", "1", "--jobs", "2"),
    "audit": ("--folds", "2", "--jobs", "2"),
    "choose": ("--trials", "4", "--fresh-seeds", "1", "--jobs", "1"),
}
"""Further words of each verb. A search has one process: with several, its trials depend on which ends first."""


def words(verb: str, data: Path, out: Path) -> list[str]:
    """The command of a verb, which saves its runs after every update."""
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    running = ["--threads", "1", "--checkpoint-seconds", "0"]
    return [verb, "text-csv", *settings, "--data", str(data), "--out", str(out), *running, *VERBS[verb]]


def write_data(place: Path) -> Path:
    """A table of 36 texts."""
    place.mkdir(parents=True, exist_ok=True)
    rows = [f"{label} words {number % 5},{label}" for number in range(12) for label in ("music", "weather", "food")]
    data = place / "texts.csv"
    data.write_text("\n".join(["text,label", *rows]) + "\n")
    return data
