"""TypeScript, made JavaScript of by its own compiler and run by node."""

from __future__ import annotations

from assay.languages import Language, language

BUILD = """
const fs = require("fs"), ts = require("typescript");
const source = fs.readFileSync("main.ts", "utf8"), options = {target: "es2020", module: "commonjs"};
const made = ts.transpileModule(source, {compilerOptions: options, reportDiagnostics: true});
for (const {file, start, messageText} of made.diagnostics) {
  const {line} = file.getLineAndCharacterOfPosition(start);
  console.error(`main.ts:${line + 1}: error: ${ts.flattenDiagnosticMessageText(messageText, " ")}`);
}
fs.writeFileSync("program", made.outputText);
process.exit(made.diagnostics.length ? 1 : 0);
"""


@language
def typescript() -> Language:
    """TypeScript, whose types are not checked: that would need those of node."""
    return Language(
        title="TypeScript", source="main.ts", fences=("ts",), package="node-typescript",
        compile=("node", "-e", BUILD), run=("node", "program"), runtime_mb=512,
        driver="javascript.js",
        environment={"NODE_PATH": "/usr/share/nodejs"},
        hello='const hello: string = "hello"; console.log(hello)',
        lazy={"empty": "", "echo": 'process.stdout.write(require("fs").readFileSync(0))'},
    )  # fmt: skip
