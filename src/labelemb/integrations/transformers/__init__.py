"""Label embedding for Hugging Face models, trained by the unchanged `Trainer`.

>>> model = attach_to_pretrained(AutoModelForSequenceClassification.from_pretrained(...))
>>> Trainer(model, arguments, train_dataset=..., callbacks=[LabelEmbeddingCallback()]).train()
>>> model.save_pretrained("out")  # a plain checkpoint, and the training parts beside it

docs/transformers.md has a complete example.
"""

from labelemb.support.optional import require_version

OLDEST, NEWEST = (5, 0), (5, 22)
require_version("transformers", extra="transformers", oldest=OLDEST, newest=NEWEST)

from labelemb.integrations.transformers.attachment import Attachment  # noqa: E402  after the check
from labelemb.integrations.transformers.callback import LabelEmbeddingCallback  # noqa: E402
from labelemb.integrations.transformers.names import label_space  # noqa: E402
from labelemb.integrations.transformers.pretrained import attach_to_pretrained, parameter_groups  # noqa: E402
from labelemb.integrations.transformers.training_parts import load_training_parts, save_training_parts  # noqa: E402

__all__ = [
    "Attachment",
    "LabelEmbeddingCallback",
    "attach_to_pretrained",
    "label_space",
    "load_training_parts",
    "parameter_groups",
    "save_training_parts",
]
