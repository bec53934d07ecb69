// Makes JavaScript of main.ts.
const fs = require("fs"), ts = require("typescript");
const source = fs.readFileSync("main.ts", "utf8"), options = {target: "es2020", esModuleInterop: true};
const emit = (module) => ts.transpileModule(source, {compilerOptions: {...options, module}, reportDiagnostics: true});
let made = emit("commonjs");
try {
  new Function(made.outputText.replace(/^#!/, "//"));
} catch {
  made = emit("es2020");  // only a module may await, or ask for import.meta
}
for (const {file, start, messageText} of made.diagnostics) {
  const {line} = file.getLineAndCharacterOfPosition(start);
  console.error(`main.ts:${line + 1}: error: ${ts.flattenDiagnosticMessageText(messageText, " ")}`);
}
fs.writeFileSync("program", made.outputText);
process.exit(made.diagnostics.length ? 1 : 0);
