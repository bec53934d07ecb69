"""The tables [engine] and [prompt]: how a task is put to a model, and how it answers."""

from __future__ import annotations

from string import Formatter
from typing import Any, Literal, NamedTuple

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from assay.config.section import Section
from assay.suggestions import suggest


class EngineKind(NamedTuple):
    """What others ask of an engine, whichever it is."""

    decisive: set[str]
    """The settings that may change a completion."""
    in_process: bool = False
    """It generates with the policy itself, or with a copy in this process."""
    hosted: bool = False
    """The model is elsewhere: it has no weights here, and gives text only."""


KINDS = {
    "torch": EngineKind({"name", "dtype"}, in_process=True),
    "vllm": EngineKind({"name", "dtype", "arguments"}),
    "tinker": EngineKind({"name"}),
    "openai": EngineKind({"name", "servers", "request"}, hosted=True),
}
"""By the name of an engine that comes with assay."""
PLUGGED_IN = EngineKind({"name", "dtype", "servers", "arguments", "request"})
"""An engine of the user's. It holds its own copy of the weights, as a server does."""


REPORTED = {"seed": "`seed`"} | {
    name: f"`evaluate.{name}`" for name in ("max_tokens", "temperature", "top_p", "top_k", "min_p")
}
"""Fields of a request that are settings of their own, which reports show."""


class EngineSettings(Section):
    """How completions are generated."""

    name: str = "torch"
    """`torch` generates in this process with the policy's own weights. `vllm` uses vLLM servers.
    `tinker` asks the server that learns (`learner.name = "tinker"`). `openai` asks any
    OpenAI-compatible endpoint for `policy.model`, in evaluations only. Any other name is a
    plug-in's."""
    kv_cache_tokens: PositiveInt = 65_536
    """Size of the KV cache in tokens (prompts and completions)."""
    dtype: Literal["policy", "bfloat16"] = "policy"
    """Data type of the weights that generate. `bfloat16` copies the `policy`; log-probabilities
    differ by 0.01 (5M parameters) to 0.05 (135M)."""
    servers: tuple[str, ...] = ()
    """URLs of running vLLM servers. Without any, assay starts its own for each stage. For `openai`,
    the endpoint's URL up to `/v1`; the environment variable `OPENAI_API_KEY` holds its key."""
    data_parallel: PositiveInt = 1
    """vLLM servers that assay starts, each with the whole model."""
    tensor_parallel: PositiveInt = 1
    """GPUs over which each server splits the model."""
    gpus: tuple[NonNegativeInt, ...] = ()
    """GPUs of those servers, `tensor_parallel` for each in turn, such as `[1, 2, 3]` beside a
    trainer on GPU 0. Empty: every server sees all."""
    python: str = ""
    """Python interpreter of an environment with vLLM, to start servers. Empty: the current one."""
    arguments: tuple[str, ...] = ()
    """More command-line arguments of those servers, such as `["--max-num-batched-tokens",
    "16384"]`."""
    weights_folder: str = ""
    """Folder through which weights are synced; trainer and servers see it under the same path.
    Empty: this machine's shared memory."""
    max_concurrent: PositiveInt = 16
    """Requests to an `openai` endpoint or a Tinker server at once."""
    timeout_seconds: PositiveFloat = 600.0
    """Longest wait for an answer of an `openai` endpoint."""
    request: dict[str, Any] = Field({})
    """More fields of each request to an `openai` endpoint, such as `reasoning_effort = "low"`. An
    empty text leaves out one of ours, such as `seed = ""`, which the report then says."""

    @model_validator(mode="after")
    def _servers_fit_together(self) -> EngineSettings:
        needed = self.data_parallel * self.tensor_parallel
        if self.gpus and len(set(self.gpus)) != needed:
            raise ValueError(
                f"`gpus` names {len(set(self.gpus))} GPUs, and {self.data_parallel} servers of"
                f" {self.tensor_parallel} need {needed}"
            )
        if self.servers and (needed > 1 or self.gpus):
            raise ValueError(
                "`data_parallel`, `tensor_parallel` and `gpus` are for servers that assay starts;"
                " those in `servers` run already"
            )
        if self.servers and self.kind.in_process:
            raise ValueError(
                "`servers` need another `engine.name`: 'openai' asks any OpenAI-compatible endpoint"
                " (`assay eval --engine openai --url URL`), 'vllm' puts assay's weights into vLLM"
                " servers; 'torch' asks none"
            )
        if any("@" in url for url in self.servers):
            raise ValueError("a URL in `servers` holds a password; put it into OPENAI_API_KEY")
        for name, setting in REPORTED.items():
            if self.request.get(name, "") != "":
                raise ValueError(f"write {setting} in place of `request.{name}`: it is reported")
        if self.kind.hosted and len(self.servers) != 1:
            raise ValueError(
                f"`name = {self.name!r}` needs one URL, such as `servers ="
                " 'http://localhost:8000/v1'`"
            )
        return self

    @property
    def left_out(self) -> list[str]:
        """Names of our fields that `request` leaves out."""
        return sorted(name for name, value in self.request.items() if value == "")

    @property
    def kind(self) -> EngineKind:
        """What differs between engines."""
        return KINDS.get(self.name, PLUGGED_IN)

    def copies_policy(self, overlaps: bool) -> bool:
        """Whether it holds a copy of the policy here. `overlaps`: it generates during learning."""
        return self.kind.in_process and (overlaps or self.dtype != "policy")


PLACEHOLDERS = ("prompt", "stub", "entry_point", "language", "Language", "dialect", "interface")
"""What a prompt template may hold; `interface` is the sentence that says what the program is."""


class PromptSettings(Section):
    """How a task is put to the model: see data.md."""

    system: str = ""
    """System prompt."""
    template: str = ""
    """Text of the prompt, with placeholders. Empty: the default."""
    examples: tuple[tuple[str, str], ...] = ()
    """Few-shot examples: pairs of a prompt and its answer."""
    chat_template_kwargs: dict[str, Any] = Field({})
    """Arguments of the model's chat template, such as `enable_thinking = false`."""
    reasoning: Literal["", "think", "reasoning"] = ""
    """Ask for reasoning in tags of this name, then an `<answer>`."""

    @field_validator("template")
    @classmethod
    def _has_known_placeholders(cls, template: str) -> str:
        try:
            names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
        except ValueError as error:
            raise ValueError(f"{error}; write a brace that is no placeholder twice") from None
        for name in names.difference(PLACEHOLDERS):
            offer = suggest(name, list(PLACEHOLDERS))
            raise ValueError(f"unknown placeholder {{{name}}}; {offer} (write other braces twice)")
        if template and names.isdisjoint(("prompt", "stub")):
            raise ValueError("the template shows no task: add {prompt} or {stub}")
        return template
