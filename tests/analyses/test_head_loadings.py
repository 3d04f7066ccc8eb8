"""Which heads carry what a part wrote at one position to a reader at another."""

from dataclasses import replace

import pytest
import torch
from architectures import ARCHITECTURES, as_where, build, tokens_of
from declared import Call, Declared, EachPrompt, Made, Symmetric, Without, example, odd, small

from analyses import explain_scores, head_loadings
from interp import Place, Point, Transformer, edits, run
from interp.errors import InvalidInput, UnknownPlace

BOUND = 1e-10
AT, POS, OTHER = 1, 3, 2
SCALES = {Point.SCALE, Point.FINAL_SCALE, Point.EMBED_SCALE, Point.Q_SCALE, Point.K_SCALE}
REMOVED = {
    "embed": edits.zero("embed", pos=AT),
    "L0H1": edits.zero("z", layer=0, head=1, pos=AT),
    "L0MLP": edits.zero("post", layer=0, pos=AT),
}
SETTINGS = {
    "logits": {"target": 3, "distractor": 5},
    "L2H1.q": {"other": OTHER},
    "L2H1.k": {"other": 4},
    "L2N3": {},
}


def three_layers(name: str) -> Transformer:
    """The architecture with a third layer, so that one head reads what another carried."""
    config = ARCHITECTURES[name]
    side = "decoder" if config.decoder is not None else "encoder"
    return build(replace(config, **{side: replace(getattr(config, side), n_layers=3)}))


def what_is_read(model: Transformer, reader: str, tokens, made) -> torch.Tensor:
    """A reader's number on each prompt, from a run with edits."""
    record = {"logits": None, "L2N3": ("pre", 2)}.get(reader, ("scores", 2))
    done = run(model, tokens, record=record, edits=made)
    if reader == "logits":
        return done.logits[:, POS, 3] - done.logits[:, POS, 5]
    if reader == "L2N3":
        return done.cache[record][:, POS, 3]
    query, key = (POS, OTHER) if reader.endswith("q") else (4, POS)
    return done.cache[record][:, 1, query, key]


def frozen(model: Transformer, tokens, reader: str, source: str) -> list[edits.Edit]:
    """Edits that hold patterns, divisors, MLPs but the source, and a score's other end."""
    fixed = SCALES | {Point.PATTERN, Point.MLP_OUT}
    other_end = {"L2H1.q": Point.K, "L2H1.k": Point.Q}.get(reader)
    places = [
        place
        for place in model.layout
        if (place.point in fixed and (source, place) != ("L0MLP", Place(Point.MLP_OUT, 0)))
        or (place.point is other_end and place.layer == 2)
    ]
    cache = run(model, tokens, record=places).cache
    return [edits.replace(as_where(place), cache[place]) for place in places]


CASES = [
    (name, source, reader)
    for name, sources, readers in (
        ("gpt2", REMOVED, SETTINGS),
        ("llama", REMOVED, SETTINGS),
        ("neox", REMOVED, ["logits", "L2H1.q", "L2N3"]),
        ("opt-post", REMOVED, SETTINGS),
        ("bloom-stream", REMOVED, ["logits", "L2H1.k"]),
        ("phi", ["embed", "L0H1"], ["L2H1.q", "L2H1.k"]),
        ("cohere", ["embed"], ["L2H1.q", "L2H1.k"]),
        ("gpt-oss", ["L0H1"], ["logits", "L2H1.k"]),
        ("granite-moe", ["L0H1"], ["logits"]),
        ("bert", ["L0H1"], ["L2H1.q"]),
    )
    for source in sources
    for reader in readers
]


@pytest.mark.parametrize(("name", "source", "reader"), CASES)
def test_loadings_sum_to_what_a_frozen_model_loses_without_the_source(name, source, reader):
    """All is linear with patterns, divisors and MLPs held by edits; the edge is measured so."""
    model, tokens = three_layers(name), tokens_of(name)[0]
    result = head_loadings(
        model, tokens, source, reader, source_pos=AT, pos=POS, **SETTINGS[reader]
    )
    cache = frozen(model, tokens, reader, source)
    without = what_is_read(model, reader, tokens, [*cache, REMOVED[source]])
    edge = what_is_read(model, reader, tokens, cache) - without
    assert (result.value - edge.detach()).abs().max() <= BOUND * edge.abs().max().clamp(min=1)
    assert result.error <= BOUND * result.effect.abs().sum(0).max().clamp(min=1)
    assert result.effect[:-1].abs().max() > 1e-6
    if source == "embed" or reader == "logits":  # two attentions on the way
        assert (result.effect - result.direct).abs().max() > 1e-6


def test_removing_the_source_from_one_head_alone_is_its_direct_loading():
    """The head reads the source's output at its position: an edge edit of the values, frozen."""
    model, tokens = build("gpt2"), tokens_of("gpt2")[0]
    result = head_loadings(
        model, tokens, "L0H1", "logits", source_pos=AT, pos=POS, **SETTINGS["logits"]
    )
    cache = frozen(model, tokens, "logits", "L0H1")
    v = run(model, tokens, record=[("v", 1), ("scale", 1, "ln1"), "result"]).cache
    ln1, attn = model.blocks[1].ln1, model.blocks[1].attn
    u = v["result", 0][:, AT, 1]
    for head in range(3):
        read = ln1.centred(u) / v["scale", 1, "ln1"][:, AT] * ln1.gain @ attn.W_V[head]
        less = edits.add("v", -read.detach(), layer=1, head=head, pos=AT)
        change = what_is_read(model, "logits", tokens, cache) - what_is_read(
            model, "logits", tokens, [*cache, less]
        )
        row = result.names.index(f"L1H{head}")
        assert (result.direct[row] - change.detach()).abs().max() < BOUND


def test_at_one_position_the_bypass_is_the_term_of_the_score():
    """The residual stream alone carries the row of explain_scores, which has direct terms."""
    model, tokens = build("gpt2"), tokens_of("gpt2")[0]
    result = head_loadings(model, tokens, "L0H1", "L1H1.q", source_pos=POS, pos=POS, other=OTHER)
    terms = explain_scores(model, tokens, 1, 1, query=POS, key=OTHER, against="nothing")
    row = terms.effect[terms.query_writers.index("L0H1")].sum(0)
    assert result.names[-1] == "bypass"
    assert (result.effect[-1] - row).abs().max() < BOUND
    elsewhere = head_loadings(model, tokens, "L0H1", "L1H1.q", source_pos=0, pos=POS, other=OTHER)
    assert elsewhere.effect[-1].abs().max() == 0


def test_induction_by_hand_carries_the_earlier_token_to_the_key():
    """The previous-token head alone brings the token before to what the induction head matches."""
    model = example.model()
    result = head_loadings(model, "abcab", "embed", "L1H0.k", source_pos=1, pos=2, other=4)
    assert result.to_frame()["name"][0] == "L0H0"
    assert result.effect[0] == result.value == pytest.approx(100)
    assert "embed → L1H0.k +100.00 nats on 1 prompt: L0H0 +100.00 (100 %)" in result.headline()
    later = head_loadings(model, "abcab", "embed", "L1H0.k", source_pos=3, pos=2, other=4)
    assert later.value == 0
    assert "nothing carries it" in later.headline()


@pytest.mark.parametrize(
    ("names", "settings", "error", "reason"),
    [
        (("L0H9", "logits"), {"target": 1}, UnknownPlace, "names no head, MLP or embedding"),
        (("embed", "L1H0.v"), {}, UnknownPlace, "should be logits, one end of a head's score"),
        (("embed", "logits"), {}, InvalidInput, "target= is the token"),
        (("embed", "L1N0"), {"target": 1}, InvalidInput, "target= is the token"),
        (("embed", "L1H0.q"), {}, InvalidInput, "other= is the position"),
        (("embed", "L1H0.q"), {"other": 4}, InvalidInput, "Key 4 of prompt 0 is masked"),
        (("embed", "L1H7.q"), {"other": 1}, InvalidInput, "head=7"),
        (("embed", "L2N0"), {}, InvalidInput, "the layer of reader=2"),
        (("embed", "L1N99"), {}, InvalidInput, "the neuron of reader=99"),
        (("L1H0", "L0H0.q"), {"other": 0}, InvalidInput, "before the source writes"),
        (("embed", "L1N0"), {"source_pos": 9}, InvalidInput, "position 9 in prompt 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(names, settings, error, reason):
    with pytest.raises(error, match=reason):
        head_loadings(
            build("gpt2"), tokens_of("gpt2")[0], *names, **{"source_pos": 0, "pos": 3, **settings}
        )


def test_values_that_are_clipped_are_refused():
    with pytest.raises(InvalidInput, match="clips its values"):
        head_loadings(build("olmo"), tokens_of("olmo")[0], "embed", "L1N0", source_pos=0)


# ---- declared for the tests of all analyses -----------------------------------------------------


def numbers_of_prompts(model, prompts, n):
    prefix = "decoder." if len(model.stacks) > 1 else ""
    result = head_loadings(
        model, prompts, f"{prefix}L0H0", f"{prefix}L1H0.q", source_pos=0, pos=1, other=0
    )
    return [{"effect": result.effect[:, i], "direct": result.direct[:, i]} for i in range(n)]


DECLARED = Declared(
    analysis=head_loadings,
    made=Made(
        lambda: head_loadings(
            example.model(),
            ["abcab", "xyxyz", "abxab", "abcac", "pqrpq"],
            "embed",
            "L1H0.k",
            source_pos=1,
            pos=2,
            other=4,
        )
    ),
    call=Call(
        (small.MODEL, small.CLEAN, "embed", "logits"),
        {"source_pos": 0, "target": 1},
        {
            "source": (odd.TEXT, odd.BELOW, odd.LISTED, odd.NOTHING),
            "reader": (odd.TEXT, odd.BELOW, odd.LISTED, odd.NOTHING),
            "source_pos": (odd.TEXT, odd.BROKEN, odd.LISTED, True, 99),
            "pos": (odd.TEXT, odd.BROKEN, odd.LISTED, True, 99),
            "other": (odd.TEXT, odd.BROKEN, odd.LISTED, True, 99),
            "target": (*odd.TOKEN, odd.NOTHING),
            "distractor": odd.TOKEN,
        },
    ),
    command=Without("an edge is named by parts and positions, which differ from prompt to prompt"),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={"": numbers_of_prompts},
    symmetric=Symmetric(
        {
            "": lambda case: head_loadings(
                case.model,
                case.clean,
                "embed",
                "logits",
                source_pos=0,
                target=case.target,
                distractor=case.distractor,
            )
        }
    ),
)
