"""What the model reads for the texts of a view: the texts, or each as a message of a chat."""

import interp
from apps.explorer.view import View


def has_chat(model: interp.Transformer) -> bool:
    """Whether the model has a chat template."""
    return model.tokenizer is not None and model.tokenizer.chat is not None


def text_read(view: View, model: interp.Transformer, text: str) -> str:
    """The text that the model reads for a text that was entered.

    Raises:
        InvalidInput: the text should be a message, and the chat template can't be used.
    """
    return model.chat(text).text if view.chat and text else text
