"""Settings that several families share: attention biases and the unembedding."""

from typing import TypedDict

from interp.loading.foreign_config import ForeignConfig

UNBOUNDED = 2**20
"""``n_ctx`` of models whose positions do not limit the length of a sequence."""


class Biases(TypedDict):
    """The bias fields of :class:`interp.AttentionConfig`."""

    bias_q: bool
    bias_k: bool
    bias_v: bool
    bias_o: bool


def biases(*, qkv: bool, output: bool) -> Biases:
    """Whether queries, keys and values have biases, and whether the output has one."""
    return {"bias_q": qkv, "bias_k": qkv, "bias_v": qkv, "bias_o": output}


class Exit(TypedDict):
    """Fields of :class:`interp.Config` that describe the unembedding."""

    tied: bool
    unembeds: bool


def plain_exit(fields: ForeignConfig) -> Exit:
    """An unembedding without bias, tied or not, if there is one."""
    return {"tied": fields.unembedding == "tied", "unembeds": fields.unembedding != "none"}
