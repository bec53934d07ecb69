"""What a model reads for the first task of each stage: `assay show-prompt`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.config.load import Plan
from assay.policy.chat import open_chat
from assay.policy.load import is_adapted, tokenizer_source
from assay.policy.tiny import make_tiny
from assay.policy.tokenizer import load_tokenizer
from assay.rollout.prompter import Prompter
from assay.train.stages import prepare


def show_prompt(plan: Plan, announce: Callable[[str], None]) -> None:
    """Announce the prompt of each stage's first task with its special tokens, and its length; a
    stage with the prompt of the one before is left out.

    Raises UserError for settings, tasks or a tokenizer that cannot be used.
    """
    last = ""
    with TemporaryDirectory() as folder:
        for settings in plan.stages:
            policy = settings.policy
            with plan.blaming(settings.stage):
                stage = prepare(settings, is_adapted(policy))
            model = policy.model
            if model == "tiny":
                model = str(make_tiny(Path(folder) / "tiny", stage.tasks, policy.tiny, seed=0))
            tokenizer = load_tokenizer(tokenizer_source(model), policy.trust_remote_code)
            chat, task = open_chat(tokenizer, policy.chat, ()), stage.tasks[0]
            prompter = Prompter(chat, stage.environment.instructions, settings.prompt)
            tokens = prompter.prompt(task)
            text = tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
            if text != last:
                how = "with the chat template" if chat.has_template else "plain text to continue"
                announce(f"stage {settings.stage}, task {task.id}: {len(tokens)} tokens, {how}")
                announce(text)
            last = text
