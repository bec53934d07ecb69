"""Qwen3-Coder, Qwen 3.5 and Nemotron 3: `<function=NAME>`, and `<parameter=KEY>` for arguments."""

import re

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import Tags, tagged_calls, write_tagged

OPENS, CLOSES = "<tool_call>", "</tool_call>"
TAGS = Tags(
    opens=re.compile(r"<function=([^<>\n]*)>"), closes="</function>",
    parameter=re.compile(r"<parameter=([^<>\n]*)>"), ends="</parameter>",
    example="<function=NAME>...</function>", block=OPENS,
)  # fmt: skip

call_format("qwen3_coder", CallFormat(
    read=lambda reply: tagged_calls(reply, TAGS),
    write=lambda calls: write_tagged(
        calls, "<function={name}>\n", "</function>", "<parameter={key}>\n{value}\n</parameter>\n",
        (f"{OPENS}\n", f"\n{CLOSES}"),
    ),
    marks=(OPENS, CLOSES),
    quoted=False,
))  # fmt: skip
