"""A summary of translation runs as tables to read: generated texts first, then the likelihood of the references."""

from typing import Any

from labelemb.lab.comparison.tables import Table, difference, number, p_value, reached, spread_text
from labelemb.lab.tasks.main_score import MAIN_SCORES, ROUGE

TEXT_LEGEND = """\
BLEU, chrF, ROUGE (F-measure) and exact are in percent, higher is better.
- the first score: mean ± standard deviation over seeds, by beam search without a length penalty, at the best greedy dev
  score
- difference to plain: paired over the seeds in common, with its 95 % confidence interval and the p-value of the t-test
- the same score with length penalty 1, with logits divided by the temperature (calibrated), and of greedy search
- length: words of the outputs over words of the references. Soft targets make a predictor underconfident, so that
  without a penalty or a temperature a beam prefers outputs that are too short
- exact: outputs that are the reference, word by word
- epochs to plain: the first epoch at plain's mean best dev score (in brackets: how many runs got there, if not all)
- perplexity, NLL and ECE: of the words of the references; scaled: after division of the logits by one temperature,
  fitted on the dev set"""

Columns = tuple[tuple[str, str, int], ...]
AFTER_BLEU: Columns = (
    ("penalty 1", "test_bleu_penalised", 2),
    ("calibrated", "test_bleu_calibrated", 2),
    ("greedy", "test_bleu_greedy", 2),
    ("length", "test_length_ratio", 3),
    ("length, penalty 1", "test_length_ratio_penalised", 3),
    ("chrF", "test_chrf", 2),
    ("exact", "test_exact", 2),
)
AFTER_ROUGE: Columns = (
    ("ROUGE-2", "test_rouge2", 2),
    ("ROUGE-L", "test_rougeL", 2),
    ("penalty 1", "test_rouge1_penalised", 2),
    ("calibrated", "test_rouge1_calibrated", 2),
    ("greedy", "test_rouge1_greedy", 2),
    ("length", "test_length_ratio", 3),
    ("BLEU", "test_bleu", 2),
)
LIKELIHOOD: Columns = (
    ("NLL", "test_nll", 3),
    ("perplexity", "test_perplexity", 2),
    ("NLL scaled", "test_nll_scaled", 3),
    ("perplexity scaled", "test_perplexity_scaled", 2),
    ("ECE", "test_ece", 2),
    ("ECE scaled", "test_ece_scaled", 2),
    ("word error", "test_error", 2),
)


def text_table(summary: dict[str, Any]) -> Table:
    """Generated texts."""
    main = MAIN_SCORES[summary["main_score"]]
    columns = AFTER_ROUGE if main is ROUGE else AFTER_BLEU
    header = ["method", "runs", f"test {main.title}", "difference to plain", "p", *(title for title, _, _ in columns)]
    rows = []
    for method, values in summary["methods"].items():
        score, against = values[f"test_{main.reported}"], values.get("against_plain")
        rows.append(
            [
                method,
                str(score["n"]),
                spread_text(score, 2),
                difference(against) if against else "-",
                p_value(against["p"]) if against else "-",
                *(number(values[name]["mean"], digits) for _, name, digits in columns),
            ]
        )
    return Table(header, rows)


def likelihood_table(summary: dict[str, Any]) -> Table:
    """Likelihood of the references, and time."""
    main = MAIN_SCORES[summary["main_score"]]
    header = ["method", "s/epoch", "epochs to plain", f"dev {main.title}", *(title for title, _, _ in LIKELIHOOD)]
    rows = []
    for method, values in summary["methods"].items():
        rows.append(
            [
                method,
                number(values["seconds_per_epoch"]["mean"], 2),
                reached(values["epochs_to_plain"]),
                number(values[f"dev_{main.evaluated}"]["mean"], 2),
                *(number(values[name]["mean"], digits) for _, name, digits in LIKELIHOOD),
            ]
        )
    return Table(header, rows)
