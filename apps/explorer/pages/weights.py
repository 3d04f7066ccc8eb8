"""The page Weights: analyses of the weights, without a prompt.

For one head, its OV and QK circuits and singular vectors; for all heads, how they compose; the
position scheme; and what depends on order: exact symmetries and order sensitivity.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, singledispatch

import interp
from analyses import (
    Composition,
    OrderSensitivity,
    OVCircuit,
    PermutationCovariance,
    QKCircuit,
    composition,
    order_sensitivity,
    ov,
    permutation_covariance,
    positions,
    qk,
)
from analyses.methods.circuits import KINDS
from analyses.methods.components import components_of
from analyses.results import Result, fixed, signed
from apps.commands.inputs import Inputs
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.controls import choose, write
from apps.explorer.default_views import examples
from apps.explorer.page import Ask, Page, ask
from apps.explorer.pages.view_inputs import NO_PROMPT, prompt_of
from apps.explorer.questions import Question, question
from apps.explorer.validate import attention_of, heads_of, text_read
from apps.explorer.view import Head, View, heads_in
from apps.frame_table import table_of_frame
from apps.presentation import table
from apps.widget.pictures import table_view, view_of
from interp.errors import InterpError, InvalidInput

SECTIONS = {
    "head": "One head",
    "composition": "Composition",
    "positions": "Positions",
    "order": "Order",
}
TOP = 8
"""Number of tokens that are listed for each token, and of tokens of the prompt that are."""
LARGE_VOCABULARY = 4096
"""Number of tokens above which the circuits of a head are computed by jobs: all pairs are read."""
MANY_HEADS = 64
"""Number of heads above which their composition is computed by a job."""
OF_PROMPT = " of the prompt"
"""End of the names of questions about tokens of the prompt."""
ORDER_PROMPTS = 8
"""Number of prompts on which order sensitivity is measured."""


def asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The questions of the chosen section."""
    return SECTION_ASKS[view.weights](view, model)


def views(view: View, _model: interp.Transformer, results: Mapping[str, Result]) -> list[ViewData]:
    """The views of the available answers."""
    return [
        {**drawing, "id": f"{circuit}_{drawing['id']}"}
        for name, result in results.items()
        for circuit in [name.removesuffix(OF_PROMPT)]
        if name == circuit or circuit not in results
        for drawing in _until_all(views_of(result, view), is_all=name == circuit)
    ]


def on_pick(view: View, pick: Pick) -> View:
    """Open the head that the labels of the cell name; for a composition, the later head."""
    named = heads_in(str(pick.get("name", "")))
    return replace(view, head=named[-1], weights="head") if named else view


def controls(view: View, model: interp.Transformer) -> None:
    """The choice of the section, and its own settings."""
    choose("Section", "weights", [*SECTIONS], format_func=SECTIONS.__getitem__)
    if view.weights == "head":
        in_layers = enumerate(heads_of(view, model))
        heads = [Head(layer, head) for layer, n in in_layers for head in range(n)]
        choose("Head", "head", heads, widget="selectbox")
        write("Token", "token", help="A single token; if empty, the largest entries are shown.")
    if view.weights == "composition":
        choose(
            "Composition",
            "kind",
            [*KINDS],
            help="Whether the later head reads the earlier one's output in its queries (Q), keys "
            "(K) or values (V).",
        )


# ---- questions -------------------------------------------------------------------------------


def _head_asks(view: View, model: interp.Transformer) -> list[Ask]:
    head, attention = view.head or Head(0, 0), attention_of(view, model)
    is_large = max(map(model.config.vocabulary_of, model.config.stacks)) > LARGE_VOCABULARY
    tokens = {"": (view.token,) if view.token else None}
    in_prompt = () if view.token or not is_large else _tokens_of_prompt(view, model)
    if in_prompt:  # they need no search, so they come first
        tokens = {OF_PROMPT: in_prompt, **tokens}

    def circuit(analysis: Callable[..., Result], tokens: object) -> Question:
        settings = {"tokens": tokens, "top": TOP, "attention": attention}
        return question(analysis, view.model, *head, **settings)

    return [
        ask(f"{name}{of}", partial(circuit, analysis, chosen), long=is_large)
        for of, chosen in tokens.items()
        for name, analysis in (("OV", ov), ("QK", qk))
    ]


def _tokens_of_prompt(view: View, model: interp.Transformer) -> tuple[int, ...]:
    """The ids of the last tokens of the prompt, each once; none if the model can't read it."""
    try:
        text = text_read(view, model, view.text)
        ids = model.batch(text, stack=model.stacks[0].name).ids[0].tolist()
    except InterpError:
        return ()
    return tuple(dict.fromkeys(ids[-TOP:]))


def _composition_asks(view: View, model: interp.Transformer) -> list[Ask]:
    is_long = len(components_of(model).heads) > MANY_HEADS
    return [ask("composition", lambda: question(composition, view.model), long=is_long)]


def _position_asks(view: View, _model: interp.Transformer) -> list[Ask]:
    return [ask("positions", lambda: question(positions, view.model), long=True)]


def _order_asks(view: View, model: interp.Transformer) -> list[Ask]:
    return [
        ask("symmetries", lambda: question(permutation_covariance, view.model), long=True),
        ask("order sensitivity", lambda: _order_question(view, model), long=True),
    ]


def _order_question(view: View, model: interp.Transformer) -> Question:
    """Over the first prompts of the model's set, or the view's prompt if it has none.

    Raises:
        InvalidInput: there is no prompt.
    """
    prompts = tuple(examples(view.model)[:ORDER_PROMPTS])
    if not (prompts or view.text):
        raise InvalidInput(NO_PROMPT)
    batch = Inputs(model, prompts or (prompt_of(view, model),)).batch
    return question(order_sensitivity, view.model, batch)


SECTION_ASKS: dict[str, Callable[[View, interp.Transformer], list[Ask]]] = {
    "head": _head_asks,
    "composition": _composition_asks,
    "positions": _position_asks,
    "order": _order_asks,
}


# ---- views -----------------------------------------------------------------------------------


@singledispatch
def views_of(result: Result, _view: View) -> list[ViewData]:
    """The views of one answer."""
    return [view_of(drawing, name) for name, drawing in result.drawings().items()]


@views_of.register
def _(result: OVCircuit, _view: View) -> list[ViewData]:
    copying = ""
    if result.copying is not None:
        control = result.copying_control
        copying = (
            f"Copying score Σλ/Σ|λ|: {signed(result.copying, 2)}; with permuted outputs "
            f"{signed(control.mean(), 2)} ± {fixed(control.std(), 2)}."
        )
    title = f"{result.name}: singular vectors of OV"
    return [
        {**view_of(result.drawing("out"), "out"), "note": copying},
        view_of(result.drawing("in"), "in"),
        table_view("singular", title, table_of_frame(result.to_singular_frame())),
    ]


@views_of.register
def _(result: QKCircuit, _view: View) -> list[ViewData]:
    by_offset = [view_of(result.offset_drawing(), "offsets")] if len(result.offsets) else []
    spread = f"Standard deviation of all scores by content: {fixed(result.spread, 2)} nats."
    title = f"{result.name}: singular vectors of QK"
    return [
        {**view_of(result.drawing("keys"), "keys"), "note": spread},
        view_of(result.drawing("queries"), "queries"),
        *by_offset,
        table_view("singular", title, table_of_frame(result.to_singular_frame())),
    ]


@views_of.register
def _(result: Composition, view: View) -> list[ViewData]:
    chance = (
        f"The composition of random matrices, {fixed(result.control.nanmean(), 3)} ± "
        f"{fixed(result.spread.nanmean(), 3)}, is subtracted. Click a cell to open its later head."
    )
    return [{**view_of(result.drawing(view.kind), "map"), "note": chance, "pick": "cell"}]


@views_of.register
def _(result: PermutationCovariance, _view: View) -> list[ViewData]:
    title = f"{result.provenance.model}: exact symmetries, and what breaks each"
    return [table_view("table", title, table(result), " ".join(result.notes))]


@views_of.register
def _(result: OrderSensitivity, _view: View) -> list[ViewData]:
    unmoved = (
        "For comparison, s of outputs that do not move with their tokens: "
        f"{fixed(result.unmoved.nanmean(), 2)}. Click a row to open its head."
    )
    return [{**view_of(result.drawing(), "map"), "note": unmoved, "pick": "cell"}]


def _until_all(drawn: list[ViewData], *, is_all: bool) -> list[ViewData]:
    """The views, with a note if they are of the prompt's tokens alone."""
    note = "Tokens of the prompt, until the largest entries of all tokens are found."
    return drawn if is_all else _noted(drawn, f"{note} {drawn[0].get('note', '')}".strip())


def _noted(drawn: list[ViewData], note: str) -> list[ViewData]:
    """The views, the first one with a note."""
    return [{**drawing, "note": note} if n == 0 else drawing for n, drawing in enumerate(drawn)]


WEIGHTS = Page("weights", "Weights", asks, views, on_pick, controls, reads_prompt=False)
