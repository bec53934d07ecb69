"""A model class for mini-swe-agent 2.4.6 that needs no litellm, so that a rollout starts sooner.

Importing litellm takes four to six seconds of CPU time, and each rollout is a process of its own.
mini-swe-agent's class for OpenRouter speaks the same dialect with `requests` alone. This one asks
the endpoint of the rollout, and waits for as long as the policy takes.

    PYTHONPATH=examples/agents mini -c mini_textbased.yaml --model-class mini_requests.TextModel
"""

import os

import requests
from minisweagent.models.openrouter_model import OpenRouterAPIError
from minisweagent.models.openrouter_textbased_model import OpenRouterTextbasedModel


class TextModel(OpenRouterTextbasedModel):
    """Commands are text, as with `litellm_textbased`."""

    def _query(self, messages: list[dict[str, str]], **kwargs: object) -> dict[str, object]:
        body = {"model": self.config.model_name, "messages": messages, **self.config.model_kwargs}
        response = requests.post(
            f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
            headers={"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
            json=body | kwargs,
        )
        if not response.ok:
            raise OpenRouterAPIError(f"HTTP {response.status_code}: {response.text}")
        return response.json()
