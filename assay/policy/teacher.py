"""The teacher of a distillation: a frozen model beside the policy, with the same tokens."""

from typing import Any

from assay.config.sections import PolicySettings
from assay.errors import SettingsError
from assay.policy.load_model import Policy, load_policy


def load_teacher(
    name: str, policy: Policy, settings: PolicySettings, *, empty: bool = False
) -> Any:
    """The model of this name on the policy's device, frozen; or `empty`, without its weights.

    Raises SettingsError where its tokenizer numbers a token of the policy's otherwise. Sizes do not
    matter: models pad their vocabularies differently.
    """
    frozen = {"lora": None, "quantize": None, "gradient_checkpointing": False}
    change = {"model": name, "device": str(policy.device), **frozen}
    teacher = load_policy(settings.model_copy(update=change), empty=empty)
    theirs = teacher.chat.tokenizer.get_vocab()
    ours = policy.chat.tokenizer.get_vocab()
    if other := [token for token, number in ours.items() if theirs.get(token) != number]:
        raise SettingsError(
            f"algorithm.teacher = {name!r} has another tokenizer than the policy: {len(other)} of"
            f" {len(ours)} tokens differ, as {min(other)!r}; take a teacher of the same family"
        )
    teacher.model.requires_grad_(False)
    return teacher.model
