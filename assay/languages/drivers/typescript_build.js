// Makes JavaScript of main.ts.
const fs = require("fs"), ts = require("typescript");
const source = fs.readFileSync("main.ts", "utf8"), options = {target: "es2020", module: "commonjs", esModuleInterop: true};
const made = ts.transpileModule(source, {compilerOptions: options, reportDiagnostics: true});
for (const {file, start, messageText} of made.diagnostics) {
  const {line} = file.getLineAndCharacterOfPosition(start);
  console.error(`main.ts:${line + 1}: error: ${ts.flattenDiagnosticMessageText(messageText, " ")}`);
}
fs.writeFileSync("program", made.outputText);
process.exit(made.diagnostics.length ? 1 : 0);
