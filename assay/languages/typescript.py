"""TypeScript, made JavaScript of by its own compiler and run by node. Its types are not checked:
that would need those of node.
"""

from __future__ import annotations

from assay.languages import DRIVERS, language
from assay.languages.javascript import DEFINITION, TEXTS, Script

language("typescript", Script(
    title="TypeScript", source="main.ts", fences=("ts",), package="node-typescript",
    compile=("node", "-e", (DRIVERS / "typescript_build.js").read_text()), runtime_mb=512,
    run=("node", "program"), uses=("tsc",), driver="javascript.js",
    texts=TEXTS, definition=DEFINITION,
    environment={"NODE_PATH": "/usr/share/nodejs:/usr/lib/node_modules"},
    hello='const hello: string = "hello"; console.log(hello)',
    lazy={"empty": "", "echo": 'process.stdout.write(require("fs").readFileSync(0))'},
))  # fmt: skip
