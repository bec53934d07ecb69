PROGRAM
// Calls the program's function once for each list of arguments, and writes each answer as JSON.
;(async (called) => {
  const fs = require("fs"), bound = (owner) => owner.FUNCTION?.bind(owner);
  called ||= bound(module.exports)
    ?? (typeof Solution === "function" ? bound(new Solution()) ?? bound(Solution) : module.exports.default ?? module.exports);
  if (typeof called !== "function") throw new ReferenceError("FUNCTION is not defined");
  const special = (text) => /^-?\d+$/.test(text) ? BigInt(text) : Number(text);
  const tokens = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN|-?\d[\d.eE+-]*/g;

  // JSON has neither NaN nor whole numbers beyond 2 ** 53
  const marked = (token) => {
    const plain = token[0] === '"' || (/\d/.test(token) && (!/^-?\d+$/.test(token) || Number.isSafeInteger(Number(token))));
    return plain ? token : `{"\\u0000": "${token}"}`;
  };
  const revive = (_, value) =>
    value && typeof value === "object" && "\0" in value ? special(value["\0"]) : value;

  const show = (value) => {
    if (value === undefined || value === null) return "null";
    if (["number", "bigint", "boolean"].includes(typeof value)) return String(value);
    if (typeof value === "string") return JSON.stringify(value);
    if (typeof value !== "object") throw new TypeError(`a ${typeof value} is no data`);
    if (value instanceof Map) return object([...value]);
    if (value instanceof Number || value instanceof String || value instanceof Boolean) return show(value.valueOf());
    if (Symbol.iterator in value) return `[${Array.from(value, show).join(",")}]`;
    return object(Object.entries(value));
  };
  const object = (entries) =>
    `{${entries.map(([key, value]) => `${JSON.stringify(String(key))}:${show(value)}`).join(",")}}`;

  let answers = "";
  for (const given of JSON.parse(fs.readFileSync(0, "utf8").replace(tokens, marked), revive)) {
    try {
      answers += `[${show(await called(...given))}]\n`;
    } catch (error) {
      answers += `${JSON.stringify({ raised: String(error) })}\n`;
    }
  }
  fs.writeFileSync("answers", answers);
})(typeof FUNCTION === "function" && FUNCTION);
