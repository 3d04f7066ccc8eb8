"""Trials of TransformerLens 3 (``HookedTransformer``) and 4 (``TransformerBridge``)."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from torch import Tensor

from tools.features.trials import (
    PADDED,
    Lacks,
    Library,
    close,
    huggingface,
    imports_alone,
    is_pattern,
    mamba,
    refuses,
)

FOLDER = TemporaryDirectory()
"""Of the tokenizer, which a bridge reads again."""
Z = "blocks.0.attn.hook_z"


def zeroed(head: int) -> Any:  # noqa: ANN401 - a hook function
    """A hook that zeroes one head's z, in place."""

    def zero(z: Tensor, hook: object) -> Tensor:  # noqa: ARG001 - passed by TransformerLens
        z[:, :, head] = 0
        return z

    return zero


class Lens(Library):
    """What both versions share."""

    package = "transformer-lens"
    module: ClassVar[str] = "transformer_lens"
    model: Any

    def pattern(self) -> bool:
        """``cache["pattern", 0]``."""
        return is_pattern(self.model.run_with_cache(self.tokens)[1]["pattern", 0])

    def zero(self) -> bool:
        """``run_with_hooks``."""
        before = self.model(self.tokens)
        return not close(self._run(Z, zeroed(1)), before)

    def edge(self) -> bool:
        """Inputs by head (``use_split_qkv_input``, ``use_attn_in``), but no call for an edge."""
        raise Lacks("hooks written by hand on split inputs")

    def many(self) -> bool:
        """``patching.get_act_patch_*`` loops over forwards, one an edit."""
        raise Lacks("a loop of forwards")

    def misspelt(self) -> bool:
        """A hook, and a filter of a cache."""
        return refuses(lambda: self._run("blocks.0.attn.hook_zz", zeroed(1))) and refuses(
            lambda: self.model.run_with_cache(self.tokens, names_filter="blocks.0.attn.hook_zz")
        )

    def left_padding(self) -> bool:
        """With an attention mask."""
        mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
        padded = self.model(torch.tensor([PADDED]), attention_mask=mask)
        return close(padded[:, 3:], self.model(torch.tensor([PADDED[3:]])))

    def after_error(self) -> bool:
        """A hook that raises, then a plain forward, and the hooks that are left."""
        before = self.model(self.tokens)
        failed = refuses(lambda: self._run(Z, lambda z, hook: 1 / 0))
        left = [p for p in self.model.hook_dict.values() if getattr(p, "fwd_hooks", [])]
        return failed and not left and close(self.model(self.tokens), before)

    def safe_cache(self) -> bool:
        """The cache hands out its own tensors."""
        cache = self.model.run_with_cache(self.tokens)[1]
        before = cache["z", 0].clone()
        cache["z", 0].zero_()
        return close(cache["z", 0], before)

    def threads(self) -> bool:
        """Each of two threads zeroes another head, a hundred times."""
        alone = [self._run(Z, zeroed(head)) for head in range(2)]

        def often(which: int) -> bool:
            return all(close(self._run(Z, zeroed(which)), alone[which]) for _ in range(100))

        with ThreadPoolExecutor(2) as pool:
            return all(pool.map(often, range(2)))

    def json(self) -> bool:
        """An edit is a function."""
        raise Lacks("hooks are functions")

    def steering(self) -> bool:
        """A hook that adds a vector."""
        vector = torch.zeros(16, requires_grad=True)
        self._run("blocks.1.hook_resid_pre", lambda x, hook: x + vector)[0, -1, 3].backward()
        return vector.grad is not None and bool(vector.grad.abs().sum() > 0)

    def generation(self) -> bool:
        """``hooks()`` around ``generate``."""
        far = torch.linspace(9, -9, 16)
        settings = {"max_new_tokens": 4, "do_sample": False, "verbose": False}
        settings |= {"stop_at_eos": False, "return_type": "tokens"}
        plain = self.model.generate(self.tokens, **settings)
        with self.model.hooks(fwd_hooks=[("blocks.1.hook_resid_post", lambda x, hook: x + far)]):
            return not torch.equal(plain, self.model.generate(self.tokens, **settings))

    def drawing(self) -> bool:
        """Its demos use CircuitsVis."""
        raise Lacks("CircuitsVis does")

    offline_drawing = drawing

    def alone(self) -> bool:
        """In a process in which transformers can't be imported."""
        return imports_alone(self.module)

    def known_circuits(self) -> bool:
        """None among its model names."""
        raise Lacks("none among its models")

    def _run(self, name: str, function: Any) -> Tensor:  # noqa: ANN401 - a hook function
        return self.model.run_with_hooks(self.tokens, fwd_hooks=[(name, function)])


class LensThree(Lens):
    """TransformerLens 3."""

    from_version, below = "3", "4"

    @cached_property
    def model(self) -> Any:  # noqa: ANN401 - a class of transformer_lens
        """A ``HookedTransformer`` with random weights."""
        import transformer_lens

        config = transformer_lens.HookedTransformerConfig(
            n_layers=2, d_model=16, n_ctx=32, d_head=8, n_heads=2, d_mlp=64, d_vocab=50,
            act_fn="gelu_new", normalization_type="LN", seed=0,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the whole class
            return transformer_lens.HookedTransformer(config).eval()

    def fused(self) -> bool:
        """Attention matrices are always formed."""
        raise Lacks("attention is never fused")

    def mamba(self) -> bool:
        """A ``HookedTransformer`` is one."""
        raise Lacks("a Transformer only")


class LensFour(Lens):
    """TransformerLens 4."""

    from_version, below = "4", "5"

    @cached_property
    def model(self) -> Any:  # noqa: ANN401 - a class of transformer_lens
        """A bridge to the GPT-2 of ``transformers``."""
        return bridge(huggingface())

    def fused(self) -> bool:
        """A bridge to a model with fused attention."""
        model = bridge(huggingface("sdpa"))
        if model.original_model.config._attn_implementation != "sdpa":
            raise Lacks("the model is switched to eager")
        return is_pattern(model.run_with_cache(self.tokens)[1]["pattern", 0])

    def mamba(self) -> bool:
        """A bridge to a Mamba."""
        return bool(bridge(mamba(), "state-spaces/mamba-130m-hf").run_with_cache(self.tokens))


def bridge(model: Any, name: str = "gpt2") -> Any:  # noqa: ANN401 - classes of other libraries
    """A ``TransformerBridge`` to a model of ``transformers``."""
    from transformer_lens.model_bridge import TransformerBridge

    return TransformerBridge.boot_transformers(name, hf_model=model, tokenizer=tokenizer())


def tokenizer() -> Any:  # noqa: ANN401 - a class of transformers
    """A tokenizer of words w0 … w49, which a bridge asks for."""
    from tokenizers import Tokenizer, models
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(50)}, unk_token="w0"))
    special = {"bos_token": "w0", "eos_token": "w0", "pad_token": "w0"}
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(FOLDER.name)
    huggingface().config.save_pretrained(FOLDER.name)
    return AutoTokenizer.from_pretrained(FOLDER.name)
