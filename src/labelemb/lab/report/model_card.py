"""`write_card`: writes the model card of a run in the Markdown format of model hubs, with YAML front matter.

Every statement comes from the files of the run. What they cannot tell (license, intended use) is left to the user.
"""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

from labelemb import LabelSpace
from labelemb.lab.comparison.summary import FolderResults, read_results
from labelemb.lab.report.cards import difference_words
from labelemb.lab.report.gather import data_name
from labelemb.lab.report.labels import MOST_LABELS, NEIGHBORS, likeness_range
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.labels import load_space
from labelemb.lab.tasks import task_of_result
from labelemb.lab.tasks.label_rows import LabelRow, by_error, label_rows
from labelemb.lab.tasks.records import Confusion, ModelRecord, RunResult, read_record
from labelemb.labelspace.neighbors import neighbor_table
from labelemb.labelspace.pairs import mutual_pairs
from labelemb.support.errors import UserError
from labelemb.support.files import file_error, write_text
from labelemb.support.wording import shorten

CHECKSUM = "\n<!-- labelemb card, SHA-256 of the text above: {} -->\n"
"""Last line of a card, by which one that was edited is noticed."""
MOST_NAMES = 50
LONGEST_NAME, LONGEST_LINE = 60, 300
WORST_LABELS = 5
PAIRS = 5
FEW_EXAMPLES = 10
"""Test examples of a label below which its error is hardly known."""
Z = 1.959964
"""Of a 95 % interval."""


class EditedCardError(UserError):
    """The card that is there was edited, or is another text, and was not replaced."""


def write_card(folder: Path | str, out: Path | str | None = None, usage: str | None = None) -> Path:
    """Write the card of a finished run, by default README.md in its folder, and return the file.

    With `usage`, in Markdown, it is the card of an exported file, which is used in this way and has no run beside it.

    Only a card that is still as labelemb wrote it is replaced: texts of the user are kept.
    """
    body = _card_text(Path(folder), usage)
    path = Path(folder) / "README.md" if out is None else Path(out)
    try:
        # a pipe or a device has no text before
        before = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError as error:
        raise file_error("read", path, error) from error
    if before not in ("", body) and not _is_untouched(before):
        raise EditedCardError(
            f"{path} was edited or is not from labelemb: name another file with -o, or remove this one"
        )
    write_text(path, _signed(body))
    return path


def model_card(folder: Path) -> str:
    """The card of a finished run."""
    return _signed(_card_text(folder))


def _signed(body: str) -> str:
    return body + CHECKSUM.format(_digest(body))


def _is_untouched(card: str) -> bool:
    """Whether a card is as it was written, by the checksum in its last line."""
    body, _, _ = card.rpartition(CHECKSUM.partition("{}")[0])
    return card == _signed(body)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


def _card_text(folder: Path, usage: str | None = None) -> str:
    run = RunFolder(folder)
    result = run.require_result()
    model = read_record(run.about_model_file, ModelRecord)
    space = load_space(folder) if run.labels_file.exists() else None
    confusion_file = folder / "confusion.json"
    confusion = read_record(confusion_file, Confusion) if confusion_file.exists() else None
    alone = FolderResults(folder, [run], {result.method: {run: result}})
    rows, data = label_rows(confusion, space), data_name(alone)
    sections = [
        f"# {_text(data)}: {_text(result.method)}",
        _summary(result, model, data),
        "## Use\n\n" + (usage or _use(folder, result)),
        "## Data and labels\n\n" + _data(result, model, data),
        "## Results\n\n" + _results(result, _siblings(run, result) or alone),
        "## Calibration\n\n" + _calibration(result, exported=usage is not None),
        "## Label space\n\n" + _label_space(space, exported=usage is not None),
        "## Training\n\n" + _training(result),
        "## Limits\n\n" + _limits(result, model, rows),
    ]
    return "\n\n".join([_front_matter(result, model, data), *sections]) + "\n"


def _siblings(run: RunFolder, result: RunResult) -> FolderResults | None:
    """The comparison that a run belongs to; None for a run alone."""
    folder = run.path.resolve()
    if folder.name != f"seed-{result.seed}" or folder.parent.name != result.method:
        return None
    return read_results(folder.parent.parent)


def wilson_interval(error: float, examples: int) -> tuple[float, float]:
    """The 95 % interval of an error in percent, by the number of test examples (Wilson)."""
    share, n = min(1.0, max(0.0, error / 100)), examples
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return max(0.0, 100 * (middle - half)), min(100.0, 100 * (middle + half))


def _front_matter(result: RunResult, model: ModelRecord, data: str) -> str:
    main = task_of_result(result).main
    pipeline = task_of_result(result).hub_name(model.preprocessing)
    value = getattr(result, main.test_field)
    metric = ("accuracy", round((100 - value) / 100, 6)) if main.reported == "error" else (main.reported, value)
    entry = {
        "name": f"{result.recipe}-{result.method}",
        "results": [
            {
                "task": {"type": pipeline},
                "dataset": {"name": data, "type": result.recipe, "split": "test"},
                "metrics": [{"type": metric[0], "value": metric[1], "name": f"test {metric[0]}"}],
            }
        ],
    }
    # JSON is YAML: no name in it can end a string or begin a key
    lines = [
        "---",
        "library_name: labelemb",
        f"pipeline_tag: {pipeline}",
        "tags: [labelemb, soft-labels, label-embedding]",
        f"metrics: [{metric[0]}]",
        f"model-index: {json.dumps([entry])}",
        "---",
    ]
    return "\n".join(lines)


def _summary(result: RunResult, model: ModelRecord, data: str) -> str:
    task = task_of_result(result)
    what = f"{task.name} with {len(model.label_names):,} labels"
    return (
        f"A model for {what}, trained on {_text(data)} by `labelemb` with the method {_code(result.method)} (recipe "
        f"{_code(result.recipe)}, seed {result.seed}): {task.describe(result)}."
    )


def _use(folder: Path, result: RunResult) -> str:
    verb, _, arguments = task_of_result(result).command.partition(" ")
    name = folder.resolve().name
    return f"```sh\npip install 'labelemb[lab]'\nlabelemb {verb} {_word(name)} {arguments}\n```"


def _data(result: RunResult, model: ModelRecord, data: str) -> str:
    counts = result.examples
    names = [_text(name) for name in model.label_names[:MOST_NAMES]]
    more = f", and {len(model.label_names) - MOST_NAMES:,} more" if len(model.label_names) > MOST_NAMES else ""
    digest = f"; SHA-256 of what was read: `{result.data_digest}`" if result.data_digest else ""
    lines = [
        f"- data: {_text(data)}{digest}",
        f"- examples: {counts.train:,} to train, {counts.dev:,} for development, {counts.test:,} to test",
        f"- labels ({len(model.label_names):,}): {', '.join(names)}{more}",
    ]
    return "\n".join(lines)


def _results(result: RunResult, siblings: FolderResults) -> str:
    task = task_of_result(result)
    main = task.main
    value = getattr(result, main.test_field)
    line = f"- this run: test {main.show(value)}"
    if main.reported == "error":
        low, high = wilson_interval(value, max(1, result.examples.test))
        line += f" (95 % interval {low:.2f} to {high:.2f}, from {result.examples.test:,} test examples)"
    lines = [line]
    summary = siblings.summary
    assert summary is not None
    values = summary.methods[result.method]
    score = values.scores[main.test_field]
    if score.n > 1 and score.mean is not None:
        lines.append(
            f"- {score.n} seeds: {main.title} {score.mean:.2f} ± {score.std:.2f}{main.unit} (standard deviation)"
        )
    baseline = summary.methods.get("plain")
    if baseline is not None and baseline is not values:
        lines.append(f"- against cross entropy: {difference_words(values, baseline, main)}")
    selected = "the best dev evaluation" if result.examples.dev else "the last epoch"
    lines.append(f"- reported evaluation: {selected}, epoch {result.best_epoch:g} of {result.epochs}")
    return "\n".join(lines)


def _calibration(result: RunResult, *, exported: bool) -> str:
    def number(name: str, digits: int) -> str:
        value = getattr(result, name, None)
        return "-" if value is None else f"{value:.{digits}f}"

    rows = [
        "| | as trained | after temperature scaling |",
        "| --- | ---: | ---: |",
        f"| expected calibration error (%) | {number('test_ece', 2)} | {number('test_ece_scaled', 2)} |",
        f"| negative log-likelihood | {number('test_nll', 3)} | {number('test_nll_scaled', 3)} |",
    ]
    applied = "the logits of the file are divided by it" if exported else "`labelemb` applies it"
    fitted = (
        "There was no development set, so probabilities are not scaled."
        if result.temperature is None
        else f"The temperature, {result.temperature:.3g}, was fitted on the development set; {applied}."
    )
    return "\n".join(rows) + f"\n\n{fitted}"


def _label_space(space: LabelSpace | None, *, exported: bool) -> str:
    if space is None:
        return "This method learns no label space."
    about = f"`labels.safetensors` says how the {space.num_labels:,} labels resemble each other."
    if exported:
        about = f"The run learned how the {space.num_labels:,} labels resemble each other; this is not in the file."
    if space.num_labels > MOST_LABELS:
        return about
    found = mutual_pairs(neighbor_table(space, NEIGHBORS))
    if likeness_range(found, PAIRS) is not None:
        return f"{about} No pair stands out: too little was learned about them."
    names = [[_text(space.names[index]) for index in side[:PAIRS]] for side in (found.first, found.second)]
    pairs = [
        f"- {first}, {second} (likeness {likeness:.2f})"
        for first, second, likeness in zip(*names, found.likeness[:PAIRS].tolist(), strict=True)
    ]
    return "\n".join([f"{about} Most alike:", "", *pairs] if pairs else [about])


def _training(result: RunResult) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    machine = ", ".join(part for part in (result.machine.cpu, result.machine.gpu, result.machine.system) if part)
    return "\n".join(
        [
            f"- command: {_code(result.command)}" if result.command else "- command: not recorded",
            f"- {result.epochs} epochs, {result.steps:,} updates, {result.seconds.training:.0f} seconds",
            f"- machine: {_text(machine, LONGEST_LINE)}",
            f"- parameters: {result.parameters.predicting:,} to predict",
            f"- versions: {_text(versions, LONGEST_LINE)}",
        ]
    )


def _limits(result: RunResult, model: ModelRecord, rows: list[LabelRow]) -> str:
    lines = ["- Trained and tested on the data above only: errors on other data are not known."]
    if limit := task_of_result(result).limit:
        lines.append(f"- {limit.format(labels=len(model.label_names))}")
    worst = [row for row in by_error(rows) if row.error][:WORST_LABELS]
    if worst:
        named = ", ".join(f"{_text(row.label)} ({row.error:.0f} % of {row.examples})" for row in worst)
        lines.append(f"- Labels with the largest test error: {named}.")
    lines += _named("were never observed right in training", [row.label for row in rows if row.observed is False])
    few = [row.label for row in rows if row.examples is not None and row.examples < FEW_EXAMPLES]
    lines += _named(f"have fewer than {FEW_EXAMPLES} test examples, so their errors are very uncertain", few)
    if result.note:
        lines.append(f"- {_text(result.note, LONGEST_LINE)}.")
    lines.append("- License, intended use and the origin of the data are not known to the program: add them here.")
    return "\n".join(lines)


def _named(what: str, labels: Sequence[str]) -> list[str]:
    if not labels:
        return []
    more = f" and {len(labels) - WORST_LABELS} more" if len(labels) > WORST_LABELS else ""
    return [f"- {len(labels)} label(s) {what}: {', '.join(map(_text, labels[:WORST_LABELS]))}{more}."]


def _text(value: str, longest: int = LONGEST_NAME) -> str:
    """A text from a file as Markdown that shows it and nothing else."""
    return re.sub(r"([\\`*_{}\[\]<>()#|!&~$])", r"\\\1", shorten(value, longest))


def _code(value: str) -> str:
    return f"`{shorten(value, LONGEST_LINE).replace('`', '')}`"


def _word(name: str) -> str:
    return re.sub(r"[^\w.+@=-]", "_", name)
