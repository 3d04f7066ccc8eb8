"""The errors of the façade, which are also of the classes that TransformerLens raises.

TransformerLens checks most arguments with ``assert``, and some by raising ``ValueError``: code that
expects either (``except AssertionError``, ``pytest.raises(ValueError)``) works with these as well.
"""

from interp import errors


class InvalidConfig(errors.InvalidConfig, AssertionError):
    """A configuration that the façade can't express; the message names the field."""


class InvalidInput(errors.InvalidInput, AssertionError):
    """An argument that a call of the façade can't use."""


class InvalidTokens(errors.InvalidTokens, AssertionError):
    """Token ids, a mask or a text that the model can't read."""


class InvalidFields(InvalidConfig, TypeError):
    """Fields that a configuration does not have, or lacks."""


class NoConfig(InvalidConfig, AttributeError):
    """An argument that is neither a configuration nor a dictionary of its fields."""


class OutOfRange(InvalidTokens, IndexError, RuntimeError):
    """An id outside of the vocabulary, a position outside of the context, a layer that is none."""


class WrongShape(InvalidInput, RuntimeError):
    """Tensors whose shapes do not match, or more than one number where one is expected."""


class NotLoaded(errors.ModelLoadError, ValueError, OSError):
    """A model that can't be loaded, such as one whose name is unknown."""


class NotSupported(InvalidInput, NotImplementedError):
    """A call or a name of TransformerLens that this package only lets import."""
