// The list of runs.
import { html, useEffect, useState } from "./vendor/preact.js";
import { address, go, useAnswer, useKeys } from "./data.js";
import { visible } from "./text.js";
import { IntervalBar, Spark, percent } from "./plot.js";

/** A time that has passed, in one unit. */
export function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h ago`
    : `${Math.round(seconds / 86400)} days ago`;
}

export function Runs() {
  const { data, error } = useAnswer("runs", {}, 5000);
  const [chosen, setChosen] = useState(0);
  const runs = data ? data.runs : [];
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
    <table class="runs stack">
      <thead><tr>
        <th>run</th><th>stages, steps</th><th>pass rate while training</th>
          <th colspan="3">last evaluation, pass@1</th>
        <th class="number">alerts</th><th class="number">changed</th>
      </tr></thead>
      <tbody>${runs.map((run, at) => html`<${RunRow} run=${run}
        chosen=${at === chosen} />`)}</tbody>
    </table>
    <${Damage} lines=${runs.flatMap((run) => run.damage)} />
  </main>`;
}

/** The files that cannot be read. */
export function Damage({ lines }) {
  return lines.length > 0 && html`<section aria-label="damaged files"><ul class="alerts">
    ${[...new Set(lines)].map((line) => html`<li><b>damaged</b> ${visible(line)}</li>`)}
  </ul></section>`;
}

function RunRow({ run, chosen }) {
  const { evaluation } = run;
  const rate = evaluation && evaluation.pass_at["1"];
  const open = () => go("run", { run: run.name });
  return html`<tr class=${chosen ? "chosen" : ""} onClick=${open}>
    <td><a href=${address("run", { run: run.name })}>${run.name}</a></td>
    <td>${run.stages.map((one) => html`<span class="stage">${one.name} <b>${one.step}</b>
      </span>`)}</td>
    <td><${Spark} values=${run.spark} label=${`pass rate of ${run.name}`} />${" "}
      <span class="number">${run.spark.length ? percent(run.spark[run.spark.length - 1])
        : ""}</span></td>
    <td class="number" data-label="pass@1">${evaluation && percent(rate)}${evaluation
      && evaluation.dropped > 0 && html` <span class="alert">${evaluation.lost} lost</span>`}</td>
    <td>${evaluation && html`<${IntervalBar} value=${rate} ...${evaluation.interval} />`}</td>
    <td class="muted">${evaluation && evaluation.tasks_spec}</td>
    <td class="number" data-label="alerts">${run.alerts
      ? html`<span class="alert">${run.alerts}</span>` : "–"}</td>
    <td class="number" data-label="changed">${run.age < 60 && html`<i class="live"
      title="changed in the last minute" />`}${ago(run.age)}</td>
  </tr>`;
}
