"""Repositories of the hub by TransformerLens's names of models, such as ``gpt2-small``.

A name is that of the repository in lower case, without the organisation and without ``-hf``; other
names are listed here.
"""

import re
from collections.abc import Iterator

from interp.compat.errors import InvalidInput
from interp.loading import WELL_KNOWN

ORGANISATIONS = {
    "01-ai": "Yi-6B Yi-34B Yi-6B-Chat Yi-34B-Chat",
    "EleutherAI": "gpt-neox-20b",
    "Qwen": "Qwen1.5-0.5B Qwen1.5-1.8B Qwen1.5-4B Qwen1.5-7B Qwen1.5-14B Qwen1.5-0.5B-Chat "
    "Qwen1.5-1.8B-Chat Qwen1.5-4B-Chat Qwen1.5-7B-Chat Qwen1.5-14B-Chat Qwen2-0.5B Qwen2-1.5B "
    "Qwen2-7B Qwen2-0.5B-Instruct Qwen2-1.5B-Instruct Qwen2-7B-Instruct Qwen2.5-0.5B Qwen2.5-1.5B "
    "Qwen2.5-3B Qwen2.5-7B Qwen2.5-14B Qwen2.5-32B Qwen2.5-72B Qwen2.5-0.5B-Instruct "
    "Qwen2.5-1.5B-Instruct Qwen2.5-3B-Instruct Qwen2.5-7B-Instruct Qwen2.5-14B-Instruct "
    "Qwen2.5-32B-Instruct Qwen2.5-72B-Instruct Qwen3-0.6B Qwen3-0.6B-Base Qwen3-1.7B Qwen3-4B "
    "Qwen3-8B Qwen3-14B",
    "facebook": "opt-13b opt-30b opt-66b",
    "google": "gemma-2b-it gemma-7b-it gemma-2-2b-it gemma-2-9b-it gemma-2-27b gemma-2-27b-it "
    "gemma-3-270m-it gemma-3-4b-pt gemma-3-4b-it gemma-3-12b-pt gemma-3-12b-it gemma-3-27b-pt "
    "gemma-3-27b-it",
    "meta-llama": "Llama-2-7b-hf Llama-2-13b-hf Llama-2-7b-chat-hf Llama-2-13b-chat-hf "
    "Llama-2-70b-chat-hf Llama-3.1-8B Llama-3.1-8B-Instruct Llama-3.1-70B Llama-3.1-70B-Instruct "
    "Llama-3.2-1B Llama-3.2-1B-Instruct Llama-3.2-3B Llama-3.2-3B-Instruct Llama-3.3-70B-Instruct "
    "Meta-Llama-3-8B Meta-Llama-3-8B-Instruct Meta-Llama-3-70B Meta-Llama-3-70B-Instruct",
    "mistralai": "Mistral-Nemo-Base-2407 Mistral-Small-24B-Base-2501",
    "microsoft": "phi-1 phi-1_5 phi-2 phi-4",
    "stabilityai": "stablelm-base-alpha-3b stablelm-base-alpha-7b stablelm-tuned-alpha-3b "
    "stablelm-tuned-alpha-7b",
    "ai-forever": "mGPT",
    "allenai": "OLMo-1B-hf OLMo-7B-hf",
}
ALIASES = {
    "codellama-7b-instruct": "codellama/CodeLlama-7b-Instruct-hf",
    "codellama-7b-python": "codellama/CodeLlama-7b-Python-hf",
    "codellamallama-2-7b": "codellama/CodeLlama-7b-hf",
    "distil-gpt2": "distilbert/distilgpt2",
    "distillgpt2": "distilbert/distilgpt2",
    "distill-gpt2": "distilbert/distilgpt2",
    "gpt-j": "EleutherAI/gpt-j-6B",
    "gpt-j-6b": "EleutherAI/gpt-j-6B",
    "gpt-neo-125m": "EleutherAI/gpt-neo-125M",
    "gpt-neo-1.3b": "EleutherAI/gpt-neo-1.3B",
    "gpt-neo-2.7b": "EleutherAI/gpt-neo-2.7B",
    "gpt-neo-large": "EleutherAI/gpt-neo-2.7B",
    "gpt-neo-medium": "EleutherAI/gpt-neo-1.3B",
    "gpt-neo-small": "EleutherAI/gpt-neo-125M",
    "gpt-neox": "EleutherAI/gpt-neox-20b",
    "gpt2-small": "openai-community/gpt2",
    "gpt2-xs": "distilbert/distilgpt2",
    "gptj": "EleutherAI/gpt-j-6B",
    "meta-llama-2-70b-chat-hf": "meta-llama/Llama-2-70b-chat-hf",
    "mistral-7b": "mistralai/Mistral-7B-v0.1",
    "mistral-7b-instruct": "mistralai/Mistral-7B-Instruct-v0.1",
    "mixtral": "mistralai/Mixtral-8x7B-v0.1",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "mixtral-8x7b-instruct": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "mixtral-instruct": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "neo": "EleutherAI/gpt-neo-125M",
    "neo-large": "EleutherAI/gpt-neo-2.7B",
    "neo-medium": "EleutherAI/gpt-neo-1.3B",
    "neo-small": "EleutherAI/gpt-neo-125M",
    "neox": "EleutherAI/gpt-neox-20b",
    "olmo-2-1b": "allenai/OLMo-2-0425-1B",
    "olmo-2-7b": "allenai/OLMo-2-1124-7B",
    "opt": "facebook/opt-125m",
    "opt-large": "facebook/opt-2.7b",
    "opt-medium": "facebook/opt-1.3b",
    "opt-small": "facebook/opt-125m",
    "opt-xl": "facebook/opt-6.7b",
    "opt-xxl": "facebook/opt-13b",
    "opt-xxxl": "facebook/opt-30b",
    "opt-xxxxl": "facebook/opt-66b",
    "phi-3": "microsoft/Phi-3-mini-4k-instruct",
    "pythia": "EleutherAI/pythia-70m",
    "pythia-v0": "EleutherAI/pythia-70m-v0",
    "qwen-32b-preview": "Qwen/QwQ-32B-Preview",
    "stablelm-base-3b": "stabilityai/stablelm-base-alpha-3b",
    "stablelm-base-7b": "stabilityai/stablelm-base-alpha-7b",
    "stablelm-tuned-3b": "stabilityai/stablelm-tuned-alpha-3b",
    "stablelm-tuned-7b": "stabilityai/stablelm-tuned-alpha-7b",
    "tiny-stories-instruct-1l-21m": "roneneldan/TinyStories-Instuct-1Layer-21M",
}
STANFORD = {
    "small": "alias-x21 battlestar-x49 caprica-x81 darkmatter-x343 expanse-x777",
    "medium": "arwen-x21 beren-x49 celebrimbor-x81 durin-x343 eowyn-x777",
}
"""Five models of each of two sizes, named by the letters a to e: ``stanford-gpt2-small-a``."""
TINY_STORIES = (
    "1M 3M 8M 28M 33M 1Layer-21M 2Layers-33M Instruct-1M Instruct-3M Instruct-8M Instruct-28M "
    "Instruct-33M Instruct-2Layers-33M"
)
PYTHIA = re.compile(r"(?:eleutherai/)?pythia-([\d.]+[mb])((?:-deduped)?(?:-v0|-seed\d)?)")
OLD_SIZES = {
    "19m": "70m",
    "125m": "160m",
    "350m": "410m",
    "800m": "1b",
    "1.3b": "1.4b",
    "2.7b": "2.8b",
    "6.7b": "6.9b",
    "13b": "12b",
}
"""Former names of the sizes of Pythia, and the present ones."""
OWN_FORMAT = re.compile(
    r"neelnanda/.*|arthurconmy/redwood.*|baidicoot/othello.*|redwood_attn_2l|othello-gpt|"
    r"attn-only(-\d+l.*|-demo)|(gelu|solu)-\d+l.*"
)
"""Models whose files are state dicts of TransformerLens."""


def _stanford() -> Iterator[tuple[str, str]]:
    """Each name of a model in ``STANFORD``, and its repository."""
    for size, models in STANFORD.items():
        other = {"small": "gpt2-mistral-small", "medium": "gpt2-medium-small"}[size]
        for letter, model in zip("abcde", models.split(), strict=True):
            codename, seed = model.split("-")
            repository = f"{codename}-gpt2-{size}-{seed}"
            names = [
                f"{family}-{letter}"
                for family in (f"stanford-gpt2-{size}", f"gpt2-stanford-{size}")
            ]
            for name in (*names, f"{other}-{letter}", repository):
                yield name, f"stanford-crfm/{repository}"


_REPOSITORIES = {
    **{
        name.lower().removesuffix("-hf"): f"{organisation}/{name}"
        for organisation, names in ORGANISATIONS.items()
        for name in names.split()
    },
    **{
        "tiny-stories-" + re.sub(r"layers?", "l", name.lower()): f"roneneldan/TinyStories-{name}"
        for name in TINY_STORIES.split()
    },
    **dict(_stanford()),
}


def repository_of(name: str) -> str | None:
    """The repository of TransformerLens that has this full name; ``None`` if there is none."""
    repositories = (*ALIASES.values(), *_REPOSITORIES.values(), *WELL_KNOWN.values())
    return next((each for each in repositories if each.lower() == name.lower()), None)


def hub_name(name: str) -> str | None:
    """The repository for a name of TransformerLens; ``None`` if the name is unknown.

    Raises:
        InvalidInput: the model is stored in TransformerLens's own format.
    """
    lower = name.lower()
    if OWN_FORMAT.fullmatch(lower):
        raise InvalidInput(
            f"{name} is stored as a state dict of TransformerLens with its cfg, which "
            "from_pretrained does not read. Download its files, then: model = HookedTransformer("
            "HookedTransformerConfig(...)); model.load_state_dict(torch.load(file, "
            "weights_only=True))."
        )
    pythia = PYTHIA.fullmatch(lower)
    if pythia:
        size, rest = pythia.groups()
        return f"EleutherAI/pythia-{OLD_SIZES.get(size, size)}{rest}"
    return ALIASES.get(lower) or _REPOSITORIES.get(lower) or WELL_KNOWN.get(lower)
