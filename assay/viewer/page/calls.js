// The calls of an agent as a tree: what of each is learned, what is not and why, and their sum.
import { html, useState } from "./vendor/preact.js";
import { LongText, plain, visible } from "./text.js";

const PREVIEW = 160;
const WHY = {
  learned: "the learner got these tokens",
  foreign_root: "its conversation did not begin as the agent's first one",
  auxiliary: "its conversation has no tools where the agent's own has some: a title, a summary",
  abandoned: "nobody took the whole reply",
  client_gone: "the client hung up while it was sampled",
  sealed: "the rollout had ended",
  machine: "the machine failed",
  unjudged: "the task cannot be judged",
  unused: "the learner did not use this rollout",
  unknown: "the file does not say whether it was learned",
};
const FINISH = { length: "cut off", tool_calls: "calls a tool" };

/** The calls of a rollout, each below the one that it continues, and the sum of their tokens. */
export function AgentCalls({ tree, turns, place }) {
  const { calls, count, sums, total, recorded } = tree;
  const numbers = new Map(calls.map((call) => [call.id, call.number]));
  return html`<section class="agent" aria-label="calls of the agent">
    <h3>calls <small>of the agent</small></h3>
    <ul class="call-tree">${calls.map((call) => html`<${Call} key=${call.id} call=${call}
      after=${numbers.get(call.parent)} place=${place}
      turn=${turns.find((one) => call.turn != null && one.turn === call.turn)} />`)}</ul>
    <p class="facts sum" aria-label="sum of the calls">
      <b>${amount(total)} in ${count.toLocaleString("en")} ${count === 1 ? "call" : "calls"}</b>
      ${sums.map(([outcome, tokens]) => html`<span title=${WHY[outcome]}><${Outcome}
        outcome=${outcome} place=${place} /> ${tokens.toLocaleString("en")}</span>`)}
    </p>
    ${count > calls.length ? html`<p class="note">the first ${calls.length.toLocaleString("en")} of
        ${" "}${count.toLocaleString("en")} calls are listed; the sum counts all</p>`
      : recorded !== total && html`<p class="problem">the calls that are listed have
        ${" "}${amount(recorded)}: the file is not as a run writes it</p>`}
  </section>`;
}

const amount = (tokens) => `${tokens.toLocaleString("en")} ${tokens === 1 ? "token" : "tokens"}`;

function Outcome({ outcome, place }) {
  const kind = { learned: "pass", machine: "fail" }[outcome] || "none";
  const word = outcome === "unused" && place.kind === "evaluations" ? "evaluation" : outcome;
  return html`<span class=${`mark ${kind}`}>${plain(word).replaceAll("_", " ")}</span>`;
}

function Call({ call, after, turn, place }) {
  const [open, setOpen] = useState(false);
  const { number, level, tokens, outcome, ended, retries, seconds } = call;
  const start = (turn ? turn.completion.text : call.text).slice(0, PREVIEW);
  const facts = [
    after == null ? "begins" : `continues call ${after + 1}`,
    FINISH[ended],
    retries > 0 && `sent ${retries + 1} times`,
  ];
  return html`<li style=${{ "--level": Math.min(level, 12) - 1 }} data-level=${level}>
    <details onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <span class="name">call ${number + 1} <small>${facts.filter(Boolean).join(", ")}</small>
          <span class="start">${plain(start)}</span></span>
        <span class="outcome" title=${WHY[outcome]}><${Outcome} outcome=${outcome}
          place=${place} /></span>
        <span class="number">${amount(tokens)}</span>
        <span class="number seconds">${(seconds || 0).toFixed(1)} s</span>
      </summary>
      ${open && html`<${Said} call=${call} turn=${turn} place=${place} />`}
    </details>
  </li>`;
}

/** What the policy said, and what became of it. */
function Said({ call, turn, place }) {
  const { outcome, sample, characters, text } = call;
  const where = call.turn == null ? "" : `turn ${call.turn + 1}${
    sample == null ? "" : `, in sample ${sample + 1}`} of the rollout`;
  const why = outcome === "unused" && place.kind === "evaluations"
    ? "nothing is learned from an evaluation" : WHY[outcome];
  return html`<p class="note">${[where, why].filter(Boolean).join("; ")}</p>
    ${turn && html`<${LongText} place=${place} turn=${turn.turn} name="completion"
      value=${turn.completion} label=${`reply of call ${call.number + 1}`} />`}
    ${!turn && text && html`<div class="long" aria-label=${`reply of call ${call.number + 1}`}>
      <pre>${visible(text)}</pre></div>`}
    ${!turn && text.length < characters && html`<p class="note">the run kept the beginning of
      ${" "}${characters.toLocaleString("en")} characters</p>`}
    ${!turn && !characters && !text && html`<p class="note">${call.turn == null
      ? "there is no text of a reply" : "its turn is not in the file"}</p>`}`;
}
