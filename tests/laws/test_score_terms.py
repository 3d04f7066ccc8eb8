"""A score is the sum of the terms of all pairs of writers, on every architecture and attention."""

import pytest
import torch
from architectures import ARCHITECTURES, GRIDS, IMAGES, build, covering, padded, tokens_of

from analyses import explain_scores
from analyses.methods.attribution import Head, PromptScores
from analyses.methods.heads import every_attention
from interp import Transformer, run

BOUND = 1e-10
OTHERS = {"images": IMAGES, **GRIDS}


def prompts_of(model: Transformer, name: str):
    if name in OTHERS:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(2, 2, 4, 6, generator=generator, dtype=torch.float64)
    tokens = tokens_of(name)
    return tokens if len(tokens) > 1 else tokens[0]


def scores_of(model: Transformer, prompts, layer: int, head: int, attention) -> PromptScores:
    of = Head.of(model, layer, head, attention)
    batches = model.batches(prompts)
    cache = run(model, *batches, record=of.places, stop_at_layer=of.stop_at_layer).cache
    return PromptScores(of, cache, batches, 1)


@torch.no_grad()
@pytest.mark.parametrize("name", covering([*ARCHITECTURES, *OTHERS], [*ARCHITECTURES, *OTHERS]))
def test_the_terms_of_all_pairs_sum_to_the_score(name):
    """cap(Σ_ab q_a·k_b) + bias is the recorded score of every cell that is not masked.

    The converse: without any one vector, some score differs.
    """
    model = build(OTHERS.get(name, name))
    prompts = prompts_of(model, name)
    for kind in every_attention(model):
        layer, head = len(kind.layers) - 1, kind.layers[-1].n_heads - 1
        attn = kind.layers[layer]
        of = scores_of(model, prompts, layer, head, kind.name)
        place = of.head.place(attn.points.scores)
        recorded = run(model, *model.batches(prompts), record=place).cache[place][1, head]
        query, key = of.query_vectors(torch.arange(len(recorded))), of.key_vectors()
        total = sum(query.values()) @ sum(key.values()).T
        seen = recorded.isfinite()
        error = (attn.soft_cap(total) + of.bias - recorded)[seen].abs().max()
        assert error <= BOUND * recorded[seen].abs().max()
        assert (of.visible == seen).all()
        for side, other in ((query, key), (key, query)):
            for vector in side.values():
                assert (vector @ sum(other.values()).T).abs().max() > 1e-9


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_the_explained_contrast_is_that_of_the_recorded_scores(name):
    """value = s(q, k) − Σ_other A s / Σ_other A, for the first head of the last layer."""
    model = build(name)
    prompts = prompts_of(model, name)
    for kind in every_attention(model):
        result = explain_scores(model, prompts, -1, 0, attention=kind.name, check=0)
        assert result.error <= BOUND * result.effect.abs().sum((0, 1)).max()
        attn = kind.layers[-1]
        places = [
            scores_of(model, prompts, -1, 0, kind.name).head.place(point)
            for point in (attn.points.scores, attn.points.pattern)
        ]
        cache = run(model, *model.batches(prompts), record=places).cache
        scores, pattern = (cache[place][:, 0, -1] for place in places)
        if result.soft_cap is not None:
            scores = result.soft_cap * (scores / result.soft_cap).atanh()
        for prompt, key in enumerate(result.cells["key"]):
            assert key == pattern[prompt].argmax()
            others = pattern[prompt].clone()
            others[key] = 0
            s = scores[prompt].masked_fill(others == 0, 0)
            expected = scores[prompt, key] - (others * s).sum() / others.sum()
            assert abs(result.value[prompt] - expected) <= BOUND * scores.abs().nan_to_num(
                posinf=0
            ).max().clamp(min=1)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_term(side):
    model = build("llama")
    rows = [torch.tensor([1, 2, 3, 4, 2]), torch.tensor([5, 6, 5])]
    together = explain_scores(model, padded(rows, side), 1, 2, query=-1, key=0)
    for prompt, row in enumerate(rows):
        alone = explain_scores(model, row[None], 1, 2, query=-1, key=0)
        torch.testing.assert_close(
            together.effect[..., prompt], alone.effect[..., 0], rtol=0, atol=1e-12
        )
