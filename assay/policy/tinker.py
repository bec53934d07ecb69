"""A LoRA adapter on a Tinker server, which trains it and samples from it, and the policy that
stands for it here. docs/tinker.md says which servers there are.
"""

import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from math import inf
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import Any

import httpx2
import torch

from assay.archives import tarfile
from assay.config.sections import RunSettings
from assay.errors import AssayError, MachineError, ModelError, SettingsError
from assay.files import saved_table, write_atomically
from assay.maths.seeds import derive
from assay.policy.adapters import WEIGHTS
from assay.policy.forward import Layouts, unwrap_model, use_layouts
from assay.policy.load_model import Policy, load_policy
from assay.policy.source import ModelSource
from assay.registry import one_line

STATE = Path("assay/tinker.json")
"""In a checkpoint: where on the server its state is."""
NO_KEY = "tml-none"
"""Sent where the environment has no TINKER_API_KEY: servers of one's own ask for none."""
REFUSALS = (400, 401, 403, 409, 413, 422)
"""Statuses of a request that would be refused again."""
ABSENT = 404
"""A name that the server does not know: the user's at the start, later a session that is gone."""
CONNECT_SECONDS = 20
"""A server that does not answer by then is named before anything is trained."""


@dataclass(frozen=True, slots=True)
class TinkerRow:
    """A sequence that the server computes, and what it learns of it."""

    tokens: list[int]
    """[T] the sequence up to its last predicted token."""
    logprobs: list[float]
    """[T - 1] those of all tokens but the first, as the server has computed them."""
    advantages: list[float]
    """[T - 1] minus the derivative of our loss in each of them."""


class RemoteAdapter:
    """A LoRA adapter of the model `base` on the server at `url`.

    It starts as a fresh one of this `rank`, or with the weights that were saved on the server as
    `state`.
    """

    def __init__(self, url: str, base: str, rank: int, seed: int, state: str = "") -> None:
        self.url, self._base, self._rank, self._seed, self._state = url, base, rank, seed, state
        self._training: Any = None
        _require_reachable(url)
        with _asking(url):
            import tinker

            key = os.environ.get("TINKER_API_KEY") or NO_KEY
            self._service = tinker.ServiceClient(base_url=url, api_key=key)

    @property
    def training(self) -> Any:
        """The server's side of it, made at its first use: only then is its start decided."""
        if self._training is None:
            with _asking(self.url, at_start=True):
                if self._state:
                    create = self._service.create_training_client_from_state
                    self._training = create(self._state)
                else:
                    self._training = self._service.create_lora_training_client(
                        self._base, rank=self._rank, seed=self._seed, train_unembed=False
                    )
        return self._training

    def at_start(self) -> "RemoteAdapter":
        """Another one that is as this was at its start."""
        return RemoteAdapter(self.url, self._base, self._rank, self._seed, self._state)

    def logprobs(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """For each row of T tokens, the log-probabilities of all but its first, [T - 1]."""
        data = [_datum(row, weights=[0.0] * (len(row) - 1)) for row in rows]
        with _asking(self.url):
            outputs = self.training.forward(data, "cross_entropy").result().loss_fn_outputs
            values = [output["logprobs"].to_numpy().tolist() for output in outputs]
        lengths, expected = [*map(len, values)], [len(row) - 1 for row in rows]
        if lengths != expected:
            raise MachineError(
                f"the Tinker server {self.url} gives {lengths} log-probabilities for rows that have"
                f" {expected}"
            )
        return values

    def learn(self, rows: Sequence[TinkerRow], **adam: float) -> dict[str, float]:
        """Take one step of Adam along the gradient of the sum of advantage x log-probability, and
        return what the server measures of it.

        The gradient of Tinker's `importance_sampling`, -advantage x p / p_sent, is that one, as the
        probabilities that are sent are the current ones.
        """
        import tinker

        data = [
            _datum(row.tokens, logprobs=row.logprobs, advantages=row.advantages) for row in rows
        ]
        with _asking(self.url):
            gradient = self.training.forward_backward(data, "importance_sampling")
            step = self.training.optim_step(tinker.AdamParams(**adam))  # not to wait between them
            gradient.result()
            return step.result().metrics or {}

    def sampler(self) -> Any:
        """A client that samples with the current weights, whatever is learned later."""
        with _asking(self.url):
            return self.training.save_weights_and_get_sampling_client()

    def save(self) -> str:
        """Save weights and moments on the server; returns where."""
        with _asking(self.url):
            return str(self.training.save_state(_new_name()).result().path)

    def resume(self, state: str) -> None:
        """Go on from what `save` saved. A server loads it into a new adapter only."""
        with _asking(self.url, at_start=True):
            resume = self._service.create_training_client_from_state_with_optimizer
            self._training = resume(state)

    def download(self, file: Path) -> None:
        """Write the current weights, in peft's format, to `file`."""
        with _asking(self.url):
            saved = self.training.save_weights_for_sampler(_new_name()).result().path
            run, _, checkpoint = saved.removeprefix("tinker://").partition("/")
            rest = self._service.create_rest_client()
            archive = rest.get_checkpoint_archive_url(run, checkpoint).result().url
        try:
            with httpx2.stream("GET", archive, follow_redirects=True, timeout=600) as answer:
                answer.raise_for_status()
                with TemporaryFile() as packed:
                    for chunk in answer.iter_bytes():
                        packed.write(chunk)
                    packed.seek(0)
                    _unpack(packed, file)
        except (httpx2.HTTPError, tarfile.TarError) as error:
            raise MachineError(f"{archive}: {one_line(error)}") from error


async def sample(
    sampler: Any, url: str, prompt: Sequence[int], **parameters: Any
) -> tuple[list[int], list[float]]:
    """The tokens of one completion, and their log-probabilities. `parameters` are those of
    `tinker.SamplingParams`, and the server is at `url`. Raises SettingsError if the server refuses,
    and MachineError if it fails.
    """
    import tinker

    with _asking(url):
        answer = await sampler.sample_async(
            tinker.ModelInput.from_ints(list(prompt)), 1, tinker.SamplingParams(**parameters)
        )
        (sequence,) = answer.sequences
        tokens, logprobs = list(sequence.tokens), list(sequence.logprobs or ())
    if len(tokens) != len(logprobs):
        raise MachineError(
            f"the Tinker server {url} gives {len(logprobs)} log-probabilities for {len(tokens)}"
            " tokens"
        )
    return tokens, logprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class TinkerPolicy(Policy):
    """A policy whose weights are on a server: those of its model are on the meta device."""

    adapter: RemoteAdapter
    """It, on the server."""

    def save(self, folder: Path) -> None:
        """Write the adapter and the tokenizer to `folder`, and where on the server its state is.

        Everything loads it as an adapter of peft.
        """
        self.adapter.download(folder / WEIGHTS)
        config = copy(self.model.peft_config["default"])
        config.inference_mode = True
        config.save_pretrained(folder)
        self.save_beside(folder)
        (folder / STATE).parent.mkdir(exist_ok=True)
        write_atomically(folder / STATE, json.dumps({"state": self.adapter.save()}))


def load_tinker_policy(settings: RunSettings, source: ModelSource) -> TinkerPolicy:
    """The policy that the settings name, on the server that they name.

    A checkpoint of such a policy continues it. Raises ModelError for another adapter, as the
    interface has no upload, and SettingsError for a server that refuses.
    """
    with warnings.catch_warnings(action="ignore"):  # no weights of an adapter are read
        policy = load_policy(settings.policy, source, empty=True)
    base = unwrap_model(policy.model)
    use_layouts(policy.model, {base.dtype: Layouts("padded", window=0, alone_from=inf)})
    state = saved_state(source.adapter) if source.adapter else ""
    seed = derive(settings.seed, settings.stage, "adapter") % 2**31
    rank = policy.model.peft_config["default"].r
    adapter = RemoteAdapter(settings.learner.server, source.base, rank, seed, state)
    return TinkerPolicy(
        policy.model, policy.chat, torch.device("cpu"), policy.pad_token, policy.starts_as_base,
        adapter=adapter,
    )  # fmt: skip


def saved_state(checkpoint: Path) -> str:
    """Where on the server the state of a checkpoint is. Raises ModelError for one without it."""
    state = saved_table(checkpoint / STATE).get("state", "")
    if not state:
        raise ModelError(
            f"adapter {str(checkpoint)!r} was not trained with learner.name = 'tinker', and such a"
            " server takes no weights; start from the full model"
        )
    return str(state)


def _unpack(packed: Any, file: Path) -> None:
    with tarfile.open(fileobj=packed) as archive:
        member = next((m for m in archive if Path(m.name).name == WEIGHTS and m.isfile()), None)
        content = member and archive.extractfile(member)
        if not content:
            raise MachineError(f"the server's archive of an adapter has no {WEIGHTS}")
        write_atomically(file, content.read())


def _datum(tokens: Sequence[int], **numbers: list[float]) -> Any:
    import tinker

    targets = {"target_tokens": list(tokens[1:])}
    prompt = tinker.ModelInput.from_ints(list(tokens[:-1]))
    return tinker.Datum(model_input=prompt, loss_fn_inputs=targets | numbers)


def _new_name() -> str:
    return f"assay-{token_hex(6)}"


def _require_reachable(url: str) -> None:
    """Raises SettingsError where nobody answers, which the client finds out after minutes."""
    try:
        httpx2.get(url, timeout=CONNECT_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise SettingsError(
            f"the Tinker server {url} does not answer: {one_line(error)}; start it, or change"
            " learner.server"
        ) from error


@contextmanager
def _asking(url: str, *, at_start: bool = False) -> Iterator[None]:
    """Turns errors of the client, of whatever class, into ours: a refusal is the user's, all else
    the machine's.
    """
    import tinker

    try:
        yield
    except AssayError:
        raise
    except Exception as error:
        cause = error.__cause__ if isinstance(error, ValueError) else error
        status = cause.status_code if isinstance(cause, tinker.APIStatusError) else 0
        blamed = str(getattr(cause, "category", "")).lower()
        refused = status in REFUSALS or blamed == "user" or (at_start and status == ABSENT)
        kind = SettingsError if refused else MachineError
        raise kind(f"the Tinker server {url}: {one_line(error)}") from error
