"""``interp neurons``: what do neurons of a layer respond to, and what do they do?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.corpus import Bos, Texts, corpus_of
from apps.commands.options import MethodName

if TYPE_CHECKING:
    from analyses import Neurons
    from apps.commands.inputs import Inputs


Layer = Annotated[int, typer.Option(help="Layer of the neurons; negative: from the end.")]
Neuron = Annotated[
    list[int] | None,
    typer.Option(help="Index of a neuron; may be repeated.", show_default="all of the layer"),
]
Stack = Annotated[
    str | None,
    typer.Option(help="For an encoder–decoder: encoder or decoder.", show_default="decoder"),
]
Ablate = Annotated[
    int, typer.Option(help="Number of texts on which each neuron is ablated; 0: none.", min=0)
]
Method = Annotated[MethodName, typer.Option(help="What replaces an ablated activation.")]


@analysis_command("Reading texts", reads=())
def neurons(  # noqa: PLR0913 - each is an option
    inputs: "Inputs",
    *,
    layer: Layer = 0,
    neuron: Neuron = None,
    stack: Stack = None,
    texts: Texts = None,
    ablate: Ablate = 32,
    method: Method = MethodName.MEAN,
    bos: Bos = False,
) -> "Neurons":
    """Describe neurons: top tokens, direct effects on logits, weights, effects of ablation."""
    import analyses  # noqa: PLC0415

    return analyses.neurons(
        inputs.model,
        corpus_of(inputs, texts),
        layer=layer,
        neurons=neuron or None,
        stack=stack,
        ablate=ablate,
        method=method.value,
        bos=bos,
        **inputs.how(analyses.neurons),
    )
