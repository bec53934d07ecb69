// The difference of two lists of lines, after Myers (1986), with a bound on the work; and patches.
import { html } from "./vendor/preact.js";
import { visible } from "./text.js";

const MOST_EDITS = 600;
const DRAWN = 2000;
const WIDTH = 2000;

/** Lines with a sign each, as `diff` gives them. */
export function Lines({ lines }) {
  const line = (one) => visible(one.length > WIDTH ? `${one.slice(0, WIDTH)} …` : one);
  return html`<pre class="diff">${lines.slice(0, DRAWN).map(([sign, one]) =>
      html`<span class=${{ "+": "added", "-": "removed", "@": "muted" }[sign] || ""}
      >${sign} ${line(one)}</span>`)}</pre>
    ${lines.length > DRAWN && html`<p
      class="note">${(lines.length - DRAWN).toLocaleString("en")} more lines</p>`}`;
}

export const isPatch = (text) => /^(diff --git |--- \S)/.test(text);

/** A unified diff. */
export function Patch({ text }) {
  const head = /^(diff --git|index|---|\+\+\+|@@|new file|deleted file|rename|similarity)/;
  return html`<${Lines} lines=${text.split("\n").map((one) => (head.test(one) ? ["@", one]
    : [one[0] || " ", one.slice(1)]))} />`;
}

/** `[[" ", line], ["-", line], ["+", line], ...]`; too many edits give all old lines,
  then all new. */
export function diff(before, after) {
  let start = 0;
  while (start < before.length && start < after.length
    && before[start] === after[start]) start += 1;
  let end = 0;
  const most = Math.min(before.length, after.length) - start;
  while (end < most && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  const [a, b] = [before.slice(start, before.length - end), after.slice(start, after.length - end)];
  const same = (lines) => lines.map((line) => [" ", line]);
  const middle = edits(a, b) || [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
  return [...same(before.slice(0, start)), ...middle, ...same(before.slice(before.length - end))];
}

function edits(a, b) {
  const limit = Math.min(MOST_EDITS, a.length + b.length);
  let reached = { 1: 0 };
  const rounds = [];
  for (let d = 0; d <= limit; d += 1) {
    rounds.push({ ...reached });
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && reached[k - 1] < reached[k + 1]);
      let x = down ? reached[k + 1] : reached[k - 1] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      reached[k] = x;
      if (x >= a.length && x - k >= b.length) return path(rounds, a, b, d);
    }
  }
  return null;
}

function path(rounds, a, b, length) {
  const found = [];
  let [x, y] = [a.length, b.length];
  for (let d = length; d >= 0; d -= 1) {
    const reached = rounds[d];
    const k = x - y;
    const down = k === -d || (k !== d && reached[k - 1] < reached[k + 1]);
    const from = down ? k + 1 : k - 1;
    const [oldX, oldY] = [reached[from], reached[from] - from];
    while (x > oldX && y > oldY && x > 0 && y > 0 && d >= 0 && a[x - 1] === b[y - 1]) {
      found.push([" ", a[x - 1]]);
      [x, y] = [x - 1, y - 1];
    }
    if (d > 0) {
      found.push(down ? ["+", b[y - 1]] : ["-", a[x - 1]]);
      [x, y] = [oldX, oldY];
    }
  }
  return found.reverse();
}
