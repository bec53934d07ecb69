"""One frozen class per TOML table; the docstring under a field is its help."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

NAME = r"^\w[\w.\-]*$"
"""Names of runs and stages are names of folders."""
TrackerName = Literal["console", "jsonl", "rollouts", "tensorboard", "wandb"]


class Section(BaseModel):
    """A table of settings: immutable, and an unknown key is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LoraSettings(Section):
    """Low-rank adapters on every linear layer, through peft."""

    rank: PositiveInt = 16
    """Rank of the adapters."""
    alpha: PositiveFloat = 32.0
    """Scale: the update is multiplied by alpha / rank."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the adapters' input while learning."""


class TinySettings(Section):
    """The embedded default: a Llama made on the spot, with a BPE tokenizer trained on the tasks'
    own text.
    """

    vocabulary: PositiveInt = 512
    """Size of the tokenizer's vocabulary."""
    width: PositiveInt = 128
    """Hidden size."""
    layers: PositiveInt = 4
    """Number of blocks."""
    heads: PositiveInt = 4
    """Attention heads; width / heads of 32 or more lets vLLM serve it."""
    context: PositiveInt = 512
    """Longest sequence in tokens."""


class PolicySettings(Section):
    """The model that is trained."""

    model: str = "tiny"
    """`tiny`, a Hugging Face model directory (full or adapter), or a hub name."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type the model computes in; what is trained has float32 masters all the same, so that no
    small update is lost."""
    float32_head: bool = False
    """Compute the last projection, to the logits, in float32 whatever the `dtype`: slower, without
    rounded logits."""
    quantize: Literal["nf4"] | None = None
    """Hold the frozen weights in 4 bits (QLoRA), through bitsandbytes: needs the extra `quant`, and
    `lora`."""
    checkpointing: bool = False
    """Keep no activations inside blocks but compute them again: less memory, a third more time, the
    same result."""
    device: str = "auto"
    """`auto` takes a GPU when there is one; else `cpu`, `cuda`, `cuda:1`."""
    trust_remote_code: bool = False
    """Whether a hub model may run its own Python code in this process."""
    chat: Literal["auto", "template", "text"] = "auto"
    """How it is asked: by its chat `template`, or with `text` to continue; `auto` takes a template
    if there is one."""
    lora: LoraSettings | None = None
    """Train adapters instead of all weights; a model that is an adapter already keeps its rank and
    alpha."""
    tiny: TinySettings = TinySettings()
    """Shape of the tiny policy, when `model` is `tiny`."""


class EngineSettings(Section):
    """How completions are written."""

    name: Literal["torch", "vllm"] = "torch"
    """`torch` writes in this process, with the policy's own weights; `vllm` has servers write."""
    tokens: PositiveInt = 65_536
    """Tokens of prompts and completions held in the cache at once; lower it when memory runs
    out."""
    dtype: Literal["policy", "bfloat16"] = "policy"
    """Type of the weights that write; `bfloat16` keeps a copy, whose log-probabilities are off by
    about 0.01."""
    servers: tuple[str, ...] = ()
    """URLs of vLLM servers that run already; without any, one is started here and ended with the
    run."""
    python: str = ""
    """Interpreter of the environment that has vLLM, to start a server with; empty is this one."""
    arguments: tuple[str, ...] = ()
    """More arguments for the server that is started: `["--tensor-parallel-size", "2"]`."""
    weights: Literal["files", "nccl"] = "files"
    """How full weights reach the servers: files in shared memory, or from GPU to GPU. Adapters are
    always files."""
    unfinished: Literal["auto", "interrupt", "finish"] = "auto"
    """When weights come for servers, what they write goes on with those, read anew, or is finished
    with the old ones first; `auto` interrupts where reading is cheap beside writing: on a GPU."""
    handover: str = ""
    """Folder for those files, under the same path for trainer and servers; empty is this machine's
    shared memory."""


class TaskSettings(Section):
    """What is learned from."""

    train: str
    """A task set and split: `drills:train`, `humaneval`, `mbpp:train`, a path to a .jsonl file."""
    limit: PositiveInt | None = None
    """Take only the first so many tasks."""


class DatasetSettings(Section):
    """How demonstrations are served to SFT."""

    batch: PositiveInt = 64
    """Rows per step: dialogues, or the pairs of a file."""


class RolloutSettings(Section):
    """How completions are sampled for RL."""

    tasks_per_step: PositiveInt = 32
    """Tasks in one step."""
    group: PositiveInt = 8
    """Completions of each task."""
    max_tokens: PositiveInt = 512
    """Longest completion in tokens."""
    temperature: PositiveFloat = 1.0
    """Softmax temperature of sampling; the learner uses the same."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling; 1 turns it off. Below 1 rollouts are slightly off-policy: the learner knows
    no nucleus."""
    top_k: int = Field(0, ge=0)
    """Only the likeliest so many tokens; 0 is all. Off-policy as `top_p` is."""
    min_p: float = Field(0.0, ge=0, lt=1)
    """Only tokens at least this likely in proportion to the likeliest. Off-policy as `top_p` is."""
    lag: int = Field(0, ge=0)
    """Versions of the weights that rollouts may be behind what learns; 0 is synchronous, 1 writes
    while it learns."""
    ahead: int | None = Field(None, ge=1)
    """Groups begun beyond those that a step takes; by default `lag` steps' worth. Fewer only spare
    a step the wait for its longest: those are carried into the next."""
    score_turns: bool = False
    """Whether each judged turn is scored and learned from by itself, not the rollout by its end."""
    turn_discount: float = Field(0.4, ge=0, le=1)
    """What a later turn's score counts for the one before it, under `score_turns`."""


class OptimizerSettings(Section):
    """AdamW and its schedule."""

    lr: PositiveFloat | None = None
    """Peak learning rate; by default 1e-6 for RL and 1e-5 for SFT, ten times that for LoRA, 300
    times for `tiny`."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay of the two moments."""
    eps: PositiveFloat = 1e-8
    """Added to the denominator."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled, on matrices only."""
    clip: PositiveFloat = 1.0
    """Largest norm of the gradient; beyond it the gradient is scaled down."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the rate does after warm-up: stays, or falls to zero at the last step."""
    warmup: int = Field(0, ge=0)
    """Steps over which the rate rises from zero."""


class LearnerSettings(Section):
    """How a batch is cut into pieces that fit in memory."""

    micro_batch_tokens: PositiveInt = 16_384
    """Tokens in one forward and backward pass, padding counted, a shared prompt once; changes
    memory and speed only."""


class JudgeSettings(Section):
    """Limits of a judged program and the number judged at once."""

    slots: PositiveInt | None = None
    """Programs judged at once; by default the processors this process may use."""
    cpu_seconds: PositiveFloat = 4.0
    """CPU time of one program under all its checks."""
    wall_seconds: PositiveFloat = 20.0
    """Wall time, a backstop for sleepers."""
    memory_mb: PositiveInt = 512
    """Memory of one program in MiB."""
    archive: str | None = None
    """A file of verdicts that outlives the run: a program that was judged before is not run
    again."""
    allow_weak_isolation: bool = False
    """Judge even where this machine cannot keep a candidate from the user's files (see `assay
    doctor`)."""


class EvaluateSettings(Section):
    """How a policy is measured."""

    tasks: str
    """A task set and split that is not trained on."""
    limit: PositiveInt | None = None
    """Take only the first so many tasks."""
    samples: PositiveInt = 8
    """Completions per task; 1 with temperature 0 is greedy decoding."""
    temperature: float = Field(1.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling; 1 turns it off."""
    top_k: int = Field(0, ge=0)
    """Only the likeliest so many tokens; 0 is all."""
    min_p: float = Field(0.0, ge=0, lt=1)
    """Only tokens at least this likely in proportion to the likeliest."""
    max_tokens: PositiveInt = 512
    """Longest completion in tokens."""
    every: int = Field(0, ge=0)
    """Also every so many steps; 0 is only at the end of the stage."""
    before: bool = False
    """Also before the first step, reported as `base`."""


class SaveSettings(Section):
    """Checkpoints on the way; the last step is always saved."""

    every: int = Field(0, ge=0)
    """Every so many steps; 0 is only the last."""
    keep: PositiveInt = 2
    """How many are kept, the newest."""
    best: Literal["evaluate/pass@1"] | None = None
    """Also keep the best by this number; then every evaluation has its checkpoint."""


class RunSettings(Section):
    """One stage of training, completely described."""

    name: str = Field("run", pattern=NAME)
    """Name of the run: its folder is `folder`/`name`."""
    stage: str = Field("", pattern=NAME)
    """Name of this stage within the run; its folder lies in the run's. Set by `[stages.NAME]`."""
    folder: str = "runs"
    """Where runs are kept."""
    seed: int = 0
    """Every random draw follows from it."""
    steps: PositiveInt | None = None
    """Optimizer batches to learn from."""
    epochs: PositiveFloat | None = None
    """Passes over the training tasks or demonstrations, instead of `steps`."""
    plugins: tuple[str, ...] = ()
    """Python files of yours that register tasks, rewards or algorithms; relative to this file."""
    trackers: tuple[TrackerName, ...] = ("console", "jsonl", "rollouts")
    """Where numbers and rollouts go."""
    algorithm: dict[str, Any]
    """`name`, and the algorithm's own settings."""
    rewards: dict[str, dict[str, Any]] = {"tests": {}}
    """Terms of the reward by name, each with `weight` and its own parameters; the reward is their
    weighted sum."""
    policy: PolicySettings = PolicySettings()
    """The model that is trained."""
    tasks: TaskSettings
    """What is learned from."""
    dataset: DatasetSettings = DatasetSettings()
    """How demonstrations are served."""
    rollout: RolloutSettings = RolloutSettings()
    """How completions are sampled."""
    environment: dict[str, Any] = {"name": "single_turn"}
    """What happens between the completions of a rollout: `name`, and the environment's own
    parameters."""
    engine: EngineSettings = EngineSettings()
    """What writes the completions."""
    optimizer: OptimizerSettings = OptimizerSettings()
    """AdamW and its schedule."""
    learner: LearnerSettings = LearnerSettings()
    """How a batch is cut into micro-batches."""
    judge: JudgeSettings = JudgeSettings()
    """Limits of judged programs."""
    evaluate: EvaluateSettings | None = None
    """How the policy is measured; absent: not at all."""
    save: SaveSettings = SaveSettings()
    """Checkpoints on the way."""

    @model_validator(mode="after")
    def _ahead_needs_a_lag(self) -> RunSettings:
        if self.rollout.ahead is not None and not self.rollout.lag:
            raise ValueError(
                "`rollout.ahead` needs a `rollout.lag`: what is begun ahead has older weights"
            )
        return self

    @model_validator(mode="after")
    def _four_bits_are_not_copied(self) -> RunSettings:
        copied = self.engine.name == "torch" and (self.rollout.lag or self.engine.dtype != "policy")
        if self.policy.quantize and copied:
            raise ValueError(
                "a quantized model is not copied: use `rollout.lag = 0` and `engine.dtype ="
                " 'policy'`"
            )
        return self

    @model_validator(mode="after")
    def _lengths_and_names_are_given(self) -> RunSettings:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either `steps` or `epochs`")
        if not isinstance(self.algorithm.get("name"), str):
            raise ValueError("`algorithm.name` is missing: see `assay list`")
        if self.stage == "base":
            raise ValueError(
                "a stage cannot be called `base`: the report calls the untrained policy that"
            )
        return self
