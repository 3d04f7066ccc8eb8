"""Chat templates in the styles of published models, and small models that have them."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import tokenizers
import transformers
from tokenizers import models, pre_tokenizers

import interp
from interp.config import AttentionConfig, Config, StackConfig, TokensConfig
from interp.loading.special_tokens import as_tokenizer
from training.bpe import train_bpe

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""As of SmolLM2 and Qwen 2.5, with a system prompt of its own."""
LLAMA_3 = """
{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
"""As of Llama 3.1: the system prompt stands in its own header, and contents are trimmed."""
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
    "{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
"""As of Gemma: no system prompt, the assistant is the model, and turns alternate."""
MISTRAL = """
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("After the optional system message, roles must alternate") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
"""
"""As of Mistral: the system prompt moves into the user's last turn."""
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{% generation %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endgeneration %}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
"""As of Zephyr: without BOS, with the block ``generation``."""
TEMPLATES = {
    "ChatML": CHATML,
    "Llama 3": LLAMA_3,
    "Gemma": GEMMA,
    "Mistral": MISTRAL,
    "Zephyr": ZEPHYR,
}
SPECIAL = (
    *("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"),
)


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def system(content: str) -> dict[str, str]:
    return {"role": "system", "content": content}


@cache
def byte_tokenizer(template: str | None = None) -> Any:
    """A tokenizer of ``transformers`` whose tokens are bytes and special tokens."""
    backend = train_bpe(["ab"], vocab_size=256 + len(SPECIAL), special=SPECIAL)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", chat_template=template
    )


def model_with(tokenizer: object, *, prepend_bos: bool = False) -> interp.Transformer:
    """A small model with a tokenizer."""
    read = as_tokenizer(tokenizer)
    assert read is not None
    config = Config(
        d_model=8,
        d_vocab=read.vocab_size,
        n_ctx=4096,
        decoder=StackConfig(1, AttentionConfig(n_heads=2, d_head=4)),
        tokens=TokensConfig(bos=0, eos=1, prepend_bos=prepend_bos),
    )
    return interp.Transformer(config, read.with_special_tokens(0, 1))


@cache
def chat_model(template: str | None) -> interp.Transformer:
    """A model of bytes and special tokens with a template."""
    return model_with(byte_tokenizer(template))


def merging_tokenizer(merges: Sequence[tuple[str, str]]) -> tokenizers.Tokenizer:
    """Byte-level BPE with these merges, written as by the library."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: id_ for id_, char in enumerate(["<s>", "</s>", *alphabet])}
    for pair in merges:
        vocab["".join(pair)] = len(vocab)
    backend = tokenizers.Tokenizer(models.BPE(vocab, [*merges]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.add_special_tokens(["<s>", "</s>"])
    return backend
