"""Reads new inputs for a trained model from files, in the form of its training data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from labelemb.lab.data.dataset import Examples, InputForm, InputPlace
from labelemb.lab.data.images.examples import ImageInputs
from labelemb.lab.data.pairs.encoder import PairInputs
from labelemb.lab.data.texts.examples import TextInputs
from labelemb.lab.data.texts.tokens import TokenInputs
from labelemb.lab.recipes.settings import DataSettings
from labelemb.support.errors import UserError


def input_form(preprocessing: Mapping[str, Any]) -> InputForm:
    """The form of a run's inputs from the JSON that `InputForm.to_dict` gives."""
    try:
        return msgspec.convert(preprocessing, ImageInputs | TextInputs | TokenInputs | PairInputs)
    except msgspec.ValidationError as error:
        raise UserError(f"the saved form of the inputs cannot be read: {error}") from error


def read_inputs(form: InputForm, settings: DataSettings, files: Sequence[Path]) -> tuple[list[InputPlace], Examples]:
    """New inputs from files, with the place of each."""
    for file in files:
        if not file.exists():
            raise UserError(f"there is no file {file}")
    return form.read(files, settings)
