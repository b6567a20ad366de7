"""Reads tokenizers of the library `tokenizers` from files and from Transformers, as JSON text."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labelemb.lab.pretrained.places import network_folder
from labelemb.support.errors import UserError
from labelemb.support.files import LARGEST_RECORD, file_error, read_whole
from labelemb.support.optional import import_optional

LONGEST_TEXT = 10**6
"""Tokens: what Transformers says about networks without a limit is far above, and means none."""


def read_tokenizer_file(file: Path) -> str:
    """The JSON text of a tokenizer.json file, checked."""
    try:
        text = read_whole(file, LARGEST_RECORD).decode()
    except OSError as error:
        raise file_error("read", file, error) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not a tokenizer of the library tokenizers: not UTF-8") from error
    make_tokenizer(text, str(file))
    return text


def read_network_tokenizer(name: str) -> tuple[str, int]:
    """The JSON text of a network's tokenizer, and the most tokens that the network takes (0 for no limit)."""
    folder, purpose = network_folder(name), f"body.name = {name}"
    transformers = import_optional("transformers", purpose, "transformers")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError, TypeError) as error:
        raise UserError(f"{purpose} has no tokenizer that can be read: {str(error).splitlines()[0]}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"{purpose} has a tokenizer without a tokenizer.json: save it with the library tokenizers")
    limits = [tokenizer.model_max_length, getattr(config, "max_position_embeddings", None)]
    known = [int(limit) for limit in limits if isinstance(limit, int) and 0 < limit <= LONGEST_TEXT]
    return backend.to_str(), min(known, default=0)


def make_tokenizer(text: str, where: str) -> Any:
    """A tokenizer from its JSON text; `where` names it in errors."""
    library = import_optional("tokenizers", "a body that was trained before", "vectors")
    try:
        json.loads(text)
        return library.Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain `Exception`
        raise UserError(f"{where} is not a tokenizer of the library tokenizers: {error}") from error


def token_numbers(tokenizer: Any, texts: Sequence[str], max_length: int, special_tokens: bool) -> list[list[int]]:
    """Numbers of each text's tokens, the first `max_length` of them (0 for all)."""
    tokenizer.no_padding()
    if max_length:
        tokenizer.enable_truncation(max_length)
    else:
        tokenizer.no_truncation()
    encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=special_tokens)
    return [text.ids for text in encoded]
