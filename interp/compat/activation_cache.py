"""The activations of a run by name, and the terms that the stream is the sum of.

Tensors are stored detached: ``cache["pattern", 0]`` returns the same object each time, and later
runs do not change it (TransformerLens 3, ``ActivationCache.py``).
"""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from interp.compat.normed_activations import NormedActivations
from interp.compat.utils.act_names import get_act_name
from interp.compat.utils.slices import take


class ActivationCache(NormedActivations):
    """The activations of a run, and the terms that the stream is the sum of."""

    def accumulated_resid(
        self,
        layer: int | None = None,
        incl_mid: bool = False,
        apply_ln: bool = False,
        pos_slice: Any = None,
        mlp_input: bool = False,
        return_labels: bool = False,
    ) -> Any:
        """The stream before each layer up to ``layer`` ``[component ... d_model]``.

        Args:
            layer: the last layer; ``None`` or -1 adds the stream after the last block.
            incl_mid: whether to include the stream between attention and MLP.
            apply_ln: whether to apply the norm before ``layer``, with its scale in the run and
                without gain and bias (after all layers, the whole final norm to each component).
            pos_slice: the positions to return.
            mlp_input: whether to include the stream before the MLP of ``layer``.
            return_labels: whether to also return the labels ``0_pre``, ``0_mid``, …,
                ``final_post``.
        """
        last, n_layers = self._layers(layer), self.model.cfg.n_layers
        labels: list[str] = []
        streams: list[Tensor] = []
        for at in range(last + 1):
            if at == n_layers:
                streams.append(self["resid_post", at - 1])
                labels.append("final_post")
                continue
            streams.append(self["resid_pre", at])
            labels.append(f"{at}_pre")
            if (incl_mid and at < last) or (mlp_input and at == last):
                streams.append(self["resid_mid", at])
                labels.append(f"{at}_mid")
        stack = torch.stack([take(x, pos_slice, -2) for x in streams])
        if apply_ln:
            stack = self.apply_ln_to_stack(
                stack,
                last,
                pos_slice=pos_slice,
                mlp_input=mlp_input,
                has_batch_dim=self.has_batch_dim,
                recompute_ln=last == n_layers,
            )
        return (stack, labels) if return_labels else stack

    def decompose_resid(
        self,
        layer: int | None = None,
        mlp_input: bool = False,
        mode: str = "all",
        apply_ln: bool = False,
        pos_slice: Any = None,
        incl_embeds: bool = True,
        return_labels: bool = False,
    ) -> Any:
        """The outputs written to the stream before a layer ``[component ... d_model]``.

        Args:
            layer: the layer; ``None`` or -1 for all.
            mlp_input: whether to include the output of the attention of ``layer``.
            mode: ``all``, or ``attn`` or ``mlp`` for the outputs of these only.
            apply_ln: whether to apply the norm before ``layer``, with its scale in the run and
                without gain and bias.
            pos_slice: the positions to return.
            incl_embeds: whether to include the embeddings.
            return_labels: whether to also return the labels ``embed``, ``pos_embed``,
                ``0_attn_out``, ``0_mlp_out``, …
        """
        last = self._layers(layer)
        labels: list[str] = []
        if incl_embeds:
            labels += ["embed"] * self.has_embed + ["pos_embed"] * self.has_pos_embed
        terms = [self[label] for label in labels]
        with_mlp = mode != "attn" and not self.model.cfg.attn_only
        for at in range(last + mlp_input):
            parts = ["attn_out"] if mode != "mlp" else []
            parts += ["mlp_out"] if with_mlp and at < last else []
            terms += [self[part, at] for part in parts]
            labels += [f"{at}_{part}" for part in parts]
        stack = torch.stack([take(x, pos_slice, -2) for x in terms])
        if apply_ln:
            stack = self.apply_ln_to_stack(stack, last, mlp_input, pos_slice)
        return (stack, labels) if return_labels else stack

    def compute_head_results(self) -> None:
        """Store the output of each head, ``z @ W_O``, as ``hook_result``."""
        for at in range(self.model.cfg.n_layers):
            name = get_act_name("result", at)
            if name not in self.cache_dict:
                z, W_O = self["z", at][..., None, :], self.model.blocks[at].attn.W_O
                self.cache_dict[name] = (z @ W_O.detach())[..., 0, :]

    def stack_head_results(
        self,
        layer: int = -1,
        return_labels: bool = False,
        incl_remainder: bool = False,
        pos_slice: Any = None,
        apply_ln: bool = False,
    ) -> Any:
        """The output of each head before a layer ``[component ... d_model]``.

        ``incl_remainder`` adds the rest of the stream before that layer as a last component.
        """
        self.compute_head_results()
        last, cfg = self._layers(layer), self.model.cfg
        labels = [f"L{at}H{head}" for at in range(last) for head in range(cfg.n_heads)]
        written = [
            rearrange(take(self["result", at], pos_slice, -3), "... head d -> head ... d")
            for at in range(last)
        ]
        return self._stack_components(
            written, labels, last, return_labels, incl_remainder, pos_slice, apply_ln
        )

    def get_neuron_results(
        self,
        layer: int,
        neuron_slice: Any = None,
        pos_slice: Any = None,
        project_output_onto: Tensor | None = None,
    ) -> Tensor:
        """The output of each neuron of a layer ``[... neuron d_model]``, or its projection."""
        post = take(take(self["post", layer, "mlp"], pos_slice, -2), neuron_slice, -1)
        W_out = take(self.model.blocks[layer].mlp.W_out.detach(), neuron_slice, 0)
        if project_output_onto is None:
            return post[..., None] * W_out
        onto = W_out @ project_output_onto
        return post * onto if project_output_onto.ndim == 1 else post[..., None] * onto

    def stack_neuron_results(
        self,
        layer: int = -1,
        pos_slice: Any = None,
        neuron_slice: Any = None,
        return_labels: bool = False,
        incl_remainder: bool = False,
        apply_ln: bool = False,
        project_output_onto: Tensor | None = None,
    ) -> Any:
        """The output of each neuron before a layer ``[component ... d_model]``.

        With ``project_output_onto`` ``[d_model]`` or ``[d_model out]``, the projection of each
        ``[component ...]`` or ``[component ... out]``; the outputs themselves are never formed.
        """
        last = self._layers(layer)
        neurons = take(torch.arange(self.model.cfg.d_mlp), neuron_slice, 0).flatten().tolist()
        labels = [f"L{at}N{neuron}" for at in range(last) for neuron in neurons]
        selected = neurons if neuron_slice is not None else None
        onto = None
        if project_output_onto is not None:
            onto = self._directions(project_output_onto, apply_ln=apply_ln)
        written = [
            rearrange(
                self.get_neuron_results(at, selected, pos_slice, onto),
                "... neuron d -> neuron ... d",
            )
            for at in range(last)
        ]
        result = self._stack_components(
            written, labels, last, return_labels, incl_remainder, pos_slice, apply_ln, onto
        )
        if project_output_onto is None or project_output_onto.ndim > 1:
            return result
        return (result[0][..., 0], result[1]) if return_labels else result[..., 0]

    def _stack_components(
        self,
        written: list[Tensor],
        labels: list[str],
        layer: int,
        return_labels: bool,
        incl_remainder: bool,
        pos_slice: Any,
        apply_ln: bool,
        onto: Tensor | None = None,
    ) -> Any:
        """Components as a stack, with the remainder of the stream if requested."""
        none = take(self["resid_pre", 0], pos_slice, -2)
        stack = torch.cat([(none if onto is None else none @ onto)[None][:0], *written])
        if incl_remainder:
            stream = take(self["resid_post", layer - 1], pos_slice, -2)
            stream = stream if onto is None else stream @ onto
            stack = torch.cat([stack, (stream - stack.sum(0))[None]])
            labels = [*labels, "remainder"]
        if apply_ln and onto is not None:
            stack = self._apply_ln_to_projected(stack, layer, mlp_input=False, pos_slice=pos_slice)
        elif apply_ln:
            stack = self.apply_ln_to_stack(stack, layer, pos_slice=pos_slice)
        return (stack, labels) if return_labels else stack

    def get_full_resid_decomposition(
        self,
        layer: int | None = None,
        mlp_input: bool = False,
        expand_neurons: bool = True,
        apply_ln: bool = False,
        pos_slice: Any = None,
        return_labels: bool = False,
        project_output_onto: Tensor | None = None,
    ) -> Any:
        """Every head, every neuron (or MLP), the embeddings and the biases before a layer.

        Their sum is the stream before that layer or, with ``project_output_onto``, its projection.
        """
        last, cfg = self._layers(layer), self.model.cfg
        onto = None
        if project_output_onto is not None:
            onto = self._directions(project_output_onto, apply_ln=apply_ln)
        parts, labels = self.stack_head_results(
            last + mlp_input, return_labels=True, pos_slice=pos_slice
        )
        shape, parts = parts.shape[1:], [parts if onto is None else parts @ onto]
        if not cfg.attn_only and last > 0:
            if expand_neurons:
                mlp_parts, names = self.stack_neuron_results(
                    last, pos_slice, return_labels=True, project_output_onto=onto
                )
            else:
                mlp_parts, names = self.decompose_resid(
                    last, mode="mlp", pos_slice=pos_slice, incl_embeds=False, return_labels=True
                )
                mlp_parts = mlp_parts if onto is None else mlp_parts @ onto
            parts.append(mlp_parts)
            labels += names
        embeds = ["embed"] * self.has_embed + ["pos_embed"] * self.has_pos_embed
        bias = self.model.accumulated_bias(last, mlp_input, include_mlp_biases=expand_neurons)
        small = [take(self[name], pos_slice, -2)[None] for name in embeds]
        small.append(bias.detach().expand(1, *shape))
        stack = torch.cat(parts + [x if onto is None else x @ onto for x in small])
        labels = [*labels, *embeds, "bias"]
        if apply_ln and onto is not None:
            stack = self._apply_ln_to_projected(stack, last, mlp_input, pos_slice)
        elif apply_ln:
            stack = self.apply_ln_to_stack(stack, last, mlp_input, pos_slice)
        if project_output_onto is not None and project_output_onto.ndim == 1:
            stack = stack[..., 0]
        return (stack, labels) if return_labels else stack
