"""The calculator of calculator.py as a resources server of NeMo Gym's: it computes what a reply
asks for, and pays 1 for the right answer.

    cd examples/agents
    ../../.venv-agents/nemo-gym/bin/python nemo_gym_server.py calculator_gym --port 8000
"""

import re

from nemo_gym.openai_utils import NeMoGymResponse
from resources_servers.gymnasium import GymnasiumServer, extract_text

CALL = re.compile(r"calc: (-?\d{1,12}) ([-+*]) (-?\d{1,12})")
"""Two whole numbers and a sign are computed. Any other text is the answer; none is evaluated."""
Step = tuple[str | None, float, bool, bool, dict]


def compute(left: str, sign: str, right: str) -> int:
    """What two numbers and a sign give."""
    a, b = int(left), int(right)
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


class Calculator(GymnasiumServer):
    """It keeps nothing between replies."""

    async def step(
        self, action: NeMoGymResponse, metadata: dict, session_id: str | None = None
    ) -> Step:
        """What a reply is shown, its reward, and whether it is the last."""
        text = extract_text(action)
        if call := CALL.fullmatch(text):
            return f"= {compute(*call.groups())}\n", 0.0, False, False, {}
        is_right = text.removeprefix("answer: ").strip() == metadata["expected_answer"]
        return None, float(is_right), True, False, {}
