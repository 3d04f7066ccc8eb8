"""Image patches and token types: the laws hold whatever a stack reads."""

from dataclasses import replace

import pytest
import torch
from architectures import (
    D_MODEL,
    GRIDS,
    HEADLESS,
    PLAIN,
    POOLED_IMAGES,
    assert_close,
    assert_identical,
    build,
    build_new,
    distance,
    tokens_of,
)

import analyses
from analyses import verify
from interp import (
    PAD,
    Config,
    EmbeddingConfig,
    MLPConfig,
    NormConfig,
    PatchConfig,
    PositionsConfig,
    StackConfig,
    edits,
    metrics,
    run,
    sweep,
)
from interp.errors import InvalidInput, InvalidTokens

CLASSES = 7
PATCHES = PatchConfig(4, 6, 2, channels=2, n_special=2)


def seeing(placement: str = "pre", positions: str = "learned") -> Config:
    stack = StackConfig(
        2,
        PLAIN,
        MLPConfig(10),
        NormConfig(placement=placement),
        PositionsConfig(positions),
        EmbeddingConfig(patches=PATCHES),
    )
    return Config(D_MODEL, CLASSES, 8, encoder=stack, bias_u=True)


def images(batch: int = 3, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 2, 4, 6, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    "config",
    [seeing(), seeing("post", "none"), POOLED_IMAGES, *GRIDS.values()],
    ids=["vit", "post", "siglip", *GRIDS],
)
def test_a_model_that_sees_obeys_every_identity(config):
    identities = verify(build(config))
    assert len(identities) >= 8
    assert [identity for identity in identities if not identity.holds] == []


def test_a_model_without_logits_obeys_every_identity():
    identities = verify(build(HEADLESS))
    assert len(identities) >= 9
    assert [identity for identity in identities if not identity.holds] == []


def test_a_square_is_read_by_one_matrix():
    """embed = W · pixels of the patch + b, row by row, after the learned tokens."""
    model, pixels = build(seeing()), images()
    embed, patches = run(model, pixels, record="embed").cache["embed"], model.stacks[0].tokens
    assert_identical(embed[:, :2], patches.special.expand(3, -1, -1))
    for index, (row, column) in enumerate([(0, 0), (0, 2), (0, 4), (2, 0), (2, 2), (2, 4)]):
        square = pixels[:, :, row : row + 2, column : column + 2].flatten(1)
        assert_close(embed[:, 2 + index], square @ patches.weight.T + patches.bias)


def test_patches_may_be_all_there_is():
    """embed = W · pixels of the patch, for six patches."""
    model, pixels = build(POOLED_IMAGES), images()
    embed, patches = run(model, pixels, record="embed").cache["embed"], model.stacks[0].tokens
    assert patches.bias is None
    assert patches.special is None
    assert embed.shape == (3, 6, D_MODEL)
    assert_close(embed[:, 4], pixels[:, :, 2:4, 2:4].flatten(1) @ patches.weight.T)


def test_a_pooler_with_attention_knows_patches_as_a_set():
    """pooler(Px) = pooler(x); and each patch matters."""
    model = build(POOLED_IMAGES)
    stream = model(images())
    pooled = model.pooler(stream)
    assert pooled.shape == (3, D_MODEL)
    assert_close(model.pooler(stream[:, torch.tensor([4, 1, 0, 5, 2, 3])]), pooled)
    for patch in range(6):
        other = stream.clone()
        other[:, patch] += 1.0
        assert distance(model.pooler(other), pooled) > 1e-4, patch


@pytest.mark.parametrize("kind", GRIDS)
def test_a_bias_between_patches_is_one_number_per_offset(kind):
    """Of queries that are zero, the scores are the bias; no two offsets share an entry."""
    model = build_new(GRIDS[kind])
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.zero_()
            block.attn.b_q.zero_()
    cache = run(model, images(), record="scores").cache
    cells = [None, None, *((row, column) for row in range(2) for column in range(3))]
    for layer in range(2):
        biases: dict[tuple[object, ...], list[torch.Tensor]] = {}
        for query, at in enumerate(cells):
            for key, other in enumerate(cells):
                special = (at is None, other is None)
                offset = (0, 0) if any(special) else (at[0] - other[0], at[1] - other[1])
                pair = (*special, *offset)
                biases.setdefault(pair, []).append(cache["scores", layer][:, :, query, key])
        assert len(biases) == 3 * 5 + 3 == len(model.stacks[0].ranges.of_layer(layer).weight)
        for entries in biases.values():
            for entry in entries:
                assert_identical(entry, entries[0][:1].expand_as(entry))
        assert len({float(entries[0][0, 0]) for entries in biases.values()}) == len(biases)


def test_layers_share_the_biases_of_a_grid_or_have_their_own():
    tables = {
        kind: [attn.positions.table for attn in (block.attn for block in build(config).blocks)]
        for kind, config in GRIDS.items()
    }
    assert tables["grid"][0] is tables["grid"][1]
    assert distance(*(table.weight for table in tables["layer_grid"])) > 0.1


def test_the_mean_patch_is_what_a_pooled_model_predicts_from():
    """logits[0] = norm(mean of the patches)·W_U + b_U, as a model without logits pools them."""
    config = GRIDS["grid"]
    model, pixels = build(config), images()
    done = run(model, pixels, record=["resid_post", "final_normalized"])
    stream, last = done.cache["resid_post", 1], model.stacks[0].final_norm
    mean = last.norm(stream[:, 2:].mean(1, keepdim=True))
    assert_close(done.logits[:, :1], model.unembed(mean))
    assert_close(done.logits[:, 2:], model.unembed(last.norm(stream))[:, 2:])
    assert_close(done.cache["final_normalized"][:, :1], mean)
    unnormed = replace(config.encoder, norm=NormConfig(final=False))
    base = build(replace(config, encoder=unnormed, unembeds=False, bias_u=False))
    x = base(pixels)
    assert_close(base.pooler(x), base.pooler.norm(x[:, 2:].mean(1)))
    assert distance(base.pooler(x), base.pooler.norm(x).mean(1)) > 1e-3


def test_logits_of_the_mean_patch_have_no_terms_at_one_position():
    with pytest.raises(InvalidInput, match="mean of all patches"):
        analyses.direct_logit_attribution(build(GRIDS["grid"]), images(), target=1)


def test_only_its_own_square_changes_with_a_pixel():
    model, pixels = build(seeing()), images()
    other = pixels.clone()
    other[:, 1, 3, 5] += 1.0
    before, after = (run(model, x, record="embed").cache["embed"] for x in (pixels, other))
    changed = (before != after).any(-1).any(0)
    assert changed.tolist() == [False] * 7 + [True]


@pytest.mark.parametrize("config", [seeing(), *GRIDS.values()], ids=["vit", *GRIDS])
def test_sweeps_over_images_are_brute_force(config):
    model, pixels = build(config), images()
    made = [edits.zero("z", layer=n, head=h) for n in range(2) for h in range(3)]
    made += [edits.scale("embed", 0.2, pos=3), edits.add("resid_pre", 0.5, layer=1, pos=-1)]
    made += [edits.zero("mlp_out", layer=1, pos=4), edits.zero("final_normalized", pos=0)]
    for metric in (metrics.logit(2, pos=0), metrics.prob((1, 2, 3), pos=0)):
        table = sweep(model, pixels, made, metric)
        brute = [run(model, pixels, edits=[edit]) for edit in made]
        expected = torch.stack([metric(done.logits, done.batch) for done in brute])
        assert_close(table.values, expected)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (images()[:, :1], r"\(2, 4, 6\).*\(3, 1, 4, 6\)"),
        (torch.zeros(3, 2, 4, 6, dtype=torch.long), "finite floating-point"),
        (images().masked_fill(torch.ones(3, 2, 4, 6) > 0, torch.nan), "finite"),
        (torch.zeros(0, 2, 4, 6), r"\(0, 2, 4, 6\)"),
    ],
)
def test_what_is_no_image_of_the_right_shape_is_refused(value, message):
    with pytest.raises(InvalidTokens, match=message):
        build(seeing())(value)


def test_types_are_added_and_change_what_follows():
    model, (ids,) = build("bert-types"), tokens_of("bert-types")
    types = (torch.arange(ids.shape[1]) >= 2).long().expand_as(ids)
    typed, plain = model.batch(ids, types=types), model.batch(ids)
    cache = run(model, typed, record="type_embed").cache
    assert_identical(cache["type_embed"], model.stacks[0].types.W_type[types])
    assert distance(model(typed), model(plain)) > 1e-3
    assert_identical(model(plain), model(ids))
    assert_identical(model(model.batch(ids, types=torch.zeros_like(ids))), model(ids))


def test_types_go_with_their_tokens_through_padding_and_sweeps():
    model, (ids,) = build("bert-types"), tokens_of("bert-types", batch=2, pos=5)
    types = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])
    padded, padded_types = ids.clone(), types.clone()
    padded[1] = torch.cat([torch.full((2,), PAD), ids[1, :3]])
    padded_types[1] = torch.cat([torch.zeros(2, dtype=torch.long), types[1, :3]])
    batch = model.batch(padded, types=padded_types)
    alone = model(model.batch(ids[1:, :3], types=types[1:, :3]))
    assert_close(model(batch)[1, 2:], alone[0])
    made, metric = (
        [edits.zero("z", layer=0, head=1), edits.scale("type_embed", 0.5)],
        metrics.logit(3),
    )
    table = sweep(model, batch, made, metric)
    for row, edit in enumerate(made):
        done = run(model, batch, edits=[edit])
        assert_close(table.values[row], metric(done.logits, done.batch))


def test_types_that_a_model_does_not_have_are_refused():
    (ids,) = tokens_of("bert-types")
    with pytest.raises(InvalidTokens, match="no token types"):
        build("gpt2").batch(ids, types=torch.zeros_like(ids))
    with pytest.raises(InvalidTokens, match="one whole number"):
        build("bert-types").batch(ids, types=torch.zeros(1, 2, dtype=torch.long))
    model = build("bert-types")
    with pytest.raises(InvalidInput, match=r"type 2.*types 0 to 1"):
        model(model.batch(ids, types=torch.full_like(ids, 2)))


def test_images_have_no_mask_and_no_types():
    model, pixels = build(seeing()), images()
    with pytest.raises(InvalidTokens, match="reads images"):
        model(pixels, mask=torch.ones(3, 8))
    with pytest.raises(InvalidTokens, match="reads images"):
        model.batch(pixels, types=torch.zeros(3, 8, dtype=torch.long))


def test_a_mask_takes_tokens_away_and_gives_none_back():
    model = build("gpt2")
    batch = model.batch([[1, 2, PAD], [1, 2, 3]])
    assert model.batch(batch, mask=torch.ones(2, 3)).tokens.tolist() == [[1, 2, PAD], [1, 2, 3]]
    taken = model.batch(batch, mask=torch.tensor([[1, 1, 1], [0, 1, 1]]))
    assert taken.tokens.tolist() == [[1, 2, PAD], [PAD, 2, 3]]
