"""The pattern that is shown is the one that the model forms."""

import pandas as pd
import pytest
import torch
from architectures import assert_close
from declared import Call, Declared, EachPrompt, Made, Symmetric, Without, example, odd, small
from declared.prompts import row_of

import interp
from analyses import attention_pattern, attention_patterns, attention_statistics
from analyses.methods.heads import attention_averages
from interp.config import AttentionConfig, NormConfig, PositionsConfig, StackConfig
from interp.errors import InvalidInput


@pytest.fixture(scope="module")
def model():
    return interp.load("induction-by-hand")


def test_the_induction_head_looks_at_the_token_after_the_earlier_one(model):
    head_pattern = attention_pattern(model, "QxmQ", layer=1, head=0)
    assert head_pattern.query_tokens == head_pattern.key_tokens == ("<|bos|>", "Q", "x", "m", "Q")
    assert head_pattern.pattern[4].argmax() == 2
    assert head_pattern.pattern[4, 2] > 0.99
    assert torch.allclose(head_pattern.pattern.sum(-1), torch.ones(5))


def test_it_is_the_models_own_pattern(model):
    ids = model.to_tokens("abcab")
    stored = interp.run(model, ids, record="pattern", kernel="explicit").cache["pattern", 0]
    assert torch.allclose(
        attention_pattern(model, "abcab", -2, -4).pattern, stored[0, 0], atol=1e-6
    )


def test_frame_figure_and_summary(model):
    head_pattern = attention_pattern(model, "aba", 0, 0)
    frame = head_pattern.to_frame()
    assert len(frame) == 16
    cell = frame[(frame["query"] == 2) & (frame["key"] == 1)].iloc[0]
    assert (cell["query_token"], cell["key_token"]) == ("b", "a")
    assert cell["pattern"] == pytest.approx(1.0)
    figure = head_pattern.figure()
    assert figure.layout.title.text == "Attention of L0H0"
    assert list(figure.layout.xaxis.ticktext) == ["&lt;|bos|&gt;", "a", "b", "a"]
    assert (figure.data[0].zmin, figure.data[0].zmax) == (0.0, 1.0)
    assert "L0H0" in head_pattern.summary()


def test_what_it_refuses(model):
    with pytest.raises(InvalidInput, match=r"head=4 must be .* from -4 to 3"):
        attention_pattern(model, "ab", 0, 4)
    with pytest.raises(InvalidInput, match=r"layer=7 must be .* from -2 to 1"):
        attention_pattern(model, "ab", 7, 0)
    with pytest.raises(InvalidInput, match="one prompt"):
        attention_pattern(model, ["ab", "cd"], 0, 0)


def test_norms_of_outputs_are_those_by_the_factor(monkeypatch):
    """Of few positions x W_O is multiplied out, of many the factor of W_O is."""
    attn = interp.load("python-2l").double().blocks[0].attn
    shape = (2, 5, attn.n_heads, attn.d_head)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    multiplied_out = attention_averages.output_norms(attn, x)
    monkeypatch.setattr(attention_averages, "MULTIPLIED_OUT", 0)
    by_factor = attention_averages.output_norms(attn, x)
    assert_close(multiplied_out, by_factor)
    assert not by_factor.equal(multiplied_out)


class TestAllHeads:
    """One forward gives the patterns of all heads; those of a head are the same numbers."""

    def test_each_is_that_of_its_head(self, model):
        heads = attention_patterns(model, "QxmQ")
        assert [pattern.shape for pattern in heads.patterns] == [(4, 5, 5), (4, 5, 5)]
        for layer, head in ((0, 0), (1, 0), (1, 3)):
            alone = attention_pattern(model, "QxmQ", layer, head)
            assert torch.equal(heads.patterns[layer][head], alone.pattern)
            assert heads.of(layer, head).to_frame().equals(alone.to_frame())
        assert heads.query_ids == heads.key_ids == tuple(model.to_tokens("QxmQ")[0].tolist())
        assert heads.is_causal

    def test_an_encoder_is_not_causal(self):
        encoder = interp.load("python-mlm")
        heads = attention_patterns(encoder, "    for x<|mask|>")
        assert not heads.is_causal
        assert (heads.patterns[0].triu(1) > 0).any()

    def test_weighted_they_are_what_the_statistics_average(self):
        """Masses on BOS and on the token before, of the value-weighted patterns."""
        model = interp.load("python-2l")
        means = attention_statistics(model, ["import os"])
        for weighted, name in ((False, "attention"), (True, "value-weighted")):
            patterns = torch.stack(
                attention_patterns(model, "import os", weighted=weighted).patterns
            )
            expected = {
                "bos": patterns[..., 1:, 0].mean(-1),
                "previous": patterns.diagonal(-1, -2, -1).mean(-1),
            }
            for statistic, mean in expected.items():
                assert torch.allclose(means.of(statistic, name), mean, atol=1e-6)
            assert torch.allclose(patterns.sum(-1), torch.ones(()), atol=1e-6)

    def test_a_head_without_values_moves_nothing(self, model):
        plain, weighted = (
            attention_patterns(model, "aba", weighted=is_weighted) for is_weighted in (False, True)
        )
        assert not weighted.patterns[1][1:].any()
        assert plain.patterns[1][1:].any()

    @pytest.mark.parametrize("method", ["zero", "mean"])
    def test_with_heads_ablated_they_are_those_of_a_run_without_what_these_write(self, method):
        """Against the softmax over plain products of the stream without the head's output.

        The patterns of its own layer do not change.
        """
        torch.manual_seed(0)
        stack = StackConfig(
            2, AttentionConfig(3, 4), norm=NormConfig("none"), positions=PositionsConfig("none")
        )
        model = interp.Transformer(interp.Config(12, 9, 8, decoder=stack)).double()
        ids = torch.tensor([[1, 5, 2, 7, 3]])
        plain = attention_patterns(model, ids)
        ablated = attention_patterns(model, ids, ablate=["L0H2"], method=method)
        cache = interp.run(model, ids, record="all").cache
        z = cache["z", 0][0, :, 2]
        lost = z if method == "zero" else z - z.mean(0)
        x = cache["resid_post", 0][0] - lost @ model.blocks[0].attn.W_O[2]
        attn = model.blocks[1].attn
        q, k = (
            torch.einsum("pm,hmd->hpd", x, W) + b[:, None]
            for W, b in ((attn.W_Q, attn.b_Q), (attn.W_K, attn.b_K))
        )
        late = torch.ones(5, 5).triu(1).bool()
        expected = (q @ k.mT / 2).masked_fill(late, -torch.inf).softmax(-1)
        torch.testing.assert_close(ablated.patterns[1], expected, rtol=0, atol=1e-12)
        assert torch.equal(ablated.patterns[0], plain.patterns[0])
        assert (ablated.patterns[1] - plain.patterns[1]).abs().max() > 1e-6
        assert f"L0H2 ablated ({method})" in ablated.headline()
        assert "ablated" not in plain.headline()

    def test_frame_figure_and_summary(self, model):
        heads = attention_patterns(model, "aba")
        assert len(heads.to_frame()) == 8 * 16
        figure = heads.figure()
        assert list(figure.layout.yaxis.ticktext)[-1] == "L1H3"
        assert figure.data[0].zmax == 1.0
        assert figure.data[0].text[0][2] == "a"  # L0H0 attends to the token before
        assert "L0H0" in heads.summary()
        assert "value-weighted" in attention_patterns(model, "aba", weighted=True).summary()


class TestEncoderDecoder:
    """A pair has three attentions; the cross-attention looks from the decoder to the encoder."""

    @pytest.fixture(scope="class")
    @classmethod
    def dates(cls):
        return interp.load("dates")

    @pytest.fixture(scope="class")
    @classmethod
    def ids(cls, dates):
        source = dates.to_tokens("3 March 2021")
        return source, dates.generate(source, max_new_tokens=11)

    def test_each_is_the_models_own(self, dates, ids):
        cache = interp.run(dates, *ids, record="all").cache
        for attention, name in (
            ("encoder", ("pattern", 1, "encoder")),
            ("decoder", ("pattern", 1, "decoder")),
            ("cross", ("cross_pattern", 1)),
        ):
            head_pattern = attention_pattern(
                dates, ids[0], 1, 2, target=ids[1], attention=attention
            )
            assert torch.equal(head_pattern.pattern, cache[name][0, 2])
            assert head_pattern.pattern.shape == (
                len(head_pattern.query_tokens),
                len(head_pattern.key_tokens),
            )

    def test_the_year_is_read_where_it_is_written(self, dates, ids):
        head = interp.card("dates").figures["cross-attention head that aligns the year best"]
        layer, head = (int(number) for number in head[1:].split("H"))
        head_pattern = attention_pattern(
            dates, "3 March 2021", layer, head, target=ids[1], attention="cross"
        )
        assert head_pattern.key_tokens == ("3", "·", "March", "·", "2", "0", "2", "1", "<|end|>")
        assert head_pattern.query_tokens[:5] == ("<|start|>", "2", "0", "2", "1")
        assert head_pattern.pattern[:4, 4:8].sum(-1).mean() > 0.8
        assert head_pattern.name == f"cross.L{layer}H{head}"
        frame = head_pattern.to_frame()
        assert len(frame) == 12 * 9
        cell = frame[(frame["query"] == 1) & (frame["key"] == 2)].iloc[0]
        assert (cell["query_token"], cell["key_token"]) == ("2", "March")
        assert cell["pattern"] == pytest.approx(head_pattern.pattern[1, 2].item())
        figure = head_pattern.figure()
        assert list(figure.layout.yaxis.ticktext) == [
            label.replace("<", "&lt;").replace(">", "&gt;") for label in head_pattern.query_tokens
        ]
        assert "March" in head_pattern.summary()

    def test_all_heads_of_each(self, dates, ids):
        for attention, causal in (("encoder", False), ("decoder", True), ("cross", False)):
            kind = {"target": ids[1], "attention": attention}
            heads = attention_patterns(dates, ids[0], **kind)
            alone = attention_pattern(dates, ids[0], 1, 2, **kind)
            assert torch.equal(heads.patterns[1][2], alone.pattern)
            assert (heads.query_tokens, heads.key_tokens) == (alone.query_tokens, alone.key_tokens)
            assert heads.is_causal == causal
        assert heads.query_ids == tuple(ids[1][0].tolist())
        assert heads.key_ids == tuple(ids[0][0].tolist())

    def test_a_target_of_text_begins_at_the_start_token(self, dates, ids):
        """As the decoder was trained to read it: no query is shifted."""
        cross = {"attention": "cross"}
        head_pattern = attention_pattern(dates, "3 March 2021", 1, 0, target="2021-03-03", **cross)
        assert head_pattern.query_tokens == ("<|start|>", *"2021-03-03")
        whole = attention_pattern(dates, ids[0], 1, 0, target=ids[1], **cross)
        assert torch.allclose(head_pattern.pattern, whole.pattern[:11], atol=1e-6)

    def test_missing_and_invalid_arguments_are_refused(self, dates, ids, model):
        with pytest.raises(InvalidInput, match="needs target= and attention="):
            attention_pattern(dates, ids[0], 0, 0)
        with pytest.raises(InvalidInput, match="needs target= and attention="):
            attention_pattern(dates, ids[0], 0, 0, target=ids[1])
        with pytest.raises(InvalidInput, match="this model has one stack"):
            attention_pattern(model, "ab", 0, 0, attention="cross")
        two = [prompt.repeat(2, 1) for prompt in ids]
        with pytest.raises(InvalidInput, match="one prompt"):
            attention_pattern(dates, two[0], 0, 0, target=two[1], attention="cross")
        with pytest.raises(InvalidInput, match="layer=7 must be"):
            attention_pattern(dates, ids[0], 7, 0, target=ids[1], attention="cross")


# ---- declared for the tests of all analyses -------------------------------------------------


def pattern_of_prompts(model, prompts, n):
    results = [attention_pattern(model, row_of(prompts, i), 1, 2) for i in range(n)]
    assert all(
        result.pattern.shape == (len(result.query_tokens), len(result.key_tokens))
        for result in results
    )
    return [{"pattern": result.pattern} for result in results]


def patterns_of_prompts(model, prompts, n):
    results = [attention_patterns(model, row_of(prompts, i), weighted=True) for i in range(n)]
    for result in results:
        assert {pattern.shape[1:] for pattern in result.patterns} == {
            (len(result.query_tokens), len(result.key_tokens))
        }
    return [
        {f"layer {n}": pattern for n, pattern in enumerate(result.patterns)} for result in results
    ]


def pattern_of_pairs(attention):
    def numbers(model, pair, n):
        rows = [[row_of(prompts, i) for prompts in pair] for i in range(n)]
        results = [
            attention_pattern(model, source, 0, 2, target=target, attention=attention)
            for source, target in rows
        ]
        return [{"pattern": result.pattern} for result in results]

    return numbers


def of_each_head(case):
    """Of every head of a layer on every prompt."""
    frames = [
        attention_pattern(case.model, case.clean[n : n + 1], 1, head).to_frame().assign(prompt=n)
        for n in range(len(case.clean))
        for head in range(case.model.blocks[1].attn.n_heads)
    ]
    return {"patterns": pd.concat(frames)}


def of_all_heads(case):
    """Of every head of every layer on every prompt, by attention and by values."""
    frames = {
        weighted: [
            attention_patterns(case.model, case.clean[n : n + 1], weighted=weighted)
            .to_frame()
            .assign(prompt=n)
            for n in range(len(case.clean))
        ]
        for weighted in (False, True)
    }
    return {f"weighted {name}": pd.concat(parts) for name, parts in frames.items()}


DECLARED = (
    Declared(
        analysis=attention_pattern,
        made=Made(lambda: attention_pattern(example.model(), "abcab", 1, 0)),
        call=Call(
            (small.MODEL, small.CLEAN[:1]),
            {"layer": 0, "head": 0},
            {
                **dict.fromkeys(("layer", "head"), odd.INDEX),
                "attention": odd.CHOICE,
                "target": odd.SOMETHING,
            },
        ),
        command=Without("the explorer shows it"),
        of_each_prompt=EachPrompt(pattern_of_prompts),
        of_each_pair={kind: pattern_of_pairs(kind) for kind in ("encoder", "decoder", "cross")},
        symmetric=Symmetric({"": of_each_head}),
    ),
    Declared(
        analysis=attention_patterns,
        made=Made(lambda: attention_patterns(example.model(), "abcab")),
        call=Call(
            (small.MODEL, small.CLEAN[:1]),
            {},
            {
                **{"attention": odd.CHOICE, "target": odd.SOMETHING, "weighted": odd.SWITCH},
                "ablate": (
                    *(odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING),
                    *(["L9H0"], ["L0H0", "L0H0"], [odd.TEXT]),
                ),
                "method": (*odd.CHOICE, odd.NOTHING),
                "seed": odd.SEED,
            },
        ),
        command=Without("the explorer shows it"),
        of_each_prompt=EachPrompt(patterns_of_prompts),
        of_each_pair=Without("a test of this file compares it with attention_pattern"),
        symmetric=Symmetric({"": of_all_heads}),
    ),
)
