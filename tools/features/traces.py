"""Trials of nnsight, and of nnterp, which gives models of nnsight standard names."""

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from tools.features.lens import tokenizer
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


class Sight(Library):
    """nnsight: any module, by its own names."""

    package = "nnsight"
    module: ClassVar[str] = "nnsight"

    @cached_property
    def model(self) -> Any:  # noqa: ANN401 - a class of nnsight
        """The GPT-2 of ``transformers``, wrapped."""
        import nnsight

        return nnsight.LanguageModel(huggingface(), tokenizer=tokenizer())

    def pattern(self) -> bool:
        """The second output of the attention module, which is eager."""
        with self.model.trace(self.tokens):
            pattern = self.model.transformer.h[0].attn.output[1].save()
        return is_pattern(pattern)

    def fused(self) -> bool:
        """The same of fused attention."""
        import nnsight

        model = nnsight.LanguageModel(huggingface("sdpa"), tokenizer=tokenizer())
        with model.trace(self.tokens):
            pattern = model.transformer.h[0].attn.output[1].save()
        if pattern is None:
            raise Lacks("attention must be eager")
        return is_pattern(pattern)

    def zero(self) -> bool:
        """Columns of the input of the output projection."""
        return not close(self._zeroed(1), self._plain())

    def edge(self) -> bool:
        """No call for it."""
        raise Lacks("written by hand")

    def many(self) -> bool:
        """Invokes are batched in one trace; the metric is computed by hand."""
        with self.model.trace() as tracer:
            with tracer.invoke(self.tokens):
                self.model.transformer.h[0].attn.c_proj.input[..., :8] = 0
                first = self.model.lm_head.output[0, -1, 1].save()
            with tracer.invoke(self.tokens):
                self.model.transformer.h[0].attn.c_proj.input[..., 8:] = 0
                second = self.model.lm_head.output[0, -1, 1].save()
        return not close(first, second)

    def misspelt(self) -> bool:
        """A module that is none."""

        def trace() -> None:
            with self.model.trace(self.tokens):
                self.model.transformer.h[0].atn.output.save()

        return refuses(trace)

    def left_padding(self) -> bool:
        """The attention mask is transformers' own argument."""
        mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
        padded = {"input_ids": torch.tensor([PADDED]), "attention_mask": mask}
        with self.model.trace(padded):
            logits = self.model.lm_head.output.save()
        with self.model.trace(torch.tensor([PADDED[3:]])):
            alone = self.model.lm_head.output.save()
        return close(logits[:, 3:], alone)

    def after_error(self) -> bool:
        """A trace that raises, then a plain one."""
        before = self._plain()

        def failing() -> None:
            with self.model.trace(self.tokens):
                self.model.transformer.h[0].output = 1 / 0

        return refuses(failing) and close(self._plain(), before)

    def safe_cache(self) -> bool:
        """``tracer.cache``."""
        with self.model.trace(self.tokens) as tracer:
            cache = tracer.cache()
        block = "model.transformer.h.0"
        before = cache[block].output.clone()
        cache[block].output.zero_()
        return close(cache[block].output, before)

    def threads(self) -> bool:
        """Each of two threads zeroes another head, twenty times."""
        alone = [self._zeroed(head) for head in range(2)]

        def often(which: int) -> bool:
            return all(close(self._zeroed(which), alone[which]) for _ in range(20))

        with ThreadPoolExecutor(2) as pool:
            return all(pool.map(often, range(2)))

    def json(self) -> bool:
        """An edit is code."""
        raise Lacks("an edit is code")

    def steering(self) -> bool:
        """A vector added to the output of a block."""
        vector = torch.zeros(16, requires_grad=True)
        with self.model.trace(self.tokens):
            self.model.transformer.h[0].output = self.model.transformer.h[0].output + vector
            logits = self.model.lm_head.output.save()
        logits[0, -1, 3].backward()
        return vector.grad is not None and bool(vector.grad.abs().sum() > 0)

    def generation(self) -> bool:
        """``generate`` with an edit of every step."""
        far = torch.linspace(9, -9, 16)
        with self.model.generate(self.tokens, max_new_tokens=4) as tracer:
            plain = tracer.result.save()
        with self.model.generate(self.tokens, max_new_tokens=4) as tracer:
            for _ in tracer.iter[0:4]:
                self.model.transformer.h[1].output = self.model.transformer.h[1].output + far
            edited = tracer.result.save()
        return not torch.equal(plain, edited)

    def mamba(self) -> bool:
        """Any module."""
        import nnsight

        model = nnsight.NNsight(mamba())
        with model.trace(self.tokens):
            stream = model.backbone.layers[0].output.save()
        return stream is not None

    def drawing(self) -> bool:
        """It draws nothing."""
        raise Lacks("draws nothing")

    offline_drawing = drawing

    def alone(self) -> bool:
        """In a process in which transformers can't be imported."""
        return imports_alone(self.module)

    def known_circuits(self) -> bool:
        """It comes without models."""
        raise Lacks("no models")

    def _plain(self) -> Tensor:
        with self.model.trace(self.tokens):
            logits = self.model.lm_head.output.save()
        return logits

    def _zeroed(self, head: int) -> Tensor:
        with self.model.trace(self.tokens):
            self.model.transformer.h[0].attn.c_proj.input[..., head * 8 : head * 8 + 8] = 0
            logits = self.model.lm_head.output.save()
        return logits


class Standardized(Sight):
    """nnterp: the same on nnsight's models with standard names."""

    package = "nnterp"
    beside = ("nnsight",)
    module: ClassVar[str] = "nnterp"

    @cached_property
    def model(self) -> Any:  # noqa: ANN401 - a class of nnterp
        """The GPT-2 of ``transformers`` with standard names."""
        return self._standardized()

    def pattern(self) -> bool:
        """``attention_probabilities``."""
        model = self._standardized(enable_attention_probs=True)
        with model.trace(self.tokens):
            pattern = model.attention_probabilities[0].save()
        return is_pattern(pattern)

    def fused(self) -> bool:
        """``enable_attention_probs`` needs eager attention."""
        raise Lacks("attention must be eager")

    def mamba(self) -> bool:
        """Standard names of a Mamba."""
        from nnterp import StandardizedTransformer

        return StandardizedTransformer(mamba(), tokenizer=tokenizer()) is not None

    def _standardized(self, **settings: Any) -> Any:  # noqa: ANN401 - a class of nnterp
        from nnterp import StandardizedTransformer

        return StandardizedTransformer(huggingface(), tokenizer=tokenizer(), **settings)
