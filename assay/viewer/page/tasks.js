// Each task over the steps of a stage: how often it was solved, and what it was paid.
import { html, useState } from "./vendor/preact.js";
import { address, go, useAnswer } from "./data.js";
import { FilesChoice, chosenFiles, useOrder } from "./parts.js";
import { Plot, Spark, percent } from "./plot.js";
import { plain } from "./text.js";

const DRAWN = 200;
const rate = ([, passed, judged]) => passed / judged, last = (list) => list[list.length - 1];
const ORDERS = {
  "changed most": (a, b) => b.change - a.change,
  "solved least": (a, b) => a.share - b.share,
  "solved most": (a, b) => b.share - a.share,
  "seen most": (a, b) => b.steps.length - a.steps.length,
};

const KEYS = { task: (one) => one.task_id, first: (one) => rate(one.steps[0]), last: (one) =>
  rate(last(one.steps)), passed: (one) => one.share, steps: (one) => one.steps.length, taught:
  (one) => one.taught };

function counted(one) {
  const [passed, judged] = one.steps.reduce(([a, b], [, p, n]) => [a + p, b + n], [0, 0]);
  return { ...one, passed, judged, share: passed / judged, taught: one.steps.filter((it) => it[4])
    .length, change: Math.abs(rate(last(one.steps)) - rate(one.steps[0])) };
}

export function Tasks({ run, stage, kind, task, theme }) {
  const files = chosenFiles(run, stage, kind);
  const stages = run.stages.filter((one) => files && one.name === files.stage);
  const steps = stages.map((one) => one.steps[files.kind].length)[0]; // again at a new step
  const { data, error } = useAnswer("tasks", files && { ...files, steps });
  const [part, setPart] = useState("");
  const [order, setOrder] = useState("changed most");
  const fits = ({ task_id: id }) => id.toLowerCase().includes(part.toLowerCase());
  const [all, head] = useOrder((data || []).filter(fits).map(counted).sort(ORDERS[order]), KEYS);
  if (!files) return html`<main><p class="note">no rollouts yet</p></main>`;
  const one = task && (data || []).find(({ task_id: id }) => id === task);
  if (one) return html`<${Task} files=${files} task=${one} theme=${theme} />`;
  return html`<main>
    <h1>${run.name} <small>tasks over the steps</small></h1>
    <div class="filters">
      <${FilesChoice} run=${run} files=${files} change=${(more) => go("tasks", { run: run.name,
        ...more }, true)} />
      <input type="search" placeholder="find a task" aria-label="find a task" value=${part}
        onInput=${(event) => setPart(event.target.value)} />
      <select aria-label="order" value=${order}
        onChange=${(event) => setOrder(event.target.value)}>${Object.keys(ORDERS).map((name) =>
          html`<option value=${name}>${name}</option>`)}</select>
      <span class="muted">${all.length.toLocaleString("en")} tasks</span>
    </div>
    ${error && html`<p class="problem">${error}</p>`}
    ${task && data && html`<p class="note">task ${plain(task)} is not in this stage</p>`}
    <table><thead><tr>${head("task")}<th>pass rate by step</th>${head("taught")}
      ${head("first", "number")}${head("last", "number")}${head("passed", "number")}
      ${head("steps", "number")}</tr></thead>
      <tbody>${all.slice(0, DRAWN).map((it) => html`<tr key=${it.task_id}>
        <td class="task"><a href=${address("tasks", { ...files, task: it.task_id })}
          >${plain(it.task_id)}</a></td>
        <td><${Spark} values=${it.steps.map(rate)}
          label=${`pass rate of ${plain(it.task_id)}`} /></td>
        <td class="strip" title=${`${it.taught} of ${it.steps.length} steps taught`}>${it.steps
          .slice(-24).map((step) => html`<i class=${step[4] ? "taught" : "flat"} />`)}</td>
        <td class="number">${percent(rate(it.steps[0]))}</td>
        <td class="number">${percent(rate(last(it.steps)))}</td>
        <td class="number">${it.passed}/${it.judged}</td>
        <td class="number">${it.steps.length}</td></tr>`)}</tbody></table>
    ${all.length > DRAWN && html`<p class="note">${(all.length - DRAWN).toLocaleString("en")} more
      tasks: find them by a part of their names</p>`}
  </main>`;
}

function Task({ files, task: { task_id: id, steps }, theme }) {
  const by = (pick) => ({ steps: steps.map(([step]) => step), theme,
    lines: [{ name: "", values: steps.map(pick) }] });
  return html`<main>
    <h1>${plain(id)} <small>${files.run}, ${files.stage}</small></h1>
    <p class="tabs"><a href=${address("tasks", files)}>all tasks</a>
      <a href=${address("rollouts", { ...files, task: id, order: "step" })}>its rollouts</a></p>
    <div class="plots">
      <${Plot} title="pass rate" format=${percent} exact ...${by(rate)} />
      <${Plot} title="mean reward" exact ...${by((one) => one[3])} />
    </div>
    <table class="history"><thead><tr><th class="number">step</th><th class="number">passed</th>
      <th class="number">mean reward</th></tr></thead>
      <tbody>${steps.slice(-DRAWN).reverse().map(([step, passed, judged, reward]) => html`<tr>
        <td class="number"><a href=${address("rollouts", { ...files, task: id, step })}
          >${step}</a></td>
        <td class="number">${passed}/${judged}</td>
        <td class="number">${reward == null ? "–" : reward.toFixed(3)}</td></tr>`)}</tbody></table>
  </main>`;
}
