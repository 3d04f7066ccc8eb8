"""What TransformerLens sets by the name and the architecture of a published model.

Its names of models, the contexts it caps, the architectures whose texts get no BOS, and fields that
only describe a model (TransformerLens 3.9, ``loading_from_pretrained.py``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interp.compat.config import HookedTransformerConfig
from interp.compat.core_config import ACTIVATION_OF, WRITE_NORM
from interp.compat.errors import NotLoaded
from interp.compat.model_names import hub_name, repository_of
from interp.errors import ModelLoadError, reason, shorten
from interp.io import read_json
from interp.loading import PREFIX, bundled, fetch, is_cached, parse_name

ORGANISATIONS = ("openai-community/gpt2", "distilbert/distilgpt2")
"""Repositories that TransformerLens, like their old names, calls without an organisation."""
CONFIG, MAX_CONFIG_BYTES = "config.json", 2**22

WITHOUT_BOS = ("Bloom", "GPTNeoX", "Phi", "Qwen2", "Qwen3")
"""Architectures with ``default_prepend_bos=False``."""
N_CTX = {"Bloom": 2048, "Mistral": 2048, "Qwen3": 2048}
"""Caps of ``n_ctx`` by architecture."""
N_CTX_BY_NAME = {"codellama/": 4096, "meta-llama/Llama-3.": 2048, "roneneldan/TinyStories": 512}
"""Caps of ``n_ctx`` by the beginning of a name."""
FINAL_RMS = ("Gemma", "Gemma2", "Llama", "Qwen2", "Qwen3")
"""Architectures with ``final_rms=True``, which describes their final RMSNorm."""
GROUPED = ("Gemma", "Gemma2", "Mistral", "Mixtral", "Qwen2")
"""Architectures with ``n_key_value_heads`` even if each query head has its own keys."""
ALL_GLOBAL = ("Mixtral", "Olmo", "Olmo2")
"""Architectures with ``attn_types`` even if no attention is local."""
INITIALISED = ("Gemma", "Gemma2", "Olmo", "Olmo2", "Phi", "Phi3", "Qwen2", "Qwen3")
"""Architectures whose ``initializer_range`` is that of ``config.json``."""
ACTIVATION_FIELDS = ("hidden_activation", "hidden_act", "activation_function")
STEPS = {"EleutherAI/pythia": "step", "stanford-crfm/": "checkpoint-"}
"""Beginnings of names of models with checkpoints, and those of the branches with the weights."""
PYTHIA_V0_CHECKPOINTS = list(range(1000, 143_001, 1000))
PYTHIA_CHECKPOINTS = [0, *(2**n for n in range(10)), *PYTHIA_V0_CHECKPOINTS]
STANFORD_CRFM_CHECKPOINTS = [
    *range(0, 100, 10),
    *range(100, 2000, 50),
    *range(2000, 20_000, 100),
    *range(20_000, 400_001, 1000),
]


@dataclass(frozen=True)
class Published:
    """Where a model comes from.

    Attributes:
        name: TransformerLens's name of the model: a repository of the hub, or a folder; ``None`` if
            it is bundled.
        source: the argument of :func:`interp.load`.
        config_json: the content of its ``config.json``, if its family is one of ``transformers``.
        step: the training step of the weights, if they are those of a checkpoint.
    """

    name: str | None
    source: Any
    config_json: Mapping[str, Any] = field(default_factory=dict[str, Any])
    step: int | None = None

    @classmethod
    def of(cls, name: str, hf_model: Any = None, step: int | None = None) -> "Published":
        """The model of a name of TransformerLens, or a live model with a name.

        Args:
            name: the name.
            hf_model: a live model of ``transformers``.
            step: the training step of the weights.

        Raises:
            InvalidInput: the model is stored in TransformerLens's own format.
            ModelLoadError: the model can't be downloaded, or its ``config.json`` can't be read.
        """
        if hf_model is not None:
            fields = getattr(getattr(hf_model, "config", None), "to_dict", dict)()
            fields = {**fields, "architectures": [type(hf_model).__name__]}
            repository = hub_name(name) or (name if "/" in name else None)
            return cls(repository and official_name(repository), hf_model, fields)
        source = source_of(name if step is None else at_step(name, step))
        if source.startswith(PREFIX):
            folder, _ = fetch(source)
            return cls(official_name(parse_name(source)[0]), source, _config_json(folder), step)
        fields = {} if source in bundled() else _config_json(Path(source))
        return cls(source if fields else None, source, fields, step)

    @property
    def architecture(self) -> str | None:
        """The class in ``transformers``; ``None`` if the model is of this package."""
        names: Any = self.config_json.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else None

    @property
    def kind(self) -> str:
        """The architecture without the name of its head, such as ``GPTNeoX``."""
        return (self.architecture or "").removesuffix("ForCausalLM")


def official_name(repository: str) -> str:
    """TransformerLens's name of a repository of the hub."""
    is_old = repository.startswith(ORGANISATIONS)
    return repository.partition("/")[2] if is_old else repository


def get_official_model_name(model_name: str) -> str:
    """TransformerLens's name of the model that has this name or alias, such as ``gpt2-small``.

    Raises:
        NotLoaded: no model of TransformerLens has it.
    """
    repository = hub_name(model_name) or repository_of(model_name)
    if repository is None:
        raise NotLoaded(f"{shorten(model_name)} is no name of a model of TransformerLens.")
    return official_name(repository)


def get_checkpoint_labels(model_name: str, **_: object) -> tuple[list[int], str]:
    """The training steps of which weights are published, and ``step``.

    Raises:
        NotLoaded: the model is unknown, or has no checkpoints.
    """
    name = get_official_model_name(model_name)
    if name.startswith("stanford-crfm/"):
        return STANFORD_CRFM_CHECKPOINTS, "step"
    if name.startswith("EleutherAI/pythia"):
        return PYTHIA_V0_CHECKPOINTS if "v0" in name else PYTHIA_CHECKPOINTS, "step"
    raise NotLoaded(f"{name} has no checkpoints; models of Pythia and of stanford-crfm do.")


def source_of(name: str) -> str:
    """The argument of :func:`interp.load` for a name of TransformerLens.

    Models that have two names on the hub, such as ``gpt2`` and ``openai-community/gpt2``, are read
    under the one that is in the cache.
    """
    if name.partition("@")[0] in bundled() or name.startswith(PREFIX) or Path(name).exists():
        return name
    plain, at, revision = name.partition("@")
    repository = hub_name(plain) or (plain if "/" in plain else None)
    if repository is None:
        return name
    names = [f"{PREFIX}{each}{at}{revision}" for each in (repository, official_name(repository))]
    return next((each for each in names if is_cached(each)), names[0])


def at_step(name: str, step: int) -> str:
    """The name of a model after a training step: a branch of the hub, or ``"NAME@STEP"``."""
    repository = official_name(hub_name(name) or name)
    branch = next((STEPS[start] for start in STEPS if repository.startswith(start)), "")
    return f"{name}@{branch}{step}"


def apply_name(cfg: HookedTransformerConfig, published: Published) -> None:
    """Set the names of model and tokenizer, without a commit, and the step of a checkpoint."""
    cfg.tokenizer_name = published.name
    if published.step is not None:
        cfg.from_checkpoint, cfg.checkpoint_value = True, published.step
        cfg.checkpoint_label_type = "step"
        cfg.checkpoint_index = _index_of(published)
    cfg.model_name = (published.name or "").rstrip("/").rpartition("/")[2] or cfg.model_name


def apply_published(cfg: HookedTransformerConfig, published: Published) -> None:
    """Set the fields that TransformerLens sets by the name and the architecture of a model."""
    apply_name(cfg, published)
    kind, name, fields = published.kind, published.name or "", published.config_json
    if published.architecture is None:
        return
    cfg.original_architecture = published.architecture
    caps = [N_CTX_BY_NAME[start] for start in N_CTX_BY_NAME if name.startswith(start)]
    cfg.n_ctx = min(cfg.n_ctx, N_CTX.get(kind, cfg.n_ctx), *caps)
    cfg.default_prepend_bos = kind not in WITHOUT_BOS
    cfg.final_rms = kind in FINAL_RMS
    if kind in GROUPED:
        cfg.n_key_value_heads = cfg.n_key_value_heads or cfg.n_heads
    elif cfg.n_key_value_heads == cfg.n_heads:
        cfg.n_key_value_heads = None
    if kind in ALL_GLOBAL and cfg.attn_types is None:
        cfg.attn_types = ["global"] * cfg.n_layers
    if kind in INITIALISED:
        cfg.initializer_range = float(fields.get("initializer_range") or 0.02)
    spelt = next((fields[each] for each in ACTIVATION_FIELDS if fields.get(each)), cfg.act_fn)
    if ACTIVATION_OF.get(spelt) == ACTIVATION_OF.get(cfg.act_fn):
        cfg.act_fn = spelt


def _index_of(published: Published) -> int | None:
    """The index of a checkpoint in the list of its model; ``None`` if it is not listed."""
    try:
        return get_checkpoint_labels(published.name or "")[0].index(published.step or 0)
    except ValueError:
        return None


def has_post_norms(cfg: HookedTransformerConfig) -> bool:
    """Whether norms come after sub-layers only, so that none can be folded."""
    return cfg.original_architecture in WRITE_NORM


def _config_json(folder: Path) -> Mapping[str, Any]:
    """The ``config.json`` of a folder, if it describes a model of ``transformers``."""
    path = folder / CONFIG
    if not path.is_file():
        return {}
    try:
        fields: Any = read_json(path, MAX_CONFIG_BYTES)
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} does not describe a model: {reason(error)}.") from error
    return fields if isinstance(fields, dict) and "model_type" in fields else {}  # pyright: ignore[reportUnknownVariableType]
