"""What if attention and MLP read the same stream? x ↦ x + attn(ln1(x)) + mlp(ln2(x)).

GPT-J (Wang & Komatsuzaki 2021) has one norm for both, GPT-NeoX (Black et al. 2022) one for each.
There is no ``resid_mid``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from interp.model.context import Context
from interp.model.door import Door
from interp.model.recipe import KEPT, Layout, owned
from interp.model.step import PreNorm, reading
from interp.model.tap import Tap
from interp.points import Place, Point

Stream = Float[Tensor, "batch pos d_model"]


@dataclass(frozen=True)
class Parallel(PreNorm):
    """x ↦ x + attn(ln1(x)) + mlp(ln2(x)): the step of attention, with that of the MLP beside it.

    Attributes:
        beside: how the MLP reads and where it is tapped.
    """

    beside: PreNorm

    def __call__(self, block: nn.Module, x: Stream, context: Context, tap: Tap) -> Stream:
        """The stream after this step."""
        attn, _ = self.parts(block)
        given, _ = self.take(block, x, tap)
        out = attn.outer(attn.inner(given, context, tap), tap)
        return self._with_mlp(block, (x, out), context, tap)

    def _with_mlp(
        self, block: nn.Module, given: Sequence[Tensor], context: Context, tap: Tap
    ) -> Stream:
        """The rest of the step, from the stream and what attention writes."""
        x, attn_out = given
        mlp, _ = self.beside.parts(block)
        read, _ = self.beside.take(block, x, tap)
        inner = mlp.inner(read, context, tap)
        return self._summed(block, (x, attn_out, inner), tap)

    def _summed(self, block: nn.Module, given: Sequence[Tensor], tap: Tap) -> Stream:
        """The rest, from the stream, what attention writes and what the neurons say."""
        x, attn_out, inner = given
        mlp, _ = self.beside.parts(block)
        return self.leave(block, x + (attn_out + mlp.outer(inner, tap)), tap)

    def doors(self, block: nn.Module, index: int, before: Place) -> list[Door]:
        """Before the step, where the heads have spoken, the same for the MLP, after the sum."""
        attn, _ = self.parts(block)
        mlp, _ = self.beside.parts(block)
        z, out, said = Place(attn.between), Place(self.write), Place(mlp.between)

        def to_heads(given: Sequence[Tensor], context: Context, tap: Tap) -> Stream:
            return self._with_mlp(block, (given[0], attn.outer(given[1], tap)), context, tap)

        def to_mlp(given: Sequence[Tensor], context: Context, tap: Tap) -> Stream:
            return self._with_mlp(block, given, context, tap)

        def to_neurons(given: Sequence[Tensor], context: Context, tap: Tap) -> Stream:  # noqa: ARG001
            return self._summed(block, given, tap)

        first, *_, last = super().doors(block, index, before)
        return [
            first,
            Door(z, (before, z), index + 1, to_heads),
            Door(Place(self.beside.read), (before, out), index + 1, to_mlp),
            Door(said, (before, out, said), index + 1, to_neurons),
            last,
        ]

    def layout(self, block: nn.Module, before: Place) -> tuple[Layout, Place]:
        """Attention's places, then the MLP's, then the sum."""
        places: Layout = {}
        for one in (self, self.beside):
            f, norm = one.parts(block)
            places |= {
                **reading(one.read, before),
                **owned(one.norm, norm.layout(Place(one.read), one.norm)),
                **owned(one.part, f.layout(one.source(block))),
            }
        return places | {Place(self.after): KEPT}, Place(self.after)

    @property
    def writes(self) -> tuple[Point, ...]:
        """What attention writes, and the MLP."""
        return self.write, self.beside.write

    def norms(self) -> Iterator[str]:
        """One each."""
        yield from (self.norm, self.beside.norm)
