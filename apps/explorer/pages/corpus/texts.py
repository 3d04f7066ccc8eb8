"""The texts of the page Corpus: sets of prompts that come with the package, or pasted lines.

No file is read by its path: a link must not be able to name one.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, zip_longest

import interp
from apps.commands.inputs import Inputs
from apps.defaults import card_of
from apps.explorer.offered import source_of
from apps.explorer.view import View
from interp.errors import InvalidInput
from interp.prompts import Prompt, bundled_prompts, path_of_prompts, read_prompts

ALL_SETS, PASTED = "all sets", "pasted"
"""The choices beside single sets."""
TEMPLATES = ".toml"
"""The ending of the bundled sets in English, which suit a model that has none of its own."""
Texts = list[str] | tuple[list[str], list[str]]


def sets_of(model: str) -> list[str]:
    """The choices of texts for a model; the first is the default.

    They are the sets that its card names, or else those in English; all of them; and pasted lines.
    """
    card = card_of(source_of(model))
    of_card = [name for name in (card.prompts, card.pairs) if name] if card else []
    sets = of_card or [name for name in bundled_prompts() if _is_template(name)]
    return [*([ALL_SETS] if len(sets) > 1 else []), *sets, PASTED]


def texts_of(view: View, model: interp.Transformer) -> Texts:
    """The texts that a view asks about, as the analysis takes them.

    Raises:
        InvalidInput: nothing was pasted, a line lacks what the model needs, or the model reads no
            text.
    """
    if model.tokenizer is None:
        raise InvalidInput(
            f"{view.model} has no tokenizer, so it reads no texts here. In Python, "
            "analyses.scan_heads takes token ids or images."
        )
    sets = sets_of(view.model)
    chosen = view.corpus or sets[0]
    several = [name for name in sets if name not in (ALL_SETS, PASTED)]
    if chosen == PASTED:
        prompts = _pasted(view, is_paired=len(model.stacks) > 1)
    else:
        prompts = _alternating(several if chosen == ALL_SETS else [chosen])
    return Inputs(model, tuple(prompts[: view.most])).batch


def _is_template(name: str) -> bool:
    return path_of_prompts(name).suffix == TEMPLATES


def _pasted(view: View, *, is_paired: bool) -> list[Prompt]:
    """A prompt for each line with text; for an encoder–decoder, source and target."""
    lines = [(n, line) for n, line in enumerate(view.pasted.splitlines(), 1) if line.strip()]
    if not lines:
        raise InvalidInput("There are no pasted texts yet: paste some below Texts, one per line.")
    if not is_paired:
        return [Prompt(line) for _, line in lines]
    return [_pair(n, line) for n, line in lines]


def _pair(number: int, line: str) -> Prompt:
    source, tab, target = line.partition("\t")
    if not (source and tab and target):
        raise InvalidInput(
            f"Line {number} of the pasted texts should be a source and a target with a tab between "
            f"them, since the model has an encoder and a decoder; got {line!r:.80}."
        )
    return Prompt(source, prefix=target)


def _alternating(names: Sequence[str]) -> list[Prompt]:
    """The prompts of several sets, one of each set in turn, so that the first ones are mixed."""
    in_turn = chain.from_iterable(zip_longest(*map(_prompts, names)))
    return [prompt for prompt in in_turn if prompt is not None]


@cache
def _prompts(name: str) -> tuple[Prompt, ...]:
    """The prompts of a bundled set."""
    return tuple(replace(prompt, source=name) for prompt in read_prompts(name))
