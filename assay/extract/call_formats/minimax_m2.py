"""MiniMax-M2: `<invoke name="NAME">`, and a `<parameter name="KEY">` for each argument."""

import re

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import Tags, tagged_calls, write_tagged

OPENS, CLOSES = "<minimax:tool_call>", "</minimax:tool_call>"
TAGS = Tags(
    opens=re.compile(r'<invoke name="?([^"<>\n]*)"?>'), closes="</invoke>",
    parameter=re.compile(r'<parameter name="?([^"<>\n]*)"?>'), ends="</parameter>",
    example='<invoke name="NAME">...</invoke>', block=OPENS,
)  # fmt: skip

call_format("minimax_m2", CallFormat(
    read=lambda reply: tagged_calls(reply, TAGS),
    write=lambda calls: write_tagged(
        calls, '<invoke name="{name}">\n', "</invoke>",
        '<parameter name="{key}">{value}</parameter>\n', (f"{OPENS}\n", f"\n{CLOSES}"),
    ),
    marks=(OPENS, CLOSES),
    quoted=False,
))  # fmt: skip
