"""Tiny pretrained parts, saved as their libraries save them: token vectors, an encoder of texts, one of images."""

import json
from pathlib import Path

import torch
import transformers as hf
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WORDS = [*["please", "tell", "me", "number", "about", "music", "weather"], *map(str, range(12))]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
SIZE = 12
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]


def tiny_tokenizer() -> Tokenizer:
    """Lower-cased words of `text_rows`, between [CLS] and [SEP]."""
    numbers = {word: number for number, word in enumerate([*SPECIALS, *WORDS])}
    tokenizer = Tokenizer(WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), Whitespace()
    ends = [(name, numbers[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def write_vectors(folder: Path) -> Path:
    """A safetensors file with a vector for each token, and tokenizer.json beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    vectors = torch.randn(tokenizer.get_vocab_size(), SIZE, generator=torch.Generator().manual_seed(0))
    save_file({"embedding.weight": vectors.half()}, folder / "vectors.safetensors")
    return folder / "vectors.safetensors"


def write_text_network(folder: Path) -> Path:
    """A BERT of one layer with its tokenizer, 16 positions."""
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer(), pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = hf.BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=SIZE,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=16,
        )
        hf.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_image_network(folder: Path) -> Path:
    """A vision transformer of one layer for images of 8 x 8 pixels, with its normalisation."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = hf.ViTConfig(
            hidden_size=SIZE,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=8,
            patch_size=4,
        )
        hf.ViTModel(config).save_pretrained(folder)
    about = {"size": {"height": 8, "width": 8}, "image_mean": MEAN, "image_std": STD, "do_normalize": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(about))
    return folder


def recipe_overrides(recipe: str, folder: Path) -> list[str]:
    """Overrides with which a shipped recipe starts from a tiny network that is saved below the folder."""
    match recipe:
        case "text-vectors":
            return [f"body.vectors={json.dumps(str(write_vectors(folder / 'vectors')))}", "body.hidden=[8]"]
        case "text-minilm":
            return [f"body.name={json.dumps(str(write_text_network(folder / 'network')))}", "body.max_length=16"]
        case "cifar100-pretrained":
            return [f"body.name={json.dumps(str(write_image_network(folder / 'network')))}", "body.image_size=8"]
    return []
