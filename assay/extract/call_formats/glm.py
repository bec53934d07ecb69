"""GLM 4.5 to 4.7: the name, then `<arg_key>` and `<arg_value>` for each argument."""

import re

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import Tags, tagged_calls, write_tagged

OPENS, CLOSES = "<tool_call>", "</tool_call>"
TAGS = Tags(
    opens=re.compile(r"<tool_call>([^<{\n]*)\n?"), closes=CLOSES,
    parameter=re.compile(r"<arg_key>([^<\n]*)</arg_key>\s*<arg_value>"), ends="</arg_value>",
    example=f"{OPENS}NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>{CLOSES}",
)  # fmt: skip
ARGUMENT = "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"

call_format("glm", CallFormat(
    read=lambda reply: tagged_calls(reply, TAGS),
    write=lambda calls: write_tagged(calls, f"{OPENS}{{name}}\n", CLOSES, ARGUMENT, ("", "")),
    marks=(OPENS, CLOSES, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    quoted=False,
))  # fmt: skip
