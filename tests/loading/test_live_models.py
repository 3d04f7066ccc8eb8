"""Live models are copied, compared and not changed; a model with another forward is refused."""

from types import MethodType, SimpleNamespace

import pytest
import torch
from foreign_folders import MODELS, gpt2, llama, random_tokens, randomised
from torch import nn
from transformers import (
    BeitConfig,
    BeitForMaskedImageModeling,
    BeitForSemanticSegmentation,
    BeitModel,
    BertConfig,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertModel,
    FalconConfig,
    FalconForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaForQuestionAnswering,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    LlamaModel,
    ModernBertConfig,
    ModernBertForQuestionAnswering,
    ModernBertForSequenceClassification,
    MptConfig,
    MptForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
)

import interp
from interp.errors import IgnoredFieldsWarning, InvalidInput, ModelLoadError
from interp.execution.provenance import Provenance
from interp.loading import save_folder

KINDS = pytest.mark.parametrize("kind", MODELS)


def logits(theirs: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return theirs(random_tokens()).logits


# The agreement.


@KINDS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_the_agreement_is_measured_and_kept(kind, dtype):
    theirs = MODELS[kind]().to(dtype)
    model = interp.load(theirs)
    bound = {torch.float64: 1e-5, torch.float32: 1e-5, torch.bfloat16: 0.1}[dtype]
    assert model.dtype == dtype
    assert 0 <= model.agreement <= bound
    expected = logits(theirs)
    assert (model(random_tokens()) - expected).abs().max() <= bound * expected.abs().max()


def test_the_agreement_is_relative_and_measured_on_outputs():
    theirs = gpt2().double()
    exact = interp.load(theirs).agreement
    hook = theirs.lm_head.register_forward_hook(lambda module, args, out: out + 1e-6)
    changed = interp.load(theirs)
    hook.remove()
    assert exact < 1e-9
    tried = theirs(random_tokens()).logits.abs().max().item()
    assert 1e-7 / max(1.0, tried) < changed.agreement <= 1e-6


def test_the_agreement_is_part_of_every_provenance(tmp_path):
    model = interp.load(llama())
    assert model.agreement is not None
    assert Provenance.of(model).agreement == model.agreement
    assert Provenance.of(model).to_dict()["agreement"] == model.agreement
    swept = interp.sweep(
        model, random_tokens(), interp.edits.zero("z", layer=0, head=0), interp.metrics.loss()
    )
    assert swept.provenance.agreement == model.agreement
    save_folder(model, tmp_path)
    assert interp.load(tmp_path).agreement is None
    assert Provenance.of(interp.load(tmp_path)).agreement is None


# Independence of the two models.


@KINDS
def test_the_two_models_share_no_memory(kind):
    theirs = MODELS[kind]()
    model = interp.load(theirs)
    ours, expected = model(random_tokens()), logits(theirs)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.mul_(2.0)
    assert torch.equal(model(random_tokens()), ours)
    assert not torch.equal(logits(theirs), expected)
    changed = logits(theirs)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    assert torch.equal(logits(theirs), changed)
    assert not torch.equal(model(random_tokens()), ours)


def test_the_live_model_is_not_changed():
    theirs = gpt2()
    theirs.train()
    theirs.transformer.h[1].eval()
    theirs.lm_head.weight.requires_grad_(False)
    modes = [module.training for module in theirs.modules()]
    assert len(set(modes)) == 2
    state = {name: weight.clone() for name, weight in theirs.state_dict().items()}
    before = torch.random.get_rng_state()
    interp.load(theirs)
    assert [module.training for module in theirs.modules()] == modes
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(weight, state[name]) for name, weight in theirs.state_dict().items())
    assert all(weight.grad is None for weight in theirs.parameters())
    assert not theirs.lm_head.weight.requires_grad


def test_the_live_model_is_not_changed_if_its_forward_fails():
    theirs = gpt2().train()

    def fail(*_: object, **__: object) -> None:
        raise KeyError("broken")

    theirs.transformer.h[1].mlp.forward = fail
    with pytest.raises(ModelLoadError, match=r"GPT2LMHeadModel .* raised KeyError: 'broken'"):
        interp.load(theirs)
    assert all(module.training for module in theirs.modules())


def test_dropout_of_a_model_in_training_is_disabled_for_the_comparison():
    theirs = gpt2(resid_pdrop=0.9, embd_pdrop=0.9, attn_pdrop=0.9).train()
    assert interp.load(theirs).agreement < 1e-5
    assert not torch.equal(logits(theirs), logits(theirs))


def test_the_loaded_model_is_in_evaluation_mode_and_trainable():
    model = interp.load(gpt2())
    assert not model.training
    assert all(weight.requires_grad for weight in model.parameters())


# Models with another forward.


def scaled(module: nn.Module) -> None:
    """Multiply the output of a module by 1.5."""
    forward = module.forward
    module.forward = MethodType(lambda self, *args, **rest: forward(*args, **rest) * 1.5, module)


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("gpt2", "transformer.h.1.mlp"),
        ("gpt2", "transformer.h.0.ln_1"),
        ("gpt2", "transformer.wpe"),
        ("gpt2", "lm_head"),
        ("llama", "model.layers.0.mlp"),
        ("llama", "model.layers.1.self_attn.o_proj"),
        ("llama", "model.norm"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_model_with_another_forward_is_refused(kind, part, dtype):
    theirs = MODELS[kind]().to(dtype)
    interp.load(theirs)
    scaled(theirs.get_submodule(part))
    with pytest.raises(ModelLoadError, match=r"differs from \w+ by .* not supported"):
        interp.load(theirs)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_difference_of_a_thousandth_is_refused(kind, dtype):
    theirs = MODELS[kind]().to(dtype)
    theirs.lm_head.register_forward_hook(lambda module, args, out: out * 1.001)
    with pytest.raises(ModelLoadError, match=r"by 0\.001, .* is allowed"):
        interp.load(theirs)


def test_a_model_whose_output_is_nan_is_refused():
    theirs = gpt2()
    theirs.lm_head.register_forward_hook(lambda module, args, out: out * torch.nan)
    with pytest.raises(ModelLoadError, match="differs from GPT2LMHeadModel by nan"):
        interp.load(theirs)


def test_a_weight_of_an_unknown_part_is_refused():
    theirs = gpt2()
    theirs.transformer.h[0].adapter = nn.Linear(8, 8)
    with pytest.raises(ModelLoadError, match=r"h\.0\.adapter\.\w+ belongs to no part"):
        interp.load(theirs)


def test_quantised_weights_are_refused():
    theirs = gpt2()
    layer = theirs.transformer.h[0].mlp.c_fc
    layer.weight = nn.Parameter(layer.weight.to(torch.int8), requires_grad=False)
    with pytest.raises(ModelLoadError, match=r"h\.0\.mlp\.c_fc\.weight .*quantised"):
        interp.load(theirs)


@KINDS
def test_a_model_that_was_dequantised_is_judged_by_its_weights(kind):
    """Its configuration still records how its file was quantised."""
    theirs = MODELS[kind]()
    expected = interp.load(theirs)(random_tokens())
    theirs.config.quantization_config = {"quant_method": "gguf"}
    theirs.config.some_field_of_the_file = "somewhere"
    with pytest.warns(IgnoredFieldsWarning, match="of this type: some_field_of_the_file"):
        model = interp.load(theirs)
    assert torch.equal(model(random_tokens()), expected)
    assert model.agreement < 1e-5
    with pytest.raises(ModelLoadError, match="strict=True refuses: some_field_of_the_file"):
        interp.load(theirs, strict=True)
    name, weight = next(iter(theirs.named_parameters()))
    module, _, leaf = name.rpartition(".")
    quantised = nn.Parameter(weight.to(torch.int8), requires_grad=False)
    setattr(theirs.get_submodule(module), leaf, quantised)
    with pytest.raises(ModelLoadError, match=r"quantization_config=.*its weights are quantised"):
        interp.load(theirs)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_falcon_with_alibi_is_compared_with_the_attention_that_adds_it_once(attention):
    sizes = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape = {"alibi": True, "multi_query": False, "parallel_attn": False}
    ids = {"bos_token_id": 1, "eos_token_id": 2}
    config = FalconConfig(**sizes, **shape, **ids, attn_implementation=attention)
    theirs = randomised(FalconForCausalLM(config)).double()
    model = interp.load(theirs)
    assert model.agreement < 1e-5
    assert theirs.config._attn_implementation == attention
    error = (model(random_tokens()) - logits(theirs)).abs().max()
    assert (error < 1e-5) == (attention == "sdpa")


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (BertConfig, BertForQuestionAnswering),
        (BertConfig, BertForMultipleChoice),
        (LlamaConfig, LlamaForQuestionAnswering),
        (LlamaConfig, LlamaForSequenceClassification),
        (LlamaConfig, LlamaForTokenClassification),
        (ModernBertConfig, ModernBertForQuestionAnswering),
    ],
)
def test_a_head_that_is_not_supported_is_named_with_the_part_that_is_read(config, kind, tmp_path):
    sizes = {"vocab_size": 30, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1}
    theirs = randomised(kind(config(**sizes, num_attention_heads=2, pad_token_id=0)))
    theirs.save_pretrained(tmp_path)
    for source in (theirs, tmp_path):
        with pytest.raises(ModelLoadError, match=rf"{kind.__name__}.*not supported") as error:
            interp.load(source)
        assert "interp.load(hf_model.base_model)" in str(error.value)
    assert interp.load(theirs.base_model).agreement < 1e-5


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (BeitForSemanticSegmentation, {}, "belongs to the head of BeitForSemanticSegmentation"),
        (BeitForMaskedImageModeling, {"use_mean_pooling": False}, "two norms before the logits"),
    ],
)
def test_heads_of_images_are_refused_with_the_reason(kind, fields, reason):
    theirs = randomised(kind(beit(**fields)))
    with pytest.raises(ModelLoadError, match=rf"{reason}.*interp.load\(hf_model.base_model\)"):
        interp.load(theirs)
    assert interp.load(theirs.base_model).agreement < 1e-5


def test_oblong_images_are_refused_where_biases_would_be_interpolated():
    with pytest.raises(ModelLoadError, match=r"image_size=\[8, 16\].*expected a square"):
        interp.load(BeitModel(beit(image_size=[8, 16])))


def beit(**fields: object) -> BeitConfig:
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 4, "image_size": 8}
    sizes |= {"num_attention_heads": 2, "patch_size": 4, "out_indices": [1, 2, 3, 4]}
    return BeitConfig(**{**sizes, "use_relative_position_bias": True, **fields})


def test_a_classifier_that_reads_the_mean_over_positions_is_refused_with_the_reason():
    sizes = {"vocab_size": 30, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "pad_token_id": 0}
    for pooling in ("cls", "mean"):
        config = ModernBertConfig(**sizes, classifier_pooling=pooling)
        theirs = randomised(ModernBertForSequenceClassification(config))
        if pooling == "cls":
            assert interp.load(theirs).agreement < 1e-5
            continue
        with pytest.raises(ModelLoadError, match=r"classifier_pooling='mean': the head reads the"):
            interp.load(theirs)
        assert interp.load(theirs.base_model).agreement < 1e-5


# Base models, dtypes, names.


def test_a_base_model_has_no_unembedding_or_a_tied_one():
    theirs = randomised(LlamaModel(llama().config))
    model = interp.load(theirs)
    assert not model.config.unembeds
    assert model.agreement < 1e-5
    tied = interp.load(randomised(GPT2Model(gpt2().config)))
    assert tied.config.tied
    assert tied.agreement < 1e-5


@pytest.mark.parametrize("stored", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("wanted", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_the_tolerance_is_that_of_the_coarser_dtype(stored, wanted):
    model = interp.load(llama().to(stored), dtype=wanted)
    assert model.dtype == wanted
    bound = 1e-4 if torch.bfloat16 not in (stored, wanted) else 0.1
    assert model.agreement < bound


def test_a_device_can_be_given():
    assert interp.load(gpt2(), "cpu").device == torch.device("cpu")
    with pytest.raises(InvalidInput, match="abacus"):
        interp.load(gpt2(), "abacus")


def test_the_name_is_the_path_of_the_live_model_or_its_class(tmp_path):
    assert interp.load(gpt2()).config.name == "GPT2LMHeadModel"
    gpt2().save_pretrained(tmp_path / "somewhere")
    again = type(gpt2()).from_pretrained(tmp_path / "somewhere")
    assert interp.load(again).config.name == str(tmp_path / "somewhere")


def test_a_model_that_returns_tuples_is_supported():
    theirs = randomised(LlamaModel(llama().config))
    theirs.config.return_dict = False
    assert isinstance(theirs(random_tokens()), tuple)
    assert interp.load(theirs).agreement < 1e-5


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_context_shorter_than_the_compared_input_is_supported(length):
    assert interp.load(gpt2(n_positions=length)).agreement < 1e-5


def test_an_encoder_as_decoder_and_a_decoder_with_cross_attention_are_refused():
    sizes = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(**sizes, intermediate_size=16, is_decoder=True)
    with pytest.raises(ModelLoadError, match="is_decoder"):
        interp.load(BertModel(config))
    config = GPT2Config(vocab_size=30, n_embd=8, n_layer=1, n_head=2, add_cross_attention=True)
    with pytest.raises(ModelLoadError, match="add_cross_attention"):
        interp.load(GPT2Model(config))


def test_the_text_model_of_a_multimodal_model_is_loaded():
    text = {"vocab_size": 30, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4}
    vision = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 8, "patch_size": 4}
    config = Gemma3Config(text_config=text, vision_config=vision, image_token_index=29)
    theirs = randomised(Gemma3ForConditionalGeneration(config))
    with pytest.warns(UserWarning, match=r"Gemma 3: the vision part is left out \(\d+ weights"):
        model = interp.load(theirs)
    assert model.config.tied
    assert model.agreement <= 1e-5
    alone = interp.load(theirs.model.language_model)
    ids = random_tokens() % 29
    assert torch.equal(alone(ids), model(ids))
    with torch.no_grad():
        expected = theirs(input_ids=ids).logits
    assert (model(ids) - expected).abs().max() <= 1e-5 * expected.abs().max()


# Settings that transformers ignores.

SIZES = {"vocab_size": 30, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2, "max_position_embeddings": 16, "pad_token_id": 0}
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2, "num_key_value_heads": 2}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}


def mpt(**fields) -> nn.Module:
    config = MptConfig(vocab_size=30, d_model=8, n_layers=2, n_heads=2, max_seq_len=16, **fields)
    return randomised(MptForCausalLM(config))


def olmo3(**rope) -> nn.Module:
    return randomised(Olmo3ForCausalLM(Olmo3Config(**SIZES, rope_scaling={**YARN, **rope})))


@pytest.mark.parametrize(
    ("build", "ignored"),
    [
        (mpt, {"logit_scale": 0.5}),
        (mpt, {"no_bias": False}),
        (mpt, {"norm_type": "rmsnorm"}),
        (mpt, {"attn_config": {"alibi": False}}),
        (olmo3, {"truncate": False}),
    ],
)
def test_a_setting_that_transformers_ignores_is_refused_with_the_reason(build, ignored):
    """Theirs computes the same with it and without it; the model's own code does not."""
    plain, theirs = build(), build(**ignored)
    assert torch.equal(logits(theirs), logits(plain))
    assert interp.load(plain).agreement < 1e-5
    (name,) = ignored.get("attn_config", ignored)
    with pytest.raises(
        ModelLoadError, match=rf"{name}=.*, which transformers ignores: it computes"
    ):
        interp.load(theirs)


def test_the_context_of_phi_moe_ends_where_transformers_ignores_its_factors():
    rope = {"rope_type": "longrope", "short_mscale": 1.2, "long_mscale": 1.2}
    rope |= {"short_factor": [1.0, 1.5], "original_max_position_embeddings": 5}
    tokens = random_tokens(pos=8)
    theirs = [
        randomised(
            PhimoeForCausalLM(PhimoeConfig(**SIZES, **EXPERTS, rope_parameters=dict(parameters)))
        )
        for parameters in ({**rope, "long_factor": [2.0, 9.0]}, {**rope, "long_factor": [1.0, 1.0]})
    ]
    with torch.no_grad():
        assert torch.equal(theirs[0](tokens).logits, theirs[1](tokens).logits)
    with pytest.warns(UserWarning, match="ends at 5 tokens instead of 16, since transformers"):
        model = interp.load(theirs[0])
    assert model.config.n_ctx == 5
    assert model.agreement < 1e-5


# Objects that are not live models.


class WithConfig(nn.Module):
    def __init__(self, config: object) -> None:
        super().__init__()
        self.linear, self.config = nn.Linear(2, 2), config


@pytest.mark.parametrize(
    "config", [None, {}, {"model_type": "gpt2"}, SimpleNamespace(model_type="gpt2"), 3], ids=repr
)
def test_another_module_with_a_config_is_refused(config):
    with pytest.raises(ModelLoadError, match="WithConfig is not a model of transformers"):
        interp.load(WithConfig(config))


def test_a_transformer_of_this_toolkit_and_a_module_without_a_config_are_refused():
    with pytest.raises(ModelLoadError, match="Transformer is not a model of transformers"):
        interp.load(interp.load("induction-by-hand"))
    with pytest.raises(ModelLoadError, match="got Linear"):
        interp.load(nn.Linear(2, 2))


def test_an_unknown_family_is_refused():
    class Own(GPT2Config):
        model_type = "gpt17"

    with pytest.raises(ModelLoadError, match="model_type='gpt17', which is not supported"):
        interp.load(GPT2Model(Own(vocab_size=30, n_embd=8, n_layer=1, n_head=2)))
