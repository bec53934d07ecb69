// One rollout: its reward, and turn by turn the prompt, the completion, the verdict and the checks.
import { html, useState } from "./vendor/preact.js";
import { address, useKeys } from "./data.js";
import { Code, LongText, Tokens, plain, visible } from "./text.js";
import { Mark } from "./parts.js";

const MODES = [["text", "text"], ["probability", "log-probability"], ["advantage", "advantage"]];

/** Where a rollout is, as one word of an address. */
export const wordOf = (place) =>
  [place.run, place.stage, place.kind, place.step, place.group, place.index].join("|");

export function Rollout({ data, place, run, bare }) {
  const [mode, setMode] = useState("text");
  const next = MODES[(MODES.findIndex(([one]) => one === mode) + 1) % MODES.length][0];
  useKeys(bare ? {} : { c: ["colour tokens by log-probability or advantage",
    () => setMode(next)] });
  const advantage = data.reward == null || data.group_mean == null ? null
    : data.reward - data.group_mean;
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
        class="muted">${name} ${value.toFixed(3)}</span>`)}
      ${advantage != null && html`<span
        title="reward minus the mean of its group">advantage <b>${signed(advantage)}</b></span>`}
      ${data.held_out && html`<span>held-out checks: <b class=${data.held_out === "pass" ? ""
        : "alert"}>${data.held_out}</b></span>`}
    </p>
    ${data.failure && html`<p class="problem">the machine failed: ${visible(data.failure)}</p>`}
    ${!bare && html`<p class="tabs">
      ${MODES.map(([one, label]) => html`<button class=${one === mode ? "on"
        : ""} onClick=${() => setMode(one)}>${label}</button>`)}
      <a href=${address("rollouts", { ...task, order: "step" })}>all of this task</a>
      <a href=${address("compare", { run: run.name, a: wordOf(place) })}>compare</a>
    </p>`}
    ${data.turns.map((turn, at) => html`<${Turn} turn=${turn} place=${place} mode=${mode}
      advantage=${advantage}
      many=${data.turns.length > 1} checks=${at === data.turns.length - 1 ? data.checks : []} />`)}
  </article>`;
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

function Turn({ turn, place, mode, advantage, many, checks }) {
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
      ${coloured ? html`<${Tokens} turn=${turn} by=${mode} advantage=${advantage} />`
        : html`<${LongText} place=${place} turn=${turn.turn} name="completion"
          value=${turn.completion} code label="completion" />`}
      ${mode !== "text" && !coloured && html`<p class="note">this run kept no texts of tokens</p>`}
    </section>
    ${!same && text("program", "program", true)}
    ${turn.verdict && html`<${Verdict} turn=${turn} place=${place} checks=${checks} />`}
    ${text("output", "output")}
    ${text("stderr", "standard error")}
    ${text("observation", "the environment answers")}
  </div>`;
}

function Verdict({ turn, place, checks }) {
  const detail = turn.detail.text;
  const trusted = turn.trusted || [];
  return html`<section>
    <h3>verdict <small>${turn.verdict.replace("_", " ")}, ${turn.passed} of ${turn.total} checks,
      ${" "}${turn.cpu_seconds.toFixed(3)} s CPU</small></h3>
    ${trusted.length > 0 && html`<p class="alert">on trust: ${plain(trusted.join(", "))}</p>`}
    ${detail && html`<${LongText} place=${place} turn=${turn.turn} name="detail"
      value=${turn.detail} label="detail" />`}
    ${checks.length > 0 && html`<${Checks} checks=${checks} detail=${detail} />`}
  </section>`;
}

// The judge names the check that failed in its detail, which may be shortened.
function isFailed(check, detail) {
  const start = check.input.trim().slice(0, 60);
  return start.length > 3 && detail.includes(start);
}

function got(detail) {
  const match = /gives (.*), not |is (.*), not /s.exec(detail);
  return match ? match[1] || match[2] : "";
}

function Checks({ checks, detail }) {
  const answers = checks.some((one) => one.expected);
  return html`<table class="checks"><thead><tr><th>check</th>${answers && html`<th>expected</th>
    <th>got</th>`}<th></th></tr></thead>
    <tbody>${checks.map((check) => {
      const failed = isFailed(check, detail);
      return html`<tr class=${failed ? "failed" : ""}>
        <td><${Code} text=${check.input} /></td>
        ${answers && html`<td><pre>${visible(check.expected)}</pre></td><td>
          <pre>${failed ? visible(got(detail)) : ""}</pre></td>`}
        <td class="muted">${failed && html`<b class="alert">failed</b>`} ${check.hidden ? "hidden"
          : "shown"}</td>
      </tr>`;
    })}</tbody></table>`;
}
