"""Seed-OSS: Qwen3-Coder's tags, between `<seed:tool_call>` tags."""

from dataclasses import replace

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.qwen3_coder import TAGS as CODER
from assay.extract.call_formats.reading import tagged_calls, write_tagged

OPENS, CLOSES = "<seed:tool_call>", "</seed:tool_call>"
TAGS = replace(CODER, block=OPENS)

call_format("seed_oss", CallFormat(
    read=lambda reply: tagged_calls(reply, TAGS),
    write=lambda calls: write_tagged(
        calls, "<function={name}>\n", "</function>", "<parameter={key}>{value}</parameter>\n",
        (f"{OPENS}\n", f"\n{CLOSES}"),
    ),
    marks=(OPENS, CLOSES),
    quoted=False,
))  # fmt: skip
