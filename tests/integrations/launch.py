"""`assay serve` with the patience of a test: python -m tests.integrations.launch --port 0 ..."""

from __future__ import annotations

import sys
from functools import partial

from assay import cli
from assay.integrations import serve, service

serve.HEADER_SECONDS = 0.5
serve.DRAIN_SECONDS = 1
serve.STALLED_SECONDS = 1
service.Bounds = partial(service.Bounds, body_seconds=0.5)  # type: ignore[assignment, misc]
sys.argv = ["assay", "serve", *sys.argv[1:]]
cli.main()
