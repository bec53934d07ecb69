// Shows text that a model wrote: as text nodes alone, with what cannot be seen made visible.
import { html, useEffect, useMemo, useState } from "./vendor/preact.js";
import hljs from "./vendor/highlight.js";
import cpp from "./vendor/cpp.js";
import go from "./vendor/go.js";
import java from "./vendor/java.js";
import javascript from "./vendor/javascript.js";
import python from "./vendor/python.js";
import q from "./vendor/q.js";
import rust from "./vendor/rust.js";
import verilog from "./vendor/verilog.js";
import { ask, isExported } from "./data.js";

const GRAMMARS = { cpp, go, java, javascript, python, q, rust, verilog };
Object.entries(GRAMMARS).forEach(([name, one]) => hljs.registerLanguage(name, one));

const HIGHLIGHTED = 30000;
// Control, bidi and invisible characters, and halves of surrogate pairs; not tab and newline.
const HIDDEN = new RegExp(
  "[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f" +
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0" +
    "\\ufff0-\\uffff" +
    "\\u{e0000}-\\u{e0fff}\\ud800-\\udfff]",
  "gu",
);

/** The text, with each hidden character as an escape: an array of strings and elements. */
export function visible(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    parts.push(text.slice(end, match.index), html`<span
      class="escape">${escaped(match[0])}</span>`);
    end = match.index + match[0].length;
  }
  parts.push(text.slice(end));
  return parts;
}

/** The text on one line, for a cell or a title. */
export function plain(text) {
  return String(text).replace(/[\n\t]/g, " ").replace(HIDDEN, escaped);
}

function escaped(character) {
  const code = character.codePointAt(0);
  if (code < 256) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code < 65536 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\u{${code.toString(16)}}`;
}

const SIGNS = [
  ["verilog", /^\s*(`timescale|module\s+\w+)/m],
  ["cpp", /^\s*#include\s*[<"]/m],
  ["go", /^package \w+/m],
  ["java", /^\s*(public |final )*class \w+|^import java/m],
  ["rust", /\bfn \w+\s*[(<].*[{>]|^use std::/m],
  ["javascript", /^\s*(function \w+\(|const \w+ =|let \w+ =)/m],
  ["q", /^\s*[\w.]+:\s*\{\s*\[/m],
];

/** The language of a program, by its signs. */
export function languageOf(text) {
  const start = text.slice(0, 4000);
  const sign = SIGNS.find(([, pattern]) => pattern.test(start));
  return sign ? sign[0] : "python";
}

function nodes(tree) {
  return tree.children.map((one) => {
    if (typeof one === "string") return visible(one);
    const scope = (one.scope || "").split(".")[0].replace("_", "-");
    return html`<span class=${scope ? `hl-${scope}` : undefined}>${nodes(one)}</span>`;
  });
}

/** A program with colours, built from the highlighter's tree of tokens, never from its HTML. */
export function Code({ text }) {
  const made = useMemo(() => {
    if (text.length > HIGHLIGHTED) return visible(text);
    const options = { language: languageOf(text), ignoreIllegals: true };
    return nodes(hljs.highlight(text, options)._emitter.rootNode);
  }, [text]);
  return html`<pre class="code">${made}</pre>`;
}

const FENCED = /^[ \t]*(`{3,}|~{3,})[^\n`]*\n([^]*?)(?:^[ \t]*\1[`~]*[ \t]*$|$(?![^]))/gm;

/** A model's reply: its fenced blocks with colours, and what stands between them as prose. */
export function Reply({ text }) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(FENCED)) {
    const start = match.index + match[0].indexOf("\n") + 1;
    parts.push(html`<pre>${visible(text.slice(end, start))}</pre>`,
      html`<${Code} text=${match[2]} />`);
    end = start + match[2].length;
  }
  return html`${parts}<pre>${visible(text.slice(end))}</pre>`;
}

/** A text of a turn that may be long: the rest is fetched in pieces. */
export function LongText({ place, turn, name, value, code, reply, label }) {
  const [pieces, setPieces] = useState([]);
  const [busy, setBusy] = useState(false);
  useEffect(() => setPieces([]), [place, turn, name]);
  const shown = pieces.reduce((sum, one) => sum + length(one), length(value.text));
  const left = value.total - shown;
  async function more() {
    setBusy(true);
    try {
      const asked = { ...place, turn, name, start: shown };
      const { text } = await ask("text", asked);
      setPieces([...pieces, text]);
    } finally {
      setBusy(false);
    }
  }
  return html`<div class="long" aria-label=${label}>
    ${code && html`<${Code} text=${value.text} />`}
    ${reply && html`<${Reply} text=${value.text} />`}
    ${!code && !reply && html`<pre>${visible(value.text)}</pre>`}
    ${pieces.map((one) => html`<pre>${visible(one)}</pre>`)}
    ${left > 0 && html`<button class="more" disabled=${busy || isExported} onClick=${more}>
      ${isExported ? "the export leaves out" : "show more:"} ${left.toLocaleString("en")} characters
    </button>`}
  </div>`;
}

// Python counts code points, JavaScript units of UTF-16.
function length(text) {
  let count = text.length;
  for (let at = 0; at < text.length;
    at += 1) if ((text.charCodeAt(at) & 0xfc00) === 0xd800) count -= 1;
  return count;
}

/**
 * Tokens with a colour each: `by` is "probability" or "advantage". A turn has one advantage for all
 * its tokens, or one for each, or none.
 */
export function Tokens({ turn, by }) {
  const { tokens, logprobs, advantages } = turn;
  const advantage = (at) => advantages[advantages.length > 1 ? at : 0] || 0;
  const colour = (at) => {
    if (by === "advantage") {
      const strength = Math.min(0.5, Math.abs(advantage(at)) * 0.4);
      return `rgb(var(--${advantage(at) < 0 ? "bad" : "good"}-rgb) / ${strength})`;
    }
    return `rgb(var(--bad-rgb) / ${Math.min(0.85, -(logprobs[at] || 0) / 4)})`;
  };
  // One that is not a finite number comes as null.
  const probability = (logprob) => (logprob == null ? "log p was not recorded"
    : `p = ${Math.exp(logprob).toPrecision(3)}, log p = ${logprob.toFixed(3)}`);
  return html`<div class="long">
    <pre class="tokens">${tokens.map(
      (one, at) => html`<span style=${{ background: colour(at) }}
        title=${`${plain(one)}  ${advantages.length ? `advantage ${advantage(at).toFixed(3)}, `
          : ""}${probability(logprobs[at])}`}
        >${visible(one)}</span>`,
    )}</pre>
    <p class="note">${
      by === "advantage"
        ? { 0: "no advantage was recorded: the learner did not use this turn",
          1: `advantage ${advantage(0).toFixed(3)} for every token, as the learner used it` }[
          advantages.length] || "the advantage of each token, as the learner used it"
        : "the redder, the less probable; point at a token for its probability"
    }${turn.length > tokens.length ? `; the first ${tokens.length} of ${turn.length} tokens`
      : ""}</p>
  </div>`;
}
