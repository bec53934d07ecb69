"""DeepSeek V3.2: MiniMax-M2's form with tags of its own."""

import re

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import Tags, tagged_calls, write_tagged

DSML = "\uff5cDSML\uff5c"
OPENS, CLOSES = f"<{DSML}function_calls>", f"</{DSML}function_calls>"
TAGS = Tags(
    opens=re.compile(rf'<{DSML}invoke name="([^"<\n]*)">'), closes=f"</{DSML}invoke>",
    parameter=re.compile(rf'<{DSML}parameter name="([^"<\n]*)"(?: string="\w*")?>'),
    ends=f"</{DSML}parameter>", example=f'<{DSML}invoke name="NAME">', block=OPENS,
)  # fmt: skip

call_format("deepseek_v32", CallFormat(
    read=lambda reply: tagged_calls(reply, TAGS),
    write=lambda calls: write_tagged(
        calls, f'<{DSML}invoke name="{{name}}">\n', f"</{DSML}invoke>",
        f'<{DSML}parameter name="{{key}}" string="true">{{value}}</{DSML}parameter>\n',
        (f"{OPENS}\n", f"\n{CLOSES}"),
    ),
    marks=(DSML,),
    quoted=False,
))  # fmt: skip
