"""How a policy's weights are synced to a server: one transport per file, each with three calls.

| call | what it does |
|---|---|
| `arguments` | gives the server arguments that it needs; it may put files for them in a folder |
| `pack` | writes the files that servers load to a folder; servers keep generating meanwhile |
| `send` | makes a paused server load the packed weights; returns the model name to ask it for |
"""

from assay.engines.vllm.transports.adapter import Adapter
from assay.engines.vllm.transports.files import Files

Transport = Adapter | Files
