// The list of runs.
import { html, useEffect, useState } from "./vendor/preact.js";
import { address, go, useAnswer, useKeys } from "./data.js";
import { useOrder } from "./parts.js";
import { visible } from "./text.js";
import { IntervalBar, Spark, percent } from "./plot.js";

/** A time that has passed, in one unit. */
export function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h ago`
    : `${Math.round(seconds / 86400)} days ago`;
}

const KEYS = {
  run: (one) => one.name,
  "stages, steps": (one) => one.stages.reduce((sum, { step }) => sum + step, 0),
  "pass rate while training": (one) => one.spark[one.spark.length - 1],
  "last evaluation, pass@1": (one) => one.evaluation && one.evaluation.pass_at["1"],
  alerts: (one) => one.alerts,
  changed: (one) => one.age,
};
const written = (value) => (value == null ? "–" : typeof value === "string" ? value
  : JSON.stringify(value));

export function Runs({ columns = "" }) {
  const { data, error } = useAnswer("runs", {}, 5000);
  const [chosen, setChosen] = useState(0);
  const settings = columns.split(" ").filter(Boolean);
  const differing = [...new Set((data ? data.runs : []).flatMap((run) =>
    Object.keys(run.settings)))].sort();
  const ofSettings = Object.fromEntries(settings.map((name) => [name, (one) =>
    one.settings[name]]));
  const [runs, head] = useOrder(data ? data.runs : [], { ...KEYS, ...ofSettings });
  const choose = (names) => go("runs", { columns: names.join(" ") }, true);
  const move = (by) => setChosen(Math.max(0, Math.min(runs.length - 1, chosen + by)));
  useKeys({
    j: ["next run", () => move(1)],
    k: ["previous run", () => move(-1)],
    Enter: ["open the run", () => runs[chosen] && go("run", { run: runs[chosen].name })],
  });
  useEffect(() => {
    const row = document.querySelector("tr.chosen");
    if (row) row.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  if (error && !data) return html`<p class="problem">${error}</p>`;
  if (!data) return html`<p class="note">reading runs …</p>`;
  return html`<main>
    <h1>${data.folder}</h1>
    ${differing.length > 0 && html`<div class="filters">
      <select aria-label="a setting as a column" class="whole" value=""
        onChange=${(event) => choose([...settings, event.target.value])}>
        <option value="">a setting as a column</option>
        ${differing.filter((name) => !settings.includes(name)).map((name) => html`<option
          value=${name}>${name}</option>`)}</select>
      ${settings.map((name) => html`<button aria-label=${`without ${name}`} onClick=${() =>
        choose(settings.filter((other) => other !== name))}>${name} ×</button>`)}</div>`}
    <table class="runs stack">
      <thead><tr>
        ${head("run")}${head("stages, steps")}${settings.map((name) => head(name))}
        ${head("pass rate while training")}
        ${head("last evaluation, pass@1")}<th colspan="2"></th>
        ${head("alerts", "number")}${head("changed", "number")}
      </tr></thead>
      <tbody>${runs.map((run, at) => html`<${RunRow} run=${run} key=${run.name}
        settings=${settings} chosen=${at === chosen} />`)}</tbody>
    </table>
    <${Damage} lines=${runs.flatMap((run) => run.damage)} />
  </main>`;
}

/** Whether a run trains, as far as can be seen. */
export const isLive = (run) => run.age < 60 && !run.finished;

/** The files that cannot be read. */
export function Damage({ lines }) {
  return lines.length > 0 && html`<section aria-label="damaged files"><ul class="alerts">
    ${[...new Set(lines)].map((line) => html`<li><b>damaged</b> ${visible(line)}</li>`)}
  </ul></section>`;
}

function RunRow({ run, chosen, settings }) {
  const { evaluation } = run;
  const rate = evaluation && evaluation.pass_at["1"];
  const open = () => go("run", { run: run.name });
  return html`<tr class=${chosen ? "chosen" : ""} onClick=${open}>
    <td><a href=${address("run", { run: run.name })}>${run.name}</a></td>
    <td>${run.stages.map((one) => html`<span class="stage">${one.name} <b>${one.step}</b>
      </span>`)}</td>
    ${settings.map((name) => html`<td data-label=${name}>${visible(written(
      run.settings[name]))}</td>`)}
    <td><${Spark} values=${run.spark} label=${`pass rate of ${run.name}`} />${" "}
      <span class="number">${run.spark.length ? percent(run.spark[run.spark.length - 1])
        : ""}</span></td>
    <td class="number" data-label="pass@1">${evaluation && percent(rate)}${evaluation
      && evaluation.dropped > 0 && html` <span class="alert">${evaluation.lost} lost</span>`}</td>
    <td>${evaluation && html`<${IntervalBar} value=${rate} ...${evaluation.interval} />`}</td>
    <td class="muted">${evaluation && evaluation.tasks_spec}</td>
    <td class="number" data-label="alerts">${run.alerts
      ? html`<span class="alert">${run.alerts}</span>` : "–"}</td>
    <td class="number" data-label="changed">${run.finished && "finished, "}${isLive(run)
      && html`<i class="live" title="changed in the last minute" />`}${ago(run.age)}</td>
  </tr>`;
}
