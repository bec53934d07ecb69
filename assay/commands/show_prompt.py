"""assay show-prompt: prints what the model reads."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from assay.commands import options


def show_prompt(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(help="Settings in TOML, or the name of a recipe: mine.toml, demo.")
    ],
) -> None:
    """Print exactly what the model reads for a stage's first task, special tokens included."""
    plan = options.checked_plan(context, config)
    options.quiet_transformers()
    from assay.policy.chat import open_chat
    from assay.policy.tiny import make_tiny
    from assay.policy.tokenizer import load_tokenizer
    from assay.rollout.prompter import Prompter
    from assay.train.stages import prepare_all

    last = ""
    with TemporaryDirectory() as folder:
        for stage in prepare_all(plan):
            settings, policy = stage.settings, stage.settings.policy
            if shape := stage.model.shape:
                model = make_tiny(Path(folder) / "tiny", stage.tasks, shape, seed=0)
                tokenizer = load_tokenizer(str(model), trust_remote_code=False)
            else:
                tokenizer = stage.model.load_tokenizer()
            chat, task = open_chat(tokenizer, policy.chat, ()), stage.tasks[0]
            prompter = Prompter(chat, stage.environment, settings.prompt)
            tokens = prompter.prompt(task)
            text = tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
            if text != last:  # a stage with the prompt of the one before shows nothing
                how = "with the chat template" if chat.has_template else "plain text to continue"
                options.echo(f"stage {settings.stage}, task {task.id}: {len(tokens)} tokens, {how}")
                options.echo(text)
            last = text
