"""Ablation of heads: against brute force, its symmetries, its statistics, and what it refuses."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from declared import Call, Declared, EachPrompt, Symmetric, Without, odd, small

import interp
from analyses import ablate_heads
from analyses.methods.components.gathered import donor_tokens
from analyses.results.effect_text import places_of_effects
from analyses.results.number_text import percent, signed
from interp import PAD, edits
from interp.errors import InvalidInput
from interp.metrics import logit_diff, loss, measure

BOUND = 1e-12


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = interp.Config(
        d_model=16,
        d_vocab=20,
        n_ctx=16,
        decoder=interp.StackConfig(
            n_layers=2,
            attention=interp.AttentionConfig(n_heads=3, d_head=4),
            mlp=interp.MLPConfig(d_mlp=24),
        ),
    )
    built = interp.Transformer(config).double()
    for weight in built.parameters():
        weight.data.add_(0.3 * torch.randn_like(weight))
    return built


@pytest.fixture(scope="module")
def tokens():
    """Five prompts of several lengths."""
    drawn = torch.randint(20, (5, 9), generator=torch.Generator().manual_seed(1))
    drawn[1, 6:] = PAD
    drawn[3, 4:] = PAD
    return drawn


def brute_force(model, tokens, edit_of, metric):
    """One whole forward for each head and each prompt alone."""
    values = torch.empty(2, 3, len(tokens), dtype=torch.float64)
    for row, ids in enumerate(tokens):
        alone = ids[ids != PAD][None]
        for layer in range(2):
            for head in range(3):
                done = interp.run(model, alone, edits=[edit_of(layer, head, row, alone.shape[1])])
                values[layer, head, row] = measure(
                    metric.for_rows([row], len(tokens)), done.logits, done.batch
                )
    return values


@pytest.mark.parametrize("metric", [loss(), logit_diff((1, 2, 3, 4, 5), (6, 7, 8, 9, 10))])
def test_zero_ablation_is_brute_force(model, tokens, metric):
    ablation = ablate_heads(model, tokens, metric=metric, method="zero", rows=2)
    expected = brute_force(
        model, tokens, lambda layer, head, *_: edits.zero("z", layer=layer, head=head), metric
    )
    assert (ablation.ablated - expected).abs().max() <= BOUND


def test_mean_ablation_is_brute_force_with_the_mean_over_real_tokens(model, tokens):
    ablation = ablate_heads(model, tokens, method="mean", rows=3)
    z = [[] for _ in range(2)]
    for ids in tokens:
        cache = interp.run(model, ids[ids != PAD], record="z").cache
        for layer in range(2):
            z[layer].append(cache["z", layer][0])
    means = [torch.cat(rows).mean(0) for rows in z]
    expected = brute_force(
        model,
        tokens,
        lambda layer, head, *_: edits.replace("z", means[layer][head], layer=layer, head=head),
        loss(),
    )
    assert (ablation.ablated - expected).abs().max() <= BOUND


def test_resample_ablation_is_brute_force_with_the_donors(model, tokens):
    ablation = ablate_heads(model, tokens, method="resample", seed=4, rows=2)
    row, column = donor_tokens(tokens != PAD, seed=4)
    caches = [interp.run(model, ids[ids != PAD], record="z").cache for ids in tokens]

    def edit_of(layer, head, prompt, width):
        values = torch.stack(
            [
                caches[int(row[prompt, p])]["z", layer][0, int(column[prompt, p]), head]
                for p in range(width)
            ]
        )
        return edits.replace("z", values, layer=layer, head=head)

    expected = brute_force(model, tokens, edit_of, loss())
    assert (ablation.ablated - expected).abs().max() <= BOUND


@pytest.mark.parametrize("method", ["zero", "mean"])
def test_permuting_prompts_permutes_the_result(model, tokens, method):
    order = torch.tensor([3, 1, 4, 0, 2])
    ablation = ablate_heads(model, tokens[order], method=method)
    assert (
        ablation.effect - ablate_heads(model, tokens, method=method).effect[..., order]
    ).abs().max() <= 1e-10


@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_permuting_heads_permutes_the_result(model, tokens, method):
    moved = interp.Transformer(model.config).double()
    moved.load_state_dict(model.state_dict())
    order = [2, 0, 1]
    with torch.no_grad():
        for new, old in zip(moved.blocks, model.blocks, strict=True):
            for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
                getattr(new.attn, name).copy_(getattr(old.attn, name)[order])
    effect, before = (ablate_heads(m, tokens, method=method).effect for m in (moved, model))
    assert (effect - before[:, order]).abs().max() <= 1e-10
    assert (effect - before).abs().max() > 1e-3


def test_the_side_of_padding_does_not_matter(model, tokens):
    left = torch.full_like(tokens, PAD)
    for row, ids in enumerate(tokens):
        real = ids[ids != PAD]
        left[row, -len(real) :] = real
    ablated, expected = (ablate_heads(model, t, method="resample").ablated for t in (left, tokens))
    assert (ablated - expected).abs().max() <= BOUND


def test_a_head_that_writes_nothing_has_no_effect_and_does_not_matter(model, tokens):
    silent = interp.Transformer(model.config).double()
    silent.load_state_dict(model.state_dict())
    with torch.no_grad():
        silent.blocks[1].attn.W_O[2] = 0
    result = ablate_heads(silent, tokens, method="mean")
    assert result.effect[1, 2].abs().max() <= BOUND
    frame = result.to_frame().set_index("name")
    assert not frame.loc["L1H2", "significant"]
    assert result.effect[1, 1].abs().min() > 1e-3


def test_frames_are_tidy_and_sorted(model, tokens):
    result = ablate_heads(model, tokens, method="zero")
    frame, long = result.to_frame(), result.to_prompt_frame()
    columns = ["layer", "head", "name", "effect", "low", "high", "size", "share"]
    columns += ["n", "p", "q", "significant"]
    assert list(frame.columns) == columns
    assert list(frame["size"]) == sorted(frame["size"], reverse=True)
    assert (len(frame), len(long)) == (6, 30)
    effects = long.groupby(["layer", "head"])["effect"]
    for row in frame.itertuples():
        head_effects = effects.get_group((row.layer, row.head))
        assert row.effect == pytest.approx(head_effects.mean(), abs=1e-12)
        assert row.size == pytest.approx(head_effects.abs().mean(), abs=1e-12)
        assert row.low <= row.effect <= row.high
        assert row.p <= row.q
        assert row.significant == (row.q <= 0.05)
        assert row.n == 5


def test_four_prompts_have_effects_and_sizes_alone(model, tokens):
    result = ablate_heads(model, tokens[:4], method="zero")
    frame = result.to_frame()
    assert frame[["low", "high", "p", "q"]].isna().all(axis=None)
    assert not frame["significant"].any()
    assert frame[["effect", "size"]].notna().all(axis=None)
    assert "fewer than 5 prompts" in result.summary()


def test_an_effect_that_changes_its_sign_is_seen(model, tokens):
    """Its mean cancels, its size does not: it comes first, and does not matter."""
    result = ablate_heads(model, tokens, method="zero")
    ablated = result.ablated.clone()
    ablated[0, 1] = result.clean + torch.tensor([9.0, -9.0, 8.0, -8.0, 0.1])
    first = replace(result, ablated=ablated).to_frame().iloc[0]
    assert first["name"] == "L0H1"
    assert first["size"] == pytest.approx(6.82)
    assert abs(first["effect"]) < 0.1
    assert not first["significant"]


def test_a_head_that_could_not_be_measured_comes_last(model, tokens):
    """A metric that is NaN under an edit is noted by the sweep, and so by the result."""
    result = ablate_heads(model, tokens, method="zero")
    ablated = result.ablated.clone()
    ablated[0, 0, 3] = torch.nan
    with_nan = replace(result, ablated=ablated, notes=("The metric is NaN in 1 cells: …",))
    frame, before = with_nan.to_frame(), result.to_frame()
    last = frame.iloc[-1]
    assert last["name"] == "L0H0"
    assert last[["effect", "low", "high", "size", "p", "q"]].isna().all()
    assert not last["significant"]
    columns = ["name", "effect", "low", "high", "size", "p"]
    rest = before[before["name"] != "L0H0"].reset_index(drop=True)
    pd.testing.assert_frame_equal(frame[columns][:-1], rest[columns])
    assert with_nan.summary().endswith("The metric is NaN in 1 cells: …")


def test_heads_without_any_effect_are_not_counted(model, tokens):
    """Neither among the tests that q corrects for, nor among those named by chance."""
    result = ablate_heads(model, tokens, method="zero")
    ablated = result.clean.expand_as(result.ablated).clone()
    ablated[0, 0] += torch.tensor([1.0, 1.1, 0.9, 1.2, 1.0])
    result = replace(result, ablated=ablated)
    first = result.to_frame().iloc[0]
    assert first["q"] == first["p"] < 0.001
    assert result.expected_by_chance() == pytest.approx(0.05)
    assert "* q ≤ 0.05: 1 of 6 heads" in result.summary()
    assert "L0H0 * +1.04 nats" in result.summary()
    assert "L0H1" not in result.summary()


def test_summary_and_figure_speak_of_the_same_numbers(model, tokens):
    result = ablate_heads(model, tokens, method="zero")
    frame, summary = result.to_frame(), result.summary()
    assert f"* q ≤ 0.05: {frame['significant'].sum()} of 6 heads" in summary
    assert f"{result.clean.mean():.4g} nats" in summary
    lines = summary.splitlines()[1:-1]
    assert [line.split()[0] for line in lines] == frame["name"].tolist()
    for line, row in zip(lines, frame.to_dict("records"), strict=True):
        assert (f"{row['name']} *" in line) == row["significant"]
        assert f" {signed(row['effect'], places_of_effects(frame))} nats" in line
        assert line.endswith(f"  {percent(row['share'])}")
    figure = result.figure()
    heatmap = torch.tensor(figure.data[0].z, dtype=torch.float64)
    assert torch.equal(heatmap, result.effect.mean(-1))
    assert figure.data[0].zmin == -figure.data[0].zmax
    assert "nats" in figure.data[0].colorbar.title.text


def test_a_head_that_helps_has_one_colour_by_any_metric(model, tokens):
    """A scale is reversed where what helps is below zero; its numbers and their signs stay."""
    for metric, helps in ((logit_diff(3, 5), "below"), ("loss", "above"), ("kl", None)):
        result = ablate_heads(model, tokens, metric=metric)
        (heatmap,) = result.figure().data
        assert result.drawing().scale.helps == helps
        assert heatmap.reversescale == (helps == "below")
        assert torch.equal(torch.tensor(heatmap.z, dtype=torch.float64), result.interval().mean)


def test_progress_ends_at_all_heads(model, tokens):
    seen = []
    ablate_heads(model, tokens, rows=2, progress=lambda done, of: seen.append((done, of)))
    assert seen[-1] == (6, 6)
    assert seen == sorted(seen)


def test_provenance_knows_model_and_tokens(model, tokens):
    whole, part = ablate_heads(model, tokens), ablate_heads(model, tokens[:3])
    assert whole.provenance.weights == part.provenance.weights
    assert whole.provenance.tokens != part.provenance.tokens
    changed = interp.Transformer(model.config).double()
    assert ablate_heads(changed, tokens).provenance.weights != whole.provenance.weights


def test_what_it_refuses(model, tokens):
    with pytest.raises(InvalidInput, match="zero, mean, resample"):
        ablate_heads(model, tokens, method="one")
    with pytest.raises(InvalidInput, match="should be"):
        ablate_heads(model, tokens, metric="los")
    with pytest.raises(InvalidInput, match="at least two"):
        ablate_heads(model, tokens[:1], method="resample")
    with pytest.raises(InvalidInput, match="2 targets were given for 5"):
        ablate_heads(model, tokens, metric=logit_diff((1, 2), (3, 4)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_reference_keeps_its_place_beside_padded_prompts(model, side):
    """KL to the clean logits is zero for the clean model, wherever padding is."""
    padded = torch.tensor([[PAD, PAD, 1, 2, 3], [4, 5, 6, 7, 8]])
    padded = padded if side == "left" else padded.flip(-1)
    result = ablate_heads(model, padded, metric=interp.metrics.kl(model(padded)), method="zero")
    assert result.clean.abs().max() <= BOUND
    assert result.effect.min() > 0


def test_the_loss_of_an_encoder_is_refused(model):
    config = interp.Config(d_model=16, d_vocab=20, n_ctx=16, encoder=model.config.decoder)
    with pytest.raises(InvalidInput, match="loss is of next tokens"):
        ablate_heads(interp.Transformer(config), torch.tensor([[1, 2]]), method="zero")


@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_what_was_stopped_goes_on_where_it_was(model, tokens, method):
    def stop(done, of):
        if done >= of // 2:
            raise KeyboardInterrupt

    settings = {"method": method, "memory": 60_000.0}
    with pytest.raises(interp.Interrupted) as caught:
        ablate_heads(model, tokens, progress=stop, **settings)
    begun = caught.value.result
    assert 0 < begun.done.sum() < begun.done.numel()
    left, whole = [], []
    again = ablate_heads(
        model, tokens, resume=begun, progress=lambda *at: left.append(at), **settings
    )
    expected = ablate_heads(model, tokens, progress=lambda *at: whole.append(at), **settings)
    assert len(left) < len(whole)
    assert torch.equal(again.ablated, expected.ablated)
    with pytest.raises(InvalidInput):
        ablate_heads(model, tokens[:, :5], resume=begun, **settings)


@pytest.mark.parametrize("n", [1, 4])
def test_few_prompts_are_listed_by_size(model, tokens, n):
    """Without intervals or marks, and with as many heads as many prompts list."""
    result = ablate_heads(model, tokens[:n], method="zero")
    first, *lines, last = result.summary().splitlines()
    assert f"on {'1 prompt' if n == 1 else '4 prompts'}; largest effect of 6 heads" in first
    assert [line.split()[0] for line in lines] == result.to_frame()["name"].tolist()
    assert not any("*" in line or "[" in line for line in lines)
    assert last.startswith("no intervals and no significance with fewer than 5 prompts")


def test_the_share_is_of_the_metric(model, tokens):
    """Of its mean size; NaN where that is zero, as for a divergence from itself."""
    result = ablate_heads(model, tokens, method="zero")
    frame = result.to_frame()
    expected = frame["size"] / float(result.clean.abs().mean())
    pd.testing.assert_series_equal(frame["share"], expected, check_names=False)
    divergence = ablate_heads(model, tokens, metric="kl", method="zero")
    assert divergence.to_frame()["share"].isna().all()
    assert "%" not in divergence.summary()


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n, method="zero", **settings):
    metric = interp.metrics.logit(3)
    result = ablate_heads(model, prompts, metric=metric, method=method, **settings)
    return [{"clean": result.clean[i], "ablated": result.ablated[..., i]} for i in range(n)]


DECLARED = Declared(
    analysis=ablate_heads,
    made=Without("its result is that of ablate"),
    call=Call(
        (small.MODEL, small.CLEAN),
        small.METRIC,
        {"metric": odd.CHOICE, "method": odd.CHOICE, **odd.SAMPLED, **odd.SWEPT},
    ),
    command=Without("the command ablate is that of ablate"),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair=Without("it takes models with one stack"),
    symmetric=Symmetric({"": lambda case: ablate_heads(case.model, case.clean, metric="kl")}),
)
