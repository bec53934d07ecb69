"""One frozen class per TOML table. The docstring under a field is its help text."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from assay.config.generation import EngineSettings, PromptSettings
from assay.config.model_names import TINY
from assay.config.section import Section
from assay.config.warning_names import WarningName
from assay.suggestions import suggest

NAME = r"^\w[\w.\-]*$"
"""Runs and stages are named after their folders."""
Beta = Annotated[float, Field(ge=0, lt=1)]
TrackerName = Literal["console", "jsonl", "rollouts", "tensorboard", "wandb", "trackio"]

ROW_FILE_SETTINGS = ("pairs", "labels")
"""Settings of algorithms that name a file to learn from in place of tasks."""


class LoraSettings(Section):
    """LoRA adapters on every linear layer, through peft."""

    rank: PositiveInt = 16
    """Rank of the adapters."""
    alpha: PositiveFloat = 32.0
    """Scale: the update is multiplied by alpha / rank."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the adapters' input during training."""


class TinySettings(Section):
    """The built-in model: a small, random Llama and a BPE tokenizer trained on the tasks' text."""

    vocabulary: PositiveInt = 512
    """Size of the tokenizer's vocabulary."""
    width: PositiveInt = 128
    """Hidden size."""
    layers: PositiveInt = 4
    """Number of layers."""
    heads: PositiveInt = 4
    """Attention heads. vLLM on a CPU needs width / heads of 32, 64 or 128."""
    context: PositiveInt = 512
    """Context length in tokens."""


class PolicySettings(Section):
    """The model that is trained."""

    model: str = TINY
    """`tiny`, `smollm2`, a folder with a Hugging Face model or adapter, a run or stage (the best
    checkpoint with `save.best`, else the newest), a GGUF file, or a name on the Hugging Face hub
    (recipes.md, "Models")."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Data type of forward and backward passes. Trained weights have float32 master copies. `auto`:
    `bfloat16` from 512 hidden units on, if the GPU or processor has instructions for it; else
    `float32`."""
    float32_lm_head: bool = False
    """Compute the LM head (the logits) in float32 whatever the `dtype` is; slower."""
    quantize: Literal["nf4"] | None = None
    """Quantize the frozen weights to 4 bits (QLoRA) with bitsandbytes. Needs `lora`, or an adapter
    as `model`, and `pip install -e '.[quant]'`."""
    gradient_checkpointing: bool | Literal["offload"] = False
    """Recompute activations in the backward pass: less memory, a third more time, the same
    results. `offload` moves what is left of them, each layer's input, to host memory."""
    device: str = "auto"
    """`auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:1`."""
    trust_remote_code: bool = False
    """Allow a model to run its own Python code in this process. Saved settings of a run cannot."""
    chat: Literal["auto", "template", "text"] = "auto"
    """Prompts by the model's chat `template`, or as plain `text` to continue. `auto` uses the
    template if there is one."""
    lora: LoraSettings | None = None
    """Train LoRA adapters instead of all weights. A model that already is an adapter keeps its rank
    and alpha: leave this out."""
    tiny: TinySettings = TinySettings()
    """Shape of the built-in model, for `model = "tiny"`."""


class ScreenSettings(Section):
    """Before RL, sample the training tasks, and train on those that the model solves sometimes."""

    samples: int = Field(16, ge=2)
    """Most completions of a task. It has fewer where the rest could not change the decision."""
    first: PositiveInt = 4
    """Completions of a task in the first round. Each further round has twice as many in all, for
    the tasks that are undecided."""
    at_least: int = Field(1, ge=0)
    """Keep a task only if this many of `samples` pass, or more."""
    at_most: int | None = None
    """Keep it only if no more pass than this. Default: all `samples` but one."""

    @model_validator(mode="after")
    def _bounds_leave_something(self) -> ScreenSettings:
        most = self.samples - 1 if self.at_most is None else self.at_most
        if not self.at_least <= most <= self.samples:
            raise ValueError(
                f"`at_least` {self.at_least} and `at_most` {most} leave nothing of {self.samples}"
                " samples; write them in order, or raise `samples`"
            )
        return self


class ReplaySettings(Section):
    """In RL, learn again from the passes of tasks that are seldom solved: choosing-tasks.md."""

    share: float = Field(0.05, gt=0, le=0.1)
    """Largest share of replayed tokens among those of a step that teach."""
    keep: PositiveInt = 1
    """Passing rollouts that are kept of each task, the newest ones."""
    below: float = Field(0.2, gt=0, le=1)
    """A task is hard, and its passes are replayed, while its rate is below this."""
    oldest: PositiveInt = 8
    """Weight updates after which a rollout is not replayed any more."""


class TaskSettings(Section):
    """The training tasks."""

    train: tuple[str, ...] = ()
    """Task sets and splits, such as `drills:train` or `humaneval`, or .jsonl files. DPO
    on `algorithm.pairs` and KTO on `algorithm.labels` need none."""
    weights: tuple[PositiveFloat, ...] = ()
    """Shares of the sets of `train`, such as `[3, 1]`. Default: their sizes. An epoch has every
    task at least once, and those of a small set with a large share several times."""
    limit: PositiveInt | None = None
    """Use only the first tasks of each set, up to this number."""
    checks: PositiveInt | None = None
    """Judge by only the first checks of each task, up to this number."""
    held_out: int = Field(0, ge=0)
    """Hidden checks of each task that RL holds out of the reward: rewards.md."""
    too_long: Literal["refuse", "drop"] = "refuse"
    """A prompt that leaves no room for `rollout.max_tokens` in the context, or a dialogue or pair
    longer than it: `refuse` the run, or `drop` and count it."""
    screen: ScreenSettings | None = None
    """Screen the tasks before RL. Absent: train on all."""
    choice: dict[str, Any] = Field({})
    """Which task RL samples next: `name` and parameters. Default: `uniform`."""
    replay: ReplaySettings | None = None
    """Replay passes of hard tasks. Absent: each rollout is learned from once."""

    @property
    def spec(self) -> str:
        """The training sets in one line."""
        return ", ".join(self.train)

    @model_validator(mode="after")
    def _each_set_has_one_weight(self) -> TaskSettings:
        if len(set(self.train)) < len(self.train):
            raise ValueError("`train` names a task set twice; give it a larger weight")
        if len(self.weights) not in (0, len(self.train)):
            raise ValueError(f"`weights` has {len(self.weights)}, and `train` {len(self.train)}")
        return self


class DatasetSettings(Section):
    """Batches of SFT, and of DPO and KTO on a file."""

    batch_size: PositiveInt = 64
    """Rows in one step: dialogues, pairs, or labelled completions."""
    assistant_turns: Literal["all", "last"] = "all"
    """Of a row's `messages`, SFT learns `all` replies or the `last`."""


class RolloutSettings(Section):
    """How completions are sampled for RL."""

    tasks_per_step: PositiveInt = 32
    """Tasks (prompts) in one step."""
    group_size: PositiveInt = 8
    """Completions of each task."""
    max_tokens: PositiveInt = 512
    """Longest completion in tokens."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature. The learner uses the same."""
    max_staleness: int = Field(0, ge=0)
    """Weight updates that a rollout may lag behind the learner. 0 is synchronous (on-policy); from
    1 on asynchronous: the engine generates during training."""
    prefetch_groups: int | None = Field(None, ge=1)
    """Extra groups to start early. Default: `max_staleness` steps' worth. A small number only
    carries stragglers over to the next step."""
    score_turns: bool = False
    """Give every judged turn its own reward, instead of one for the rollout: environments.md."""


class OptimizerSettings(Section):
    """AdamW and its learning rate schedule."""

    lr: PositiveFloat | None = None
    """Peak learning rate. Default: 1e-6 for RL and 1e-5 for SFT at 4,096 hidden units, more for
    narrower models (times 12 at 896, 300 at 128), times 10 for LoRA."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    """Decay rates of the first and second moments."""
    eps: PositiveFloat = 1e-8
    """Added to the denominator."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay, on matrices only."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients with a larger norm are clipped to it."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after warmup: `constant`, or `linear` or `cosine` decay to zero one step after
    the last."""
    warmup_steps: int = Field(0, ge=0)
    """Steps of linear warmup; the first of w has 1 / w of the rate."""


class LearnerSettings(Section):
    """Where the policy learns, and how a batch is split into micro-batches, and weights over
    ranks.
    """

    name: Literal["torch", "tinker"] = "torch"
    """`torch` learns in this process, or in those of `torchrun`; `tinker` on a Tinker server:
    tinker.md."""
    server: str = ""
    """URL of the Tinker server, for `tinker`. The environment variable `TINKER_API_KEY` holds its
    key."""
    reduction: Literal["sum", "sequence_mean"] = "sum"
    """How that server adds up the losses of tokens: their `sum`, as the interface says, or the mean
    over sequences of each one's mean, as SkyRL's on JAX does. The loss is then the same."""
    micro_batch_tokens: PositiveInt | None = None
    """Tokens in one forward and backward pass, with padding; a packed prompt that is shared counts
    once. Changes memory and speed, not results. Default: what takes a sixteenth of a processor's
    memory or a quarter of a GPU's, up to 16,384."""
    hybrid_shard: bool = False
    """Shard the weights over the ranks of one machine, with a copy on each machine: less traffic,
    more memory."""
    rank_minutes: PositiveFloat = 30.0
    """How long a rank waits for the others within a step before it ends the job. The first stage's
    counts."""


class JudgeSettings(Section):
    """Limits of the programs that the judge runs, and where it runs them."""

    servers: tuple[str, ...] = ()
    """URLs of `assay serve` services that judge in place of this process: service.md. The
    environment variable `ASSAY_TOKEN` holds their token."""
    slots: PositiveInt | None = None
    """Programs that run at once. Default: the CPU cores of this process."""
    cpu_seconds: PositiveFloat = 4.0
    """CPU time limit of one program for all its checks."""
    wall_seconds: PositiveFloat = 20.0
    """Wall time limit of one program, for programs that sleep."""
    memory_mb: PositiveInt = 512
    """Memory limit of one program in MiB."""
    verdict_cache: str | None = None
    """A file that keeps verdicts between runs. A program in it does not run again."""
    allow_weak_isolation: bool = False
    """Judge even if the sandbox here cannot keep programs away from your files (`assay doctor`)."""
    allow_forgeable: bool = False
    """Reward passes that the program could have forged (docs/judge.md, "Objects"). `assay check`
    names the tasks that need it."""

    @model_validator(mode="after")
    def _services_are_urls_without_secrets(self) -> JudgeSettings:
        for url in self.servers:
            parts = urlsplit(url)
            plain = parts.scheme in ("http", "https") and parts.hostname and not parts.path[1:]
            if not plain or parts.query or "@" in url or parts.port == 0:
                raise ValueError("each of `servers` is like http://host:8080, with nothing else")
        if len(set(self.servers)) < len(self.servers):
            raise ValueError("`servers` names a service twice")
        if self.servers and (self.slots or self.verdict_cache or self.allow_weak_isolation):
            raise ValueError(
                "`slots`, `verdict_cache` and `allow_weak_isolation` are of a judge in this"
                " process; leave them out, or leave `servers` out"
            )
        return self


class EvaluateSettings(Section):
    """How the policy is evaluated. Without this table, it is not."""

    tasks: tuple[str, ...] = Field(min_length=1)
    """Task sets and splits that are not trained on. Training compares checkpoints by the first."""
    limit: PositiveInt | None = None
    """Use only the first tasks of each set, up to this number."""
    greedy: bool = False
    """Evaluate greedy decoding too, one completion per task, as a row of its own."""
    samples: PositiveInt = 8
    """Completions per task."""
    temperature: float = Field(1.0, ge=0)
    """Sampling temperature; 0 is greedy decoding."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling; 1 turns it off."""
    top_k: int = Field(0, ge=0)
    """Sample from the k most likely tokens; 0 turns it off."""
    min_p: float = Field(0.0, ge=0, lt=1)
    """Drop tokens less likely than this share of the most likely one; 0 turns it off."""
    max_tokens: PositiveInt = 512
    """Longest completion in tokens."""
    max_lost: float = Field(0.01, ge=0, le=1)
    """Share of the completions that the machine may lose. Where more are lost, the command ends
    with exit code 3 after all is saved, and the checkpoint cannot be the best one."""
    axes: tuple[str, ...] = ()
    """Reward terms, such as `compiles`: pass@k is reported for each, over completions for which it
    gives more than 0."""
    every: int = Field(0, ge=0)
    """Number of steps between evaluations. 0: evaluate only at the end of the stage."""
    before: bool = False
    """Evaluate the untrained model too, reported as `base`, or as `STAGE base` for a later stage
    with its own `policy.model`."""


class SaveSettings(Section):
    """Checkpoints during training. The last step is always saved."""

    every: int = Field(0, ge=0)
    """Number of steps between checkpoints. 0: save only after the last step."""
    keep: PositiveInt = 2
    """Newest checkpoints that are kept."""
    best: Literal["evaluate/pass@1", "evaluate/reward"] | None = None
    """Also keep the best checkpoint by this metric. Every evaluation then saves one. The reward is
    the mean of what agents report."""


class DashboardSettings(Section):
    """The run on W&B and trackio; one run there holds all stages and resumes."""

    project: str = "assay"
    """Project of the run. W&B reads tags from the environment variable `WANDB_TAGS`."""


class RunSettings(Section):
    """One stage of training, completely described."""

    name: str = Field("run", pattern=NAME)
    """Name of the run; its folder is `folder`/`name`."""
    stage: str = Field("", pattern=NAME)
    """Name of this stage, and of its folder in the run's folder. Set by `[stages.NAME]`."""
    folder: str = "runs"
    """Folder of all runs."""
    seed: int = 0
    """Seed of all random numbers."""
    steps: PositiveInt | None = None
    """Training steps."""
    epochs: PositiveFloat | None = None
    """Passes over the training tasks or demonstrations, instead of `steps`."""
    plugins: tuple[str, ...] = ()
    """Python files that register tasks, kinds of tests, rewards, environments, algorithms,
    callbacks, choices of tasks or languages."""
    trackers: tuple[TrackerName, ...] = ("console", "jsonl", "rollouts")
    """Where metrics and rollouts are logged."""
    stop_if: tuple[str, ...] = ()
    """Warnings that end the run with exit code 2, such as `["collapse", "stale_engine"]`:
    troubleshooting.md. The step that gives one is not saved."""
    callbacks: dict[str, dict[str, Any]] = Field({})
    """Callbacks by name, each with its parameters. They are asked after each step and evaluation,
    and may end the stage: own.md."""
    dashboard: DashboardSettings = DashboardSettings()
    """Project on W&B and trackio."""
    algorithm: dict[str, Any] = Field({})
    """`name`, which has no default, and the settings of that algorithm."""
    rewards: dict[str, dict[str, Any]] = Field({"tests": {}})
    """Reward terms by name, each with its `weight` and parameters."""
    policy: PolicySettings = PolicySettings()
    """The model that is trained."""
    tasks: TaskSettings = TaskSettings()
    """The training tasks."""
    dataset: DatasetSettings = DatasetSettings()
    """Batches of SFT, and of DPO and KTO on a file."""
    rollout: RolloutSettings = RolloutSettings()
    """How completions are sampled."""
    environment: dict[str, Any] = Field({"name": "single_turn"})
    """What happens after a completion: `name` and parameters."""
    prompt: PromptSettings = PromptSettings()
    """How a task is put to the model."""
    engine: EngineSettings = EngineSettings()
    """How completions are generated."""
    optimizer: OptimizerSettings = OptimizerSettings()
    """AdamW and its learning rate schedule."""
    learner: LearnerSettings = LearnerSettings()
    """How a batch is split into micro-batches, and weights over ranks."""
    judge: JudgeSettings = JudgeSettings()
    """Limits of the programs that the judge runs."""
    evaluate: EvaluateSettings | None = None
    """How the policy is evaluated. Absent: no evaluation."""
    save: SaveSettings = SaveSettings()
    """Checkpoints during training."""

    @field_validator("stop_if")
    @classmethod
    def _warnings_exist(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in get_args(WarningName):
                raise ValueError(
                    f"names no warning: {name!r}; {suggest(name, get_args(WarningName))}"
                )
        return names

    def _require_all(self) -> None:
        """Raises ValueError that names all settings without a default, each with an example."""
        own_rows = any(self.algorithm.get(name) for name in ROW_FILE_SETTINGS)
        absent = {
            'algorithm.name = "grpo"': "name" not in self.algorithm,
            'tasks.train = "drills:train"': not (self.tasks.train or own_rows),
            "steps = 100": self.steps is None and self.epochs is None,
        }
        lines = [line for line, is_absent in absent.items() if is_absent]
        if lines:
            names = ", ".join(f"`{line.partition(' =')[0]}`" for line in lines)
            names = names.replace("`steps`", "`steps` (or `epochs`)")
            are = "are" if len(lines) > 1 else "is"
            raise ValueError(f"{names} {are} missing; write, for example, {', '.join(lines)}")

    def _require_one_server(self) -> None:
        """Raises ValueError where one of learner and engine is on a Tinker server."""
        names = self.learner.name, self.engine.name
        if "tinker" in names and set(names) != {"tinker"}:
            raise ValueError(
                "weights on a Tinker server learn and generate there: write both `learner.name ="
                " 'tinker'` and `engine.name = 'tinker'`, or neither"
            )
        if (self.learner.name == "tinker") != bool(self.learner.server):
            raise ValueError(
                "`learner.name = 'tinker'` and `learner.server`, the URL of a Tinker server, such"
                " as 'http://localhost:8000', need each other"
            )

    @model_validator(mode="after")
    def _settings_agree(self) -> RunSettings:
        self._require_one_server()
        if self.engine.kind.hosted:
            raise ValueError(
                f"`engine.name = {self.engine.name!r}` gives no token ids or log-probabilities, so"
                " it can only be evaluated (`assay eval`); train with `torch` or `vllm`"
            )
        if self.rollout.prefetch_groups is not None and not self.rollout.max_staleness:
            raise ValueError(
                "`rollout.prefetch_groups` needs `rollout.max_staleness` of at least 1, because"
                " groups that start early have older weights"
            )
        if self.policy.quantize and self.engine.copies_policy(self.rollout.max_staleness > 0):
            raise ValueError(
                "a quantized model cannot be copied: use `rollout.max_staleness = 0` and"
                " `engine.dtype = 'policy'`"
            )
        self._require_all()
        if self.callbacks and "jsonl" not in self.trackers:
            raise ValueError(
                '`callbacks` need "jsonl" in `trackers`: a resumed run reads there what the steps'
                " before it gave"
            )
        if self.steps is not None and self.epochs is not None:
            raise ValueError("write either `steps` or `epochs`")
        if not isinstance(self.algorithm["name"], str):
            raise ValueError("`algorithm.name` must be text in quotes; see `assay list algorithms`")
        if self.stage == "base":
            raise ValueError(
                "a stage cannot be named `base`: the report uses that name for the untrained model"
            )
        return self
