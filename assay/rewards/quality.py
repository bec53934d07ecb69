"""Surface quality of a Verilog design: names, line length, declarations that nothing uses."""

import re
from collections import Counter

from assay.judge.kinds.verilog_screen import without_comments
from assay.lines import source_lines
from assay.rewards import reward
from assay.types import Rollout

DECLARED = re.compile(
    r"\b(?:input|output|inout|wire|reg|logic|integer|parameter|localparam)\b"
    r"(?:\s+(?:wire|reg|logic|signed|unsigned|var|int))*\s*(?:\[[^][;]*+\]\s*)*([A-Za-z_]\w*)"
)
USUAL = re.compile(r"[a-z][a-z0-9_]*$|[A-Z][A-Z0-9_]*$")
LONGEST_LINE = 80


@reward
def quality(
    rollout: Rollout, *, unused: float = 0.1, naming: float = 0.05, long_line: float = 0.02
) -> float:
    """1 less `unused` for each declared name that occurs once (at most 0.4), `naming` for each that
    is not in lower or upper case with underscores (at most 0.3), and `long_line` for each line over
    80 characters (at most 0.2); 0 without a program. It is easy to please without solving anything.
    """
    program = rollout.turns[-1].program
    if not program or not program.strip():
        return 0.0
    code = without_comments(program)
    uses, names = Counter(re.findall(r"[A-Za-z_]\w*", code)), set(DECLARED.findall(code))
    lonely = sum(uses[name] == 1 for name in names)
    odd = sum(not USUAL.match(name) for name in names)
    wide = sum(len(line) > LONGEST_LINE for line in source_lines(program))
    return 1 - min(unused * lonely, 0.4) - min(naming * odd, 0.3) - min(long_line * wide, 0.2)
