// What HumanEval-X's tests need: js-md5, and assertions that raise.
const load = require("module")._load, hash = require("crypto").createHash;
require("module")._load = (name, ...others) => name !== "js-md5" ? load(name, ...others)
  : (text) => hash("md5").update(text).digest("hex");
console.assert = (holds, ...said) => {
  if (!holds) throw new Error(said.join(" ") || "an assertion fails");
};
