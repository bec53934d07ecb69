"""What the name of a model stands for. It is read here alone: everything else gets a ModelSource.

Nothing here imports torch, so that a typo is answered at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from assay.config.model_names import TINY, is_tiny
from assay.config.sections import PolicySettings, TinySettings
from assay.content import digest_of
from assay.errors import AssayError, ModelError, SettingsError
from assay.hub import hub_or_copies, why_no_copy
from assay.paths import real_path
from assay.policy.adapters import ADAPTER, adapter_config, is_adapter
from assay.policy.checkpoints import best_of, checkpoints_of, newest_whole
from assay.policy.gguf import READY, as_folder, is_gguf
from assay.policy.tokenizer import describe_source, load_tokenizer, why_not_loaded
from assay.progress import Progress
from assay.suggestions import is_one_edit, suggest

Kind = Literal["tiny", "folder", "adapter", "checkpoint", "run", "gguf", "hub", "endpoint"]
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Names that configurations use for the number of experts."""
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "spiece.model",
)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the configuration of a model says."""

    name: str
    """As the settings have it."""
    width: int
    """The hidden size."""
    context: int | None
    """The context length in tokens; None if it does not say."""
    is_mixture: bool
    """Whether it is a mixture of experts."""


@dataclass(frozen=True)
class ModelSource:
    """A model that settings name, and where its parts are."""

    name: str
    """As the settings have it; in place of a run or a stage, the checkpoint that it stands for."""
    kind: Kind
    """`run` is a checkpoint that was named by its run or stage, `gguf` a file or a ready model,
    `endpoint` a name that a server knows. `tiny` has no files before a run makes them."""
    base: str
    """The full model: itself, or what its adapter adapts. A folder has an absolute path."""
    tokenizer: str
    """Where the tokenizer is: with the model, or with the base of an adapter that has none."""
    adapter: Path | None = None
    """The folder of its adapter, if it is one."""
    trust_remote_code: bool = False
    shape: TinySettings | None = None
    """Of the built-in model; None of any other."""

    @property
    def is_here(self) -> bool:
        """Whether its configuration can be read without a download or a conversion."""
        return self.shape is not None or Path(self.base).is_dir()

    @property
    def path(self) -> Path | None:
        """The folder or file that it is on this disk; None of any other."""
        path = Path(self.name).resolve()
        return path if self.shape is None and path.exists() else None

    @property
    def digest(self) -> str:
        """Of the content of `path`; empty without one."""
        path = self.path
        return digest_of(path, as_tree=False) if path else ""

    @property
    def folder(self) -> Path | None:
        """The folder of its weights, or of its adapter's; None where that is not here."""
        folder = self.adapter or Path(self.base)
        return folder if self.shape is None and folder.is_dir() else None

    @property
    def facts(self) -> ModelFacts:
        """What its configuration says. Raises ModelError for one that cannot be loaded."""
        if self.shape:
            return ModelFacts(self.name, self.shape.width, self.shape.context, is_mixture=False)
        config = self.config.get_text_config()
        context, mixes = context_of(config), is_mixture(config)
        return ModelFacts(self.name, int(config.hidden_size), context, mixes)

    @cached_property
    def config(self) -> Any:
        """The configuration of the full model, loaded once. Raises ModelError."""
        from transformers import AutoConfig

        self.require_made()
        with self.loading():
            return AutoConfig.from_pretrained(self.base, trust_remote_code=self.trust_remote_code)

    def load_tokenizer(self) -> Any:
        """A tokenizer of the model. Raises ModelError."""
        self.require_made()
        return load_tokenizer(self.tokenizer, self.trust_remote_code)

    def load_base_tokenizer(self) -> Any:
        """That of an adapter's base, where both have one; else None. Raises ModelError."""
        if self.adapter is None or self.tokenizer == self.base or not _has_tokenizer(self.base):
            return None
        return load_tokenizer(self.base, self.trust_remote_code)

    def converted(self, progress: Progress | None = None) -> "ModelSource":
        """The model with a GGUF file or a ready model converted into a folder, once. Raises
        ModelError for one that cannot be converted, SettingsError without the package for it.
        """
        if not is_gguf(self.base):
            return self
        base = as_folder(self.base, progress)
        return replace(self, base=base, tokenizer=base if self.tokenizer == self.base
                       else self.tokenizer)  # fmt: skip

    def require_made(self) -> None:
        """Raises SettingsError for the built-in model, which has no files yet."""
        if self.shape is not None:
            raise SettingsError(
                f"setting 'policy.model' = {self.name!r} is made by a training run; name the run's"
                " folder or a checkpoint, such as --model runs/demo"
            )

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Turns errors of the libraries into ours, in one line. Where there is no hub, a name is
        looked up among the copies that its client has, and at once.
        """
        try:
            with nullcontext() if Path(self.base).exists() else hub_or_copies(self.base):
                yield
        except (AssayError, MemoryError):
            raise
        except Exception as error:  # broken files and remote code raise anything
            adapter = f"adapter {self.name!r}, of " if self.adapter else ""
            if why := why_no_copy(error):
                raise ModelError(f"{adapter}model {self.base!r} is not there: {why}") from error
            raise ModelError(
                f"{adapter}model {describe_source(self.base)} cannot be loaded:"
                f" {why_not_loaded(error)}"
            ) from error


def source_of(
    settings: PolicySettings, started_from: Path | None = None, *, needs_tokenizer: bool = True
) -> ModelSource:
    """What `policy.model` stands for. Files are looked at; nothing is loaded or converted. A folder
    without a tokenizer is refused, except where only the model's shape is asked for.

    A run or a stage stands for one of its checkpoints: `started_from` where that is one, else the
    last stage's best, or else the newest whole one. Raises ModelError for what is no model,
    DataError where all checkpoints are broken.
    """
    name = settings.model
    if is_tiny(name):
        return ModelSource(name, "tiny", name, name, shape=settings.tiny)
    if not (checkpoints := checkpoints_of(Path(name))):
        return _source(settings, name, needs_tokenizer)
    best = best_of(checkpoints[-1].parents[1])
    checkpoint = next((path for path in checkpoints if real_path(path) == started_from), None)
    checkpoint = checkpoint or newest_whole([*checkpoints, *([best] if best else [])])
    return replace(_source(settings, str(checkpoint)), kind="run")


def evaluated_sources(settings: PolicySettings, every: bool) -> list[ModelSource]:
    """The models that an evaluation asks: the newest checkpoint of a run or stage, or `every` one;
    or the only model that is named.

    Raises SettingsError for the built-in model, and for `every` of what has no checkpoints.
    """
    checkpoints = [] if is_tiny(settings.model) else checkpoints_of(Path(settings.model))
    if every and not checkpoints:
        raise SettingsError(
            f"every_checkpoint: {settings.model} is no folder of a run or stage with checkpoints"
        )
    if not checkpoints:
        source = source_of(settings)
        source.require_made()
        return [source]
    checkpoints = checkpoints if every else [newest_whole(checkpoints)]
    return [replace(_source(settings, str(path)), kind="run") for path in checkpoints]


def hosted_source(settings: PolicySettings) -> ModelSource:
    """The model behind an endpoint: its name says nothing here."""
    name = settings.model
    return ModelSource(name, "endpoint", name, name)


def require_model(settings: PolicySettings) -> None:
    """Raises ModelError for a name at which there is nothing: a path that does not exist, or a
    word that is nearly the name of a model or a folder here.
    """
    if not is_tiny(settings.model):
        _require_path(settings.model)


def head_size(config: Any) -> int:
    """The width of an attention head of a transformers configuration."""
    heads = config.num_attention_heads
    return int(getattr(config, "head_dim", None) or config.hidden_size // heads)


def is_mixture(config: Any) -> bool:
    """Whether a transformers configuration is of a mixture of experts."""
    return any((getattr(config, name, 0) or 0) > 1 for name in EXPERTS)


def context_of(config: Any) -> int | None:
    """The context length in tokens of a transformers configuration; None if it does not say."""
    config = config.get_text_config()
    length = getattr(config, "max_position_embeddings", None)
    length = length or getattr(config, "n_positions", None)
    return int(length) if length else None


def _source(settings: PolicySettings, name: str, needs_tokenizer: bool = True) -> ModelSource:
    """Of any name but that of the built-in model or a run."""
    folder, remote = Path(name), settings.trust_remote_code
    base, is_adapted = _base_of(name, needs_tokenizer), is_adapter(name)
    kind: Kind = "gguf" if is_gguf(name) else "hub"
    if folder.is_dir():
        is_checkpoint = folder.resolve().parent.name == "checkpoints"
        kind = "checkpoint" if is_checkpoint else "adapter" if is_adapted else "folder"
    tokenizer = base if is_adapted and not _has_tokenizer(name) else name
    return ModelSource(name, kind, base, tokenizer, folder if is_adapted else None, remote)


def _base_of(name: str, needs_tokenizer: bool = True) -> str:
    """The full model behind `name`: itself, or the base model of an adapter's folder.

    Raises ModelError for a folder that lacks its configuration or its tokenizer.
    """
    folder = Path(name)
    if not folder.is_dir():
        _require_path(name)
        return name
    files = {path.name for path in folder.iterdir()}
    if not files & {"config.json", ADAPTER}:
        raise ModelError(
            f"model directory {name!r} holds no config.json; is it a Hugging Face model directory?"
        )
    if ADAPTER not in files:
        if needs_tokenizer and not _has_tokenizer(name):
            raise ModelError(
                f"model directory {name!r} holds no tokenizer; save one there with"
                f" tokenizer.save_pretrained({name!r})"
            )
        return str(folder.resolve())
    base = adapter_config(folder).get("base_model_name_or_path")
    if not base:
        raise ModelError(
            f"adapter directory {name!r} does not say which model it adapts"
            " (base_model_name_or_path)"
        )
    if is_adapter(base):
        raise ModelError(f"adapter {name!r} adapts the adapter {base!r}: merge that first")
    try:
        needed = needs_tokenizer and not _has_tokenizer(name)
        return _base_of(str(base), needs_tokenizer=needed)
    except ModelError as error:
        raise ModelError(
            f"adapter {name!r} needs its base, but {error}; correct base_model_name_or_path in"
            f" its {ADAPTER}"
        ) from error


def _has_tokenizer(name: str) -> bool:
    """Whether a folder has a tokenizer; a hub name counts as one that has."""
    folder = Path(name)
    return not folder.is_dir() or any((folder / file).is_file() for file in TOKENIZER_FILES)


def _require_path(name: str) -> None:
    path = Path(name)
    is_path = path.is_absolute() or name.startswith((".", "~", "runs/")) or name.count("/") > 1
    is_run = "/" in name and any(path.parent.glob("*/[!.]*/config.toml"))  # beside other runs
    if not path.exists() and (is_path or is_run or path.suffix == ".gguf"):
        what = "GGUF file" if path.suffix == ".gguf" else "model directory"
        raise ModelError(f"{what} {name!r} does not exist{_near(path)}")
    if not path.exists() and "/" not in name:
        for word in (TINY, *READY):
            if is_one_edit(name, word):
                raise ModelError(
                    f"no model {name!r}: did you mean {word!r}? A name on the Hugging Face hub is"
                    " OWNER/NAME"
                )


def _near(path: Path) -> str:
    """A clause that offers what lies beside a path and has nearly its name; empty for nothing."""
    folder = path.parent
    beside = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    offer = suggest(path.name, beside)
    return f"; {offer}" if offer.startswith("did you mean") else ""
