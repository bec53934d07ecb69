#!/bin/sh
# mini-swe-agent 2.4.6 as it is: its own command, prompts and shell. Words after its path are more options of `mini`.
#     [environment]
#     name = "program"
#     command = ["sh", "examples/agents/mini_swe_agent.sh", ".venv-agents/mini-swe-agent/bin/mini"]
#     answer = "answer.py"
# With `name = "program_with_box"` its commands run in the box of the rollout. Of a task with a repository, `answer = "patch.txt"` judges
# the patch that it submits; without `answer`, the work folder is judged as it is in the end.
set -eu
mini=$1
shift
export MSWEA_CONFIGURED=true              # else it asks for its settings when it starts for the first time
export MSWEA_COST_TRACKING=ignore_errors  # else each call fails, since nobody knows what the policy costs
export LITELLM_LOCAL_MODEL_COST_MAP=True  # else litellm asks the network for prices at each start
export PYTHONPATH="$(cd "$(dirname "$0")" && pwd)${PYTHONPATH:+:$PYTHONPATH}"  # for `--model-class mini_requests.TextModel`
export MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT=3  # else it tries a refused call for minutes
task=$(cat "$ASSAY_TASK")
if [ -n "${ASSAY_DOCKER:-}" ]; then
    # It believes that the box is a container. The box ends commands that take too long.
    set -- -c swebench.yaml -c environment.executable="$ASSAY_DOCKER" -c environment.image=none \
        -c environment.cwd="$ASSAY_FOLDER" -c environment.timeout=86400 -c environment.env.BASH_ENV=/dev/null "$@"
else
    task="$task

Write the whole program into the file answer.py."
    # The model's commands have no key with which they could call the policy themselves.
    set -- -c mini.yaml -c environment.env.OPENAI_API_KEY=none -c environment.env.ANTHROPIC_API_KEY=none "$@"
fi
exec "$mini" -t "$task" -m openai/policy -y --exit-immediately -l 0 -o trajectory.json "$@"
