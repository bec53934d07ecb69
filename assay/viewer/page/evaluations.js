// An evaluation: its numbers, pass rate by tag, protocol and tasks; and beside it another one.
import { html, useState } from "./vendor/preact.js";
import { address, go, useAnswer } from "./data.js";
import { IntervalBar, percent } from "./plot.js";
import { plain, visible } from "./text.js";

const DRAWN = 300;
const share = (task) => (task ? task.passed / task.samples : null);

export function Evaluations({ run, at, with_run: withRun, with_at: withAt }) {
  const last = run.evaluations.length - 1;
  const number = run.evaluations[Number(at)] ? Number(at) : last;
  const { data: all } = useAnswer("runs", {});
  const other = useAnswer("run", withRun ? { run: withRun } : null);
  const asked = { run: run.name, at: number,
    ...(withRun && withAt != null && { with_run: withRun, with_at: withAt }) };
  const { data, error } = useAnswer("evaluation", last < 0 ? null : asked);
  const change = (more) => go("evaluations", { ...asked, with_run: withRun, ...more }, true);
  if (last < 0) return html`<main><h1>${run.name} <small>evaluations</small></h1>
    <p class="note">no evaluation yet: <code>[evaluate]</code> in the run's settings, or
      ${" "}<code>assay eval</code></p></main>`;
  const choices = (some) => some.map((one, n) => html`<option value=${n}>${one.title}</option>`);
  return html`<main>
    <h1>${run.name} <small>evaluations</small></h1>
    <div class="filters">
      <select aria-label="evaluation" class="whole" value=${number}
        onChange=${(event) => change({ at: event.target.value })}>
        ${choices(run.evaluations)}</select>
      <label class="field">beside <select aria-label="other run" class="whole"
        value=${withRun || ""} onChange=${({ target: { value } }) => change({ with_run: value,
          with_at: value ? 0 : "" })}><option value="">no other</option>
        ${(all ? all.runs : []).filter((one) => one.evaluation).map(({ name }) => html`<option
          value=${name}>${name}</option>`)}</select></label>
      ${withRun && other.data && html`<select aria-label="other evaluation" class="whole"
        value=${withAt} onChange=${(event) => change({ with_at: event.target.value })}>
        ${choices(other.data.evaluations)}</select>`}
    </div>
    ${error && html`<p class="problem">${error}</p>`}
    ${data && html`<${Numbers} one=${data} />
      ${data.other && html`<${Numbers} one=${data.other} />
        <${Difference} difference=${data.difference} />`}
      <${Tags} one=${data} />
      <${Tasks} key=${JSON.stringify(asked)} run=${run.name} one=${data} withRun=${withRun} />
      <section><h2>Protocol</h2>${data.protocol.length ? html`<pre
        class="panel">${visible(data.protocol.join("\n"))}</pre>` : html`<p class="note">made while
        training: <a href=${address("settings", { run: run.name, stage: data.name })}>the stage's
        settings</a> say how, ${data.samples} completions of each task at temperature
        ${" "}${data.temperature}</p>`}</section>`}
  </main>`;
}

function Numbers({ one }) {
  const lost = one.dropped > 0 && html`<span class="alert">${one.lost} lost to the
    machine</span>`;
  return html`<section aria-label=${one.title}><h2>${plain(one.title)}</h2>
    <p class="facts"><span>pass@1 <b>${percent(one.pass_at["1"])}</b></span>
      <${IntervalBar} value=${one.pass_at["1"]} ...${one.interval} />
      <span class="muted">95 % interval ${percent(one.interval.low)} to
        ${" "}${percent(one.interval.high)}</span>
      ${Object.entries(one.pass_at).slice(1).map(([k, value]) => html`<span>pass@${k}
        ${" "}<b>${percent(value)}</b></span>`)}
      <span>${one.tasks} tasks × ${one.samples}</span>
      <span class="muted">${one.mean_length.toFixed(0)} tokens, ${percent(one.truncated)} cut
        off</span>
      ${Object.entries(one.verdicts).map(([name, count]) => html`<span
        class="muted">${name.replace("_", " ")} ${count}</span>`)} ${lost}</p></section>`;
}

function Difference({ difference: one }) {
  if (!one) return null;
  const signed = (value) => `${value < 0 ? "−" : "+"}${percent(Math.abs(value))}`;
  return html`<p class="facts" aria-label="difference"><span>the second against the first:
    ${" "}<b>${signed(one.difference)}</b>, 95 % interval ${signed(one.interval.low)} to
    ${" "}${signed(one.interval.high)}, p = ${one.p_value.toPrecision(2)}</span>
    <span>better on ${one.wins}, worse on ${one.losses} of ${one.tasks} tasks</span></p>`;
}

function Tags({ one }) {
  const others = (kind, name) => ((one.other || {}).groups || {})[kind]?.[name];
  return Object.entries(one.groups).map(([kind, groups]) => html`<section
    aria-label=${`by ${kind}`}><h2>By ${plain(kind)}</h2><table>
    <thead><tr><th>${plain(kind)}</th><th class="number">tasks</th><th class="number">pass@1</th>
      <th>95 % interval</th>${one.other && html`<th class="number">the other's pass@1</th>`}</tr>
      </thead>
    <tbody>${Object.entries(groups).map(([name, group]) => html`<tr><td>${plain(name)}</td>
      <td class="number">${group.tasks}</td>
      <td class="number"><b>${percent(group.pass_at_1)}</b>${group.lost > 0
        && html` <span class="alert">${group.lost} lost</span>`}</td>
      <td><${IntervalBar} value=${group.pass_at_1} ...${group.interval} /></td>
      ${one.other && html`<td class="number">${percent(others(kind, name)?.pass_at_1)}</td>`}
    </tr>`)}</tbody></table></section>`);
}

function Tasks({ run, one, withRun }) {
  const [part, setPart] = useState("");
  const [differ, setDiffer] = useState(false);
  const others = new Map((one.other ? one.other.per_task : []).map((task) => [task.id, task]));
  const tagged = (task) => Object.entries(task.tags).map(([name, value]) => `${name}: ${value}`);
  const rows = one.per_task.filter((task) => (!differ || share(task) !== share(others.get(task.id)))
    && [task.id, ...tagged(task)].some((text) => text.toLowerCase().includes(part.toLowerCase())));
  const link = (name, { place }, task) => (place && task ? html`<a href=${address("rollouts",
    { run: name, kind: "evaluations", ...place, task: task.id })}
    >${task.passed}/${task.samples}</a>`
    : task ? `${task.passed}/${task.samples}` : "–");
  return html`<section aria-label="task by task"><h2>Task by task
    ${" "}<small>${rows.length.toLocaleString("en")} of ${one.per_task.length.toLocaleString("en")}
    ${!one.place && ", without rollouts: an older evaluation kept none"}</small></h2>
    <div class="filters"><input type="search" placeholder="task or tag" aria-label="task or tag"
      value=${part} onInput=${(event) => setPart(event.target.value)} />
      ${one.other && html`<label class="field"><input type="checkbox" checked=${differ}
        onChange=${() => setDiffer(!differ)} />only where they differ</label>`}</div>
    <table class="per-task"><thead><tr><th>task</th><th>tags</th><th class="number">passed</th>
      ${one.other && html`<th class="number">the other</th><th class="number">change</th>`}</tr>
    </thead>
    <tbody>${rows.slice(0, DRAWN).map((task) => {
      const second = others.get(task.id);
      const change = second ? share(second) - share(task) : 0;
      return html`<tr key=${task.id}><td>${plain(task.id)}</td>
        <td class="muted">${plain(tagged(task).join(", "))}</td>
        <td class="number">${link(run, one, task)}</td>
        ${one.other && html`<td class="number">${link(withRun, one.other, second)}</td>
          <td class="number ${change > 0 ? "better" : change < 0 ? "worse" : "muted"}">${change
            ? `${change < 0 ? "−" : "+"}${percent(Math.abs(change))}` : "same"}</td>`}</tr>`;
    })}</tbody></table>
    ${rows.length > DRAWN && html`<p class="note">${(rows.length - DRAWN).toLocaleString("en")} more
      tasks: find them by a part of their names or tags</p>`}</section>`;
}
