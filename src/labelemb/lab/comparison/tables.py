"""A summary as tables to read: rows for the report page, and Markdown, which is also what the terminal shows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

LEGEND = """\
Errors and ECE are in percent.
- test error: mean ± standard deviation over seeds, at the best dev evaluation (without a dev set: the last epoch)
- reduction, difference to plain: over the seeds in common, with the 95 % interval and the p-value of a paired t-test
- s/epoch: seconds of training in an epoch, evaluations left out
- epochs to plain: the first epoch at plain's mean final error (in brackets: how many runs got there, if not all)
- fluctuation: standard deviation of the test error from epoch to epoch over the last third of the training
- scaled: after division of the logits by one temperature, fitted on the dev set"""

Row = list[str]


class Table(NamedTuple):
    """Cells as they are shown; the first column names the method."""

    header: Row
    rows: list[Row]


def tables(summary: dict[str, Any]) -> list[Table]:
    """All numbers of a summary: first what was reached, then how."""
    if _is_text(summary):
        from labelemb.lab.comparison.text_tables import likelihood_table, text_table

        return [text_table(summary), likelihood_table(summary)]
    return [accuracy_table(summary), quality_table(summary)]


def legend(summary: dict[str, Any]) -> str:
    """What the columns mean."""
    if _is_text(summary):
        from labelemb.lab.comparison.text_tables import TEXT_LEGEND

        return f"{TEXT_LEGEND}\n- sacrebleu's signature of BLEU: {summary['bleu_signature']}"
    return LEGEND


def _is_text(summary: dict[str, Any]) -> bool:
    return bool(summary.get("main_score", "error") != "error")


def accuracy_table(summary: dict[str, Any]) -> Table:
    """Test errors, and each method against plain."""
    header = ["method", "runs", "test error", "best run", "reduction", "difference to plain", "p"]
    rows = []
    for method, values in summary["methods"].items():
        error, against = values["test_error"], values.get("against_plain")
        rows.append(
            [
                method,
                str(error["n"]),
                spread_text(error, 2),
                number(error["min"], 2),
                number(values.get("error_reduction"), 1, " %"),
                difference(against) if against else "-",
                p_value(against["p"]) if against else "-",
            ]
        )
    return Table(header, rows)


def quality_table(summary: dict[str, Any]) -> Table:
    """Speed, stability and calibration."""
    header = [
        "method",
        "s/epoch",
        "epochs to plain",
        "fluctuation",
        "NLL",
        "ECE",
        "NLL scaled",
        "ECE scaled",
        "dev error",
    ]
    rows = []
    for method, values in summary["methods"].items():
        scores = ("test_nll", 3), ("test_ece", 2), ("test_nll_scaled", 3), ("test_ece_scaled", 2), ("dev_error", 2)
        rows.append(
            [
                method,
                number(values["seconds_per_epoch"]["mean"], 2),
                reached(values["epochs_to_plain"]),
                number(values["fluctuation"]["mean"], 3),
                *(number(values[name]["mean"], digits) for name, digits in scores),
            ]
        )
    return Table(header, rows)


def render(summary: dict[str, Any]) -> str:
    """The tables with the notes and what the columns mean."""
    parts = [markdown(*table) for table in tables(summary)]
    if summary["notes"]:
        parts.append("\n".join(f"- {note}" for note in summary["notes"]))
    return "\n\n".join([*parts, legend(summary)])


def markdown(header: Row, rows: Sequence[Row]) -> str:
    """A Markdown table whose columns line up in the terminal too: text to the left, numbers to the right."""
    widths = [max(3, *(len(row[i]) for row in (header, *rows))) for i in range(len(header))]

    def line(cells: Row) -> str:
        padded = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def spread_text(values: dict[str, Any], digits: int) -> str:
    """Mean ± standard deviation."""
    if values["mean"] is None:
        return "-"
    return f"{values['mean']:.{digits}f}" + (f" ± {values['std']:.{digits}f}" if values["n"] > 1 else "")


def reached(values: dict[str, Any]) -> str:
    """Mean epochs over the runs that reached the goal, and how many did if not all."""
    if values["mean"] is None:
        return "-"
    share = "" if values["n"] == len(values["values"]) else f" ({values['n']} of {len(values['values'])})"
    return f"{values['mean']:.1f}{share}"


def number(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def difference(against: dict[str, Any]) -> str:
    interval = "" if against["low"] is None else f" [{against['low']:+.2f}, {against['high']:+.2f}]"
    return f"{against['mean']:+.2f}{interval}"


def p_value(p: float | None) -> str:
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"
