// One rollout: its reward, and turn by turn the prompt, the completion, the verdict and the checks.
import { html, useState } from "./vendor/preact.js";
import { address, useKeys } from "./data.js";
import { Code, LongText, Tokens, plain, visible } from "./text.js";
import { Mark } from "./parts.js";
import { AgentCalls } from "./calls.js";
import { Patch, isPatch } from "./diff.js";

const MODES = [["text", "text"], ["probability", "log-probability"], ["advantage", "advantage"]];

/** Where a rollout is, as one word of an address. */
export const wordOf = (place) =>
  [place.run, place.stage, place.kind, place.step, place.group, place.index].join("|");

export function Rollout({ data, place, run, bare }) {
  const [mode, setMode] = useState("text");
  const next = MODES[(MODES.findIndex(([one]) => one === mode) + 1) % MODES.length][0];
  useKeys(bare ? {} : { c: ["colour tokens by log-probability or advantage",
    () => setMode(next)] });
  const advantages = data.turns.flatMap((one) => one.advantages);
  const many = new Set(advantages).size > 1;
  const task = { run: run.name, stage: place.stage, kind: place.kind, task: data.task_id };
  return html`<article>
    <h2>${plain(data.task_id)} <small>${bare ? `${place.run} · ` : ""}${place.stage}${" "}
      step ${data.step}, group ${data.group},
      rollout ${data.index}</small></h2>
    <p class="facts">
      <${Mark} row=${data} /> ${data.total
        ? html`<span>${data.passed} of ${data.total} checks</span>` : ""}
      <span>reward <b>${data.reward == null ? "–" : data.reward.toFixed(3)}</b></span>
      ${(data.parts || []).map(([name, value]) => html`<span
        class="muted">${name} ${value == null ? "–" : value.toFixed(3)}</span>`)}
      ${advantages.length > 0 && html`<span title="as the learner used it">advantage
        ${" "}<b>${signed(advantages[0])}</b>${many && html` to <b>${signed(advantages[
          advantages.length - 1])}</b>`}</span>`}
      ${(data.tags || []).map(([name, value]) => html`<span class="muted">${plain(name)}:
        ${" "}${plain(value)}</span>`)}
      <${Usage} turns=${data.turns} seconds=${data.seconds} />
      ${data.held_out && html`<span>held-out checks: <b class=${data.held_out === "pass" ? ""
        : "alert"}>${data.held_out}</b></span>`}
    </p>
    ${data.failure && html`<p class="problem">${data.cause && data.cause !== "machine"
      ? `the task cannot be judged (${data.cause})` : "the machine failed"}: ${
      visible(data.failure)}</p>`}
    ${!bare && html`<p class="tabs">
      ${MODES.map(([one, label]) => html`<button class=${one === mode ? "on"
        : ""} onClick=${() => setMode(one)}>${label}</button>`)}
      <a href=${address("rollouts", { ...task, order: "step" })}>all of this task</a>
      <a href=${address("tasks", task)}>its history</a>
      <a href=${address("compare", { run: run.name, a: wordOf(place) })}>compare</a>
    </p>`}
    ${!bare && data.call_tree && html`<${AgentCalls} tree=${data.call_tree} turns=${data.turns}
      place=${place} />`}
    ${data.turns.map((turn, at) => html`<${Turn} turn=${turn} place=${place} mode=${mode}
      many=${data.turns.length > 1} checks=${at === data.turns.length - 1 ? data.checks : []} />`)}
  </article>`;
}

/** What a rollout took: tokens read and written, wall time, and CPU time of its programs. */
function Usage({ turns, seconds }) {
  const sum = (pick) => turns.reduce((all, turn) => all + (pick(turn) || 0), 0);
  const count = (value) => value.toLocaleString("en");
  const [read, cpu] = [(turn) => turn.prompt_length, (turn) => turn.cpu_seconds].map(sum);
  return html`<span class="muted usage">${read > 0 && `${count(read)} tokens read, `}${count(sum(
    (turn) => turn.length))} written in ${turns.length} ${turns.length > 1 ? "turns" : "turn"}${
    seconds > 0 && `, ${seconds.toFixed(1)} s`}${
    cpu > 0 && `, ${cpu.toFixed(3)} s CPU of its programs`}</span>`;
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

function Turn({ turn, place, mode, many, checks }) {
  const text = (name, label, code) => turn[name].total > 0 && html`<section>
    <h3>${label}</h3>
    <${LongText} place=${place} turn=${turn.turn} name=${name} value=${turn[name]} code=${code}
      label=${label} />
  </section>`;
  const same = turn.program.text === turn.completion.text;
  const coloured = mode !== "text" && turn.tokens.length > 0;
  return html`<div class="turn">
    ${many && html`<h3 class="number">turn ${turn.turn + 1}</h3>`}
    ${text("prompt", turn.rendered ? "prompt, as the model read it" : "prompt of the task")}
    <section><h3>completion <small>${turn.length} tokens, ${turn.ended === "length" ? html`<b
      class="alert">cut off</b>` : "ended by itself"},
      weights ${turn.version}</small></h3>
      ${coloured ? html`<${Tokens} turn=${turn} by=${mode} />`
        : html`<${LongText} place=${place} turn=${turn.turn} name="completion"
          value=${turn.completion} code=${same} reply=${!same} label="completion" />`}
      ${mode !== "text" && !coloured && html`<p class="note">this run kept no texts of tokens</p>`}
    </section>
    <${Calls} calls=${turn.calls || []} />
    ${!same && (isPatch(turn.program.text) ? html`<section><h3>change of the repository</h3>
      <${Patch} text=${turn.program.text} /></section>` : text("program", "program", true))}
    ${turn.verdict && html`<${Verdict} turn=${turn} place=${place} checks=${checks} />`}
    ${text("output", "output")}
    ${text("stderr", "standard error")}
    ${!(turn.calls || []).length && text("observation", "the environment answers")}
  </div>`;
}

function Verdict({ turn, place, checks }) {
  const [detail, tests] = [turn.detail.text, turn.tests || []];
  return html`<section>
    <h3>verdict <small>${turn.verdict.replace("_", " ")}, ${turn.passed} of ${turn.total} checks,
      ${" "}${(turn.cpu_seconds || 0).toFixed(3)} s CPU</small></h3>
    ${turn.forgeable && html`<p class="alert">forgeable: it rests on the program's word</p>`}
    ${detail && html`<${LongText} place=${place} turn=${turn.turn} name="detail"
      value=${turn.detail} label="detail" />`}
    ${tests.some((one) => !/^\d+$/.test(one.name))
      ? html`<${Tests} tests=${tests} total=${turn.total} />`
      : turn.total > 0 && html`<${Checks} turn=${turn} checks=${checks} />`}
  </section>`;
}

// What a program gave, from what the judge says of a check.
function got(detail) {
  const match = /gives ([^]*?)(?:, not [^]*| at `[^]*)$|is ([^]*), not /.exec(detail);
  return match ? match[1] || match[2] : detail;
}

/**
 * Each check with its result. A verdict names those that fail by number; of the others as many
 * passed as it counts. Where a check holds several tests, these stand by themselves.
 */
function Checks({ turn, checks }) {
  const failed = new Map((turn.tests || []).map((one) => [Number(one.name), one]));
  if (turn.tests && turn.total === 1 && !turn.passed && !failed.size) // the verdict is its result
    failed.set(1, { outcome: turn.verdict, detail: turn.detail.text });
  const aligned = checks.length > 0 && turn.total === checks.length;
  const all = turn.passed + failed.size >= turn.total;
  const none = turn.tests ? "not run" : "not recorded"; // by an older version
  let left = turn.tests ? turn.passed : 0;
  const results = Array.from({ length: Math.min(turn.total, 64) }, (_, at) => {
    if (failed.has(at + 1)) return failed.get(at + 1);
    return { outcome: all || left-- > 0 ? "passed" : none, detail: "" };
  });
  const answers = aligned && checks.some((one) => one.expected);
  return html`<table class="checks"><thead><tr><th class="number">#</th><th>result</th>
    ${aligned && html`<th>check</th>`}${answers && html`<th>expected</th>`}<th>got</th>
    ${aligned && html`<th></th>`}</tr></thead>
    <tbody>${results.map(({ outcome, detail }, at) => {
      const check = aligned ? checks[at] : {};
      return html`<tr class=${detail ? "failed" : ""}>
        <td class="number">${at + 1}</td><td><${Outcome} outcome=${outcome} /></td>
        ${aligned && html`<td><${Code} text=${check.input} /></td>`}
        ${answers && html`<td><pre>${visible(check.expected)}</pre></td>`}
        <td><pre title=${plain(detail)}>${outcome === "passed" ? html`<span
          class="muted">as expected</span>` : visible(got(detail))}</pre></td>
        ${aligned && html`<td class="muted">${check.hidden ? "hidden from the model"
          : "shown to the model"}</td>`}
      </tr>`;
    })}</tbody></table>
    ${turn.total > results.length && html`<p class="note">the first ${results.length} of
      ${" "}${turn.total} checks</p>`}`;
}

function Outcome({ outcome }) {
  const kind = { passed: "pass", xfailed: "pass", skipped: "doubt", "not run": "none",
    "not recorded": "none" }[outcome];
  return html`<span class=${`mark ${kind || "fail"}`}>${outcome.replace("_", " ")}</span>`;
}

/** Each test of a repository, those that fail first. */
function Tests({ tests, total }) {
  return html`<table class="checks"><thead><tr><th>result</th><th>test</th>
    <th class="number">seconds</th></tr></thead>
    <tbody>${tests.map(({ name, outcome, seconds, is_fix: fixes, detail }) => html`
      <tr class=${outcome === "passed" || outcome === "xfailed" ? "" : "failed"}>
        <td><${Outcome} outcome=${outcome} /></td>
        <td><code>${visible(name)}</code> ${fixes && html`<span
          class="muted">only a right change passes it</span>`}
          ${detail && html`<pre>${visible(detail)}</pre>`}</td>
        <td class="number">${(seconds || 0).toFixed(2)}</td></tr>`)}</tbody></table>
    ${total > tests.length && html`<p class="note">${tests.length} of ${total} tests</p>`}`;
}

/** The tool calls of a turn, each with what came of it. */
function Calls({ calls }) {
  return calls.map(({ name, arguments: given, detail, result }) => html`<section class="call">
    <h3>calls <b>${plain(name || "no tool")}</b>${detail && html` <span
      class="alert">${plain(detail)}</span>`}</h3>
    ${given.map(([argument, text]) => html`<div class="long" aria-label=${argument}>
      <pre>${given.length > 1 && html`<span class="muted">${argument}: </span>`}${visible(text)}
      </pre></div>`)}
    ${result && html`<h3>result</h3><div class="long" aria-label="result">
      <pre>${visible(result)}</pre></div>`}
  </section>`);
}
