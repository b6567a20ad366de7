"""Scores of texts: sacrebleu's and rouge-score's numbers, also for Chinese, and likelihoods without all logits."""

import pytest
import torch
import torch.nn.functional as F

from labelemb import fit_temperature
from labelemb.lab.tasks.model import Classifier
from labelemb.lab.tasks.scores import tokens as sequence_metrics
from labelemb.lab.tasks.scores.classification import calibration_error
from labelemb.lab.tasks.scores.texts import CharacterTokens, rouge, score_texts
from labelemb.lab.tasks.scores.tokens import token_scores, token_temperature
from tests.helpers.text_models import make_examples, make_model

CPU = torch.device("cpu")


def test_bleu_is_that_of_tokenised_text() -> None:
    scores = score_texts(["a b c d , e", "x y"], ["a b c d , e", "x y z w"])
    # 8 of 8 words, 6 of 6, 4 of 4 and 3 of 3 runs are right, the output has 8 words of 10
    assert scores.bleu == pytest.approx(100 * torch.exp(torch.tensor(1 - 10 / 8)).item())
    assert scores.length_ratio == 0.8
    assert scores.exact == 50
    assert "tok:none" in scores.bleu_signature


def test_rouge_counts_chinese_characters() -> None:
    scores = rouge(["天 地 人"], ["天 地 玄 黄"])
    assert scores["rouge1"] == pytest.approx(100 * 2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))
    assert scores["rouge2"] == pytest.approx(100 * 2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert scores["rougeL"] == pytest.approx(scores["rouge1"])


def test_rouge_is_the_same_with_and_without_spaces_between_characters() -> None:
    assert CharacterTokens().tokenize("2023年GDP增长，超预期") == [
        "2023",
        "年",
        "gdp",
        "增",
        "长",
        "，",
        "超",
        "预",
        "期",
    ]
    assert rouge(["天地人"], ["天地玄黄"]) == rouge(["天 地 人"], ["天 地 玄 黄"])


def test_an_unknown_character_is_one_wrong_character() -> None:
    assert CharacterTokens().tokenize("天<unk> 地") == ["天", "<unk>", "地"]
    assert rouge(["天 <unk>"], ["天 地"])["rouge1"] == pytest.approx(50)


def test_words_of_other_scripts_stay_whole() -> None:
    assert CharacterTokens().tokenize("Đỏ và xanh.") == ["đỏ", "và", "xanh", "."]


@pytest.mark.parametrize("chunk", [2**23, 20])
def test_likelihoods_in_chunks_are_those_of_all_logits(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_metrics, "CHUNK_LOGITS", chunk)
    body, head = make_model(sharpness=2.0)
    classifier = Classifier(body, head)
    examples = make_examples([3, 5, 2, 4] * 6, [4, 2, 6, 3] * 6)
    inputs, targets = examples.batch(torch.arange(24))
    valid = targets != sequence_metrics.IGNORED
    logits, targets = classifier(inputs).detach()[valid], targets[valid]
    temperature = token_temperature(classifier, examples, CPU)
    assert temperature == pytest.approx(fit_temperature(logits, targets), rel=1e-4)
    scores = token_scores(classifier, examples, CPU, temperature)
    assert scores.nll == pytest.approx(float(F.cross_entropy(logits, targets)), rel=1e-5)
    assert scores.nll_scaled == pytest.approx(float(F.cross_entropy(logits / temperature, targets)), rel=1e-5)
    assert scores.error == pytest.approx(100 * float((logits.argmax(-1) != targets).double().mean()))
    assert scores.perplexity == pytest.approx(2.718281828**scores.nll, rel=1e-6)
    assert scores.diagram.error() == pytest.approx(calibration_error(logits, targets), rel=1e-5)
    assert scores.diagram_scaled is not None
    assert scores.diagram_scaled.error() == pytest.approx(calibration_error(logits / temperature, targets), rel=1e-5)


def test_the_temperature_stays_finite_where_every_word_is_predicted_right() -> None:
    body, head = make_model()
    examples = make_examples([3] * 10, [1] * 10)  # the end symbol is the only target
    with torch.no_grad():
        head.predictor.weight.zero_()
        head.predictor.bias.zero_()
        head.predictor.bias[2] = 1.0
    temperature = token_temperature(Classifier(body, head), examples, CPU)
    # as if 10 of 11 words were right: exp(1 / T) / (exp(1 / T) + 6) = 10 / 11
    assert 1 / temperature == pytest.approx(torch.tensor(60.0).log().item(), rel=1e-4)


def test_bleu_of_references_below_four_tokens_counts_the_ngrams_that_there_are() -> None:
    perfect = score_texts(["deux chats", "un chien noir"], ["deux chats", "un chien noir"])
    assert perfect.bleu == pytest.approx(100)
    assert perfect.bleu_signature.endswith("|order:3")
    half = score_texts(["un", "chat"], ["un", "chien"])
    assert half.bleu == pytest.approx(50)
    assert "order" not in score_texts(["a b c d"], ["a b c d"]).bleu_signature
