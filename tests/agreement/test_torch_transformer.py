"""``torch.nn.Transformer``, with embeddings and head, agrees with ours to 1e-9 in float64."""

import math
from types import SimpleNamespace

import pytest
import torch
from agreement.comparing import noted, off
from torch import nn
from torch.nn import functional as F  # noqa: N812

import analyses
import interp
from interp import PAD
from interp.errors import ModelLoadError

D_MODEL, SOURCE_VOCAB, TARGET_VOCAB = 24, 53, 41


class Translator(nn.Module):
    """Embedding · √d + sinusoidal positions → nn.Transformer → linear, as in tutorials."""

    def __init__(self, *, batch_first=True, head_bias=True, **more):
        super().__init__()
        sizes = {"num_encoder_layers": 3, "num_decoder_layers": 2, "dim_feedforward": 40}
        self.transformer = nn.Transformer(D_MODEL, 4, batch_first=batch_first, **(sizes | more))
        self.source_embedding = nn.Embedding(SOURCE_VOCAB, D_MODEL)
        self.target_embedding = nn.Embedding(TARGET_VOCAB, D_MODEL)
        self.head = nn.Linear(D_MODEL, TARGET_VOCAB, bias=head_bias)
        self.scale, self.tables = math.sqrt(D_MODEL), None

    def learn_positions(self):
        self.tables = nn.ModuleList(nn.Embedding(n, D_MODEL) for n in (32, 20))
        return self

    def entered(self, embedding, ids, which):
        x = embedding(ids) * self.scale
        if self.tables is not None:
            return x + self.tables[which].weight[: ids.shape[1]]
        wave = torch.zeros(ids.shape[1], D_MODEL, dtype=x.dtype)
        steps = torch.arange(0, D_MODEL, 2).to(x.dtype)
        angles = torch.arange(ids.shape[1])[:, None] * torch.exp(steps * -(math.log(1e4) / D_MODEL))
        wave[:, 0::2], wave[:, 1::2] = angles.sin(), angles.cos()
        return x + wave

    def streams(self, source, target, source_pad=None, target_pad=None):
        x = self.entered(self.source_embedding, source, 0)
        y = self.entered(self.target_embedding, target, 1)
        first = self.transformer.batch_first
        x, y = (x, y) if first else (x.transpose(0, 1), y.transpose(0, 1))
        n = target.shape[1]
        decoded = self.transformer(
            x,
            y,
            tgt_mask=torch.ones(n, n, dtype=torch.bool).triu(1),
            src_key_padding_mask=source_pad,
            tgt_key_padding_mask=target_pad,
            memory_key_padding_mask=source_pad,
        )
        return decoded if first else decoded.transpose(0, 1)

    def forward(self, *ids, **pads):
        return self.head(self.streams(*ids, **pads))

    def ours(self, **more):
        model = interp.from_torch(
            self.transformer, self.source_embedding, self.target_embedding, self.head, **more
        )
        assert model.agreement <= 1e-12
        return model


def translator(**more):
    model = Translator(**more).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) * 0.1)
    return model


def agree(computed, expected, what="logits"):
    noted(SimpleNamespace(name="torch.nn.Transformer"), what, off(computed, expected))


def tokens():
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(SOURCE_VOCAB, (3, 11), generator=generator)
    return source, torch.randint(TARGET_VOCAB, (3, 8), generator=generator)


CASES = {
    "plain": {},
    "position-first": {"batch_first": False},
    "norm-first": {"norm_first": True, "activation": "gelu"},
    "no-biases": {"bias": False, "head_bias": False, "layer_norm_eps": 1e-3},
    "no-biases-norm-first": {"bias": False, "norm_first": True, "activation": nn.SiLU()},
    "tanh-gelu": {"activation": nn.GELU(approximate="tanh"), "batch_first": False},
}


# Theirs warns that nested tensors, which some layouts can't take, are a prototype.
pytestmark = [
    pytest.mark.agreement,
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]


@pytest.mark.parametrize("case", CASES)
def test_logits_agree(case):
    theirs = translator(**CASES[case])
    agree(theirs.ours()(*tokens()), theirs(*tokens()))


@pytest.mark.parametrize("case", CASES)
def test_padded_rows_agree(case):
    """At real tokens; outputs at padding are arbitrary."""
    theirs = translator(**CASES[case])
    source, target = tokens()
    source_pad, target_pad = torch.zeros(source.shape).bool(), torch.zeros(target.shape).bool()
    source_pad[1, 7:], source_pad[2, 3:], target_pad[1, 5:], target_pad[2, 2:] = (True,) * 4
    expected = theirs(source, target, source_pad=source_pad, target_pad=target_pad)
    logits = theirs.ours()(source.where(~source_pad, PAD), target.where(~target_pad, PAD))
    agree(logits[~target_pad], expected[~target_pad], "padding")


@pytest.mark.parametrize("case", CASES)
def test_activations_and_gradients_agree(case):
    theirs = translator(**CASES[case])
    ours, seen = theirs.ours(), {}
    layer = theirs.transformer.decoder.layers[1]
    for name in ("linear1", "linear2", "multihead_attn"):
        keep = lambda module, inputs, output, name=name: seen.update({name: output})  # noqa: E731
        getattr(layer, name).register_forward_hook(keep)
    logits = theirs(*tokens())
    run = interp.run(ours, *tokens(), record="all")
    turned = (lambda x: x) if theirs.transformer.batch_first else (lambda x: x.transpose(0, 1))
    agree(run.cache["pre", 1, "decoder"], turned(seen["linear1"]), "pre")
    agree(run.cache["mlp_out", 1, "decoder"], turned(seen["linear2"]), "mlp_out")
    agree(run.cache["cross_attn_out", 1, "decoder"], turned(seen["multihead_attn"][0]), "cross")
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2)).double()
    wanted = torch.autograd.grad((logits * weights).sum(), theirs.source_embedding.weight)
    gradient = torch.autograd.grad((ours(*tokens()) * weights).sum(), ours.encoder.weight_e)
    agree(*gradient, *wanted, "gradient")


def test_learned_positions_and_an_unscaled_embedding_agree():
    theirs = translator()
    theirs.learn_positions().double().scale = 1.0
    ours = theirs.ours(scale=1.0, positions=tuple(theirs.tables))
    assert ours.config.n_ctx == 20
    agree(ours(*tokens()), theirs(*tokens()))


def test_without_an_unembedding_the_last_stream_is_given_out():
    theirs = translator()
    parts = theirs.transformer, theirs.source_embedding.weight, theirs.target_embedding.weight
    ours = interp.from_torch(*parts)
    agree(ours(*tokens()), theirs.streams(*tokens()))


def test_towers_without_last_norms_agree():
    """As in the paper."""
    theirs = translator()
    theirs.transformer.encoder.norm = theirs.transformer.decoder.norm = None
    agree(theirs.ours()(*tokens()), theirs(*tokens()))


def test_matrices_with_the_same_numbers_are_one():
    theirs = translator(head_bias=False)
    theirs.source_embedding = theirs.target_embedding
    theirs.head.weight = theirs.target_embedding.weight
    ours = theirs.ours(tokens=interp.TokensConfig(decoder_start=2, eos=1))
    assert ours.config.tied
    assert ours.config.shared
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    source, target = (ids % TARGET_VOCAB for ids in tokens())
    agree(ours(source, target), theirs(source, target))
    text = ours.generate(source, max_new_tokens=5)
    assert (text[:, 0] == 2).all()


def test_the_laws_hold():
    for identity in analyses.verify(translator().ours()):
        assert identity.holds, identity


def test_weights_are_copied_and_the_mode_is_kept():
    theirs = translator().train()
    ours = theirs.ours()
    before = ours(*tokens())
    with torch.no_grad():
        theirs.transformer.encoder.layers[0].linear1.weight.zero_()
    assert theirs.transformer.training
    assert torch.equal(ours(*tokens()), before)


def test_another_function_is_found_out():
    class Doubled(nn.Transformer):
        def forward(self, *inputs, **more):
            return 2 * super().forward(*inputs, **more)

    theirs = translator()
    theirs.transformer.__class__ = Doubled
    with pytest.raises(ModelLoadError, match="differs from torch"):
        theirs.ours()


def test_what_is_not_known_is_refused():
    theirs = translator(activation=F.elu)
    with pytest.raises(ModelLoadError, match="activation"):
        theirs.ours()
    theirs = translator()
    theirs.transformer.encoder.layers[1].norm2.eps = 0.1
    with pytest.raises(ModelLoadError, match="differ in norms"):
        theirs.ours()
    theirs = translator()
    theirs.transformer.decoder.layers[0] = nn.Identity()
    with pytest.raises(ModelLoadError, match="has a Identity"):
        theirs.ours()
    theirs = translator()
    theirs.transformer.decoder.layers[0].self_attn.add_zero_attn = True
    with pytest.raises(ModelLoadError, match="add_zero_attn"):
        theirs.ours()
    with pytest.raises(ModelLoadError, match="rotary"):
        translator().ours(positions=interp.PositionsConfig("rotary"))
