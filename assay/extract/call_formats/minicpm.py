"""MiniCPM 5: `<function name="NAME">`, and a `<param name="KEY">` for each argument."""

import re

from assay.extract.call_formats import CallFormat, call_format
from assay.extract.call_formats.reading import Tags, tagged_calls, write_tagged

TAGS = Tags(
    opens=re.compile(r'<function name="([^"<\n]*)">'), closes="</function>",
    parameter=re.compile(r'<param name="([^"<\n]*)">'), ends="</param>",
    example='<function name="NAME">...</function>', literal=("<![CDATA[", "]]>"),
)  # fmt: skip

call_format("minicpm", CallFormat(
    read=lambda reply: tagged_calls(reply, TAGS),
    write=lambda calls: write_tagged(
        calls, '<function name="{name}">', "</function>",
        '<param name="{key}"><![CDATA[{value}]]></param>', ("", ""),
    ),
    quoted=False,
))  # fmt: skip
