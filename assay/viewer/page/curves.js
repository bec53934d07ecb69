// A metric of several runs laid over each other: runs of one recipe are one line with a band.
import { html, useMemo } from "./vendor/preact.js";
import { address, go, useAnswer } from "./data.js";
import { useOrder } from "./parts.js";
import { LogChoice, Plot, Swatch, percent, short } from "./plot.js";

const USUAL = "reward/pass_rate";
const SHARES = /pass_rate|pass@|truncated|held_out/;

/** The runs of each recipe; what their names share is the name. */
function recipes(curves) {
  const groups = new Map();
  curves.forEach((one) => groups.set(one.recipe, [...(groups.get(one.recipe) || []), one]));
  return [...groups.values()].map((runs) => ({ runs, name: nameOf(runs.map(({ run }) => run)) }));
}

function nameOf([first, ...others]) {
  let end = first.length;
  others.forEach((one) => {
    while (!one.startsWith(first.slice(0, end))) end -= 1;
  });
  const shared = first.slice(0, end).replace(/[\W_]*(seed)?[\W_]*\d*$/, "");
  return others.length ? shared || "runs alike" : first;
}

/** The mean over the runs at each step, and the lowest and the highest. */
function line({ runs, name }, steps) {
  const columns = runs.map(({ steps: own, values }) => new Map(own.map((step, at) => [step,
    values[at]])));
  const over = (pick) => steps.map((step) => {
    const found = columns.map((one) => one.get(step)).filter((one) => one != null);
    return found.length ? pick(found) : null;
  });
  const values = over((all) => all.reduce((a, b) => a + b) / all.length);
  return runs.length === 1 ? { name, values } : { name, values,
    low: over((all) => Math.min(...all)), high: over((all) => Math.max(...all)) };
}

const ends = ({ runs }) => runs.map(({ values }) => values[values.length - 1]);
const meanOf = (values) => values.reduce((a, b) => a + b) / values.length;
const lastStep = ({ runs }) => Math.max(...runs.map(({ steps }) => steps[steps.length - 1]));
const KEYS = { runs: ({ name }) => name, "last step": lastStep,
  "last value": (one) => meanOf(ends(one)) };

export function Curves({ metric = USUAL, stage, without = "", log, theme }) {
  const { data, error } = useAnswer("curves", { metric }, 10000);
  const hidden = without.split(",").filter(Boolean);
  const change = (more) => go("curves", { metric, stage, without, log, ...more }, true);
  const all = data ? data.curves : [];
  const stages = [...new Set(all.map((one) => one.stage))];
  const shown = stages.includes(stage) ? stage : stages[stages.length - 1];
  const groups = recipes(all.filter((one) => one.stage === shown));
  const [ordered, head] = useOrder(groups, KEYS);
  const kept = groups.filter(({ runs }) => !hidden.includes(runs[0].run));
  const key = JSON.stringify([shown, without]);
  const { steps, lines } = useMemo(() => {
    const found = new Set(kept.flatMap(({ runs }) => runs.flatMap((one) => one.steps)));
    const sorted = [...found].sort((a, b) => a - b);
    return { steps: sorted, lines: kept.map((one) => line(one, sorted)) };
  }, [data, key]);
  const format = SHARES.test(metric) ? percent : short;
  const toggle = (run) => change({ without: (hidden.includes(run) ? hidden.filter((one) =>
    one !== run) : [...hidden, run]).join(",") });
  return html`<main>
    <h1>Curves of all runs</h1>
    <div class="filters">
      <select aria-label="metric" class="whole" value=${metric}
        onChange=${(event) => change({ metric: event.target.value })}>
        ${[...new Set([metric, ...(data ? data.metrics : [])])].map((one) => html`<option
          value=${one}>${one}</option>`)}</select>
      <select aria-label="stage" value=${shown}
        onChange=${(event) => change({ stage: event.target.value })}>
        ${stages.map((one) => html`<option value=${one}>stage ${one}</option>`)}</select>
      <${LogChoice} log=${log} change=${change} />
    </div>
    ${error && html`<p class="problem">${error}</p>`}
    ${data && !all.length && html`<p class="note">no run has this metric</p>`}
    ${lines.length > 0 && html`<${Plot} key=${`${metric} ${key} ${lines.length}`}
      title=${metric} plain exact steps=${steps} lines=${lines} format=${format} theme=${theme}
      log=${log} height=${320} />`}
    <table class="curves"><thead><tr><th>shown</th>${head("runs")}
      ${head("last step", "number")}${head("last value", "number")}
      <th class="number">lowest to highest</th></tr></thead>
      <tbody>${ordered.map((one) => html`<${Recipe} one=${one} format=${format}
        at=${kept.indexOf(one)} toggle=${() => toggle(one.runs[0].run)} />`)}</tbody></table>
    <p class="note">Runs whose settings differ in nothing but the seed are one line, their mean; its
      band goes from the lowest to the highest.</p>
  </main>`;
}

function Recipe({ one, at, format, toggle }) {
  const { runs, name } = one;
  const last = ends(one);
  return html`<tr>
    <td><label><input type="checkbox" checked=${at >= 0} onChange=${toggle}
      aria-label=${`show ${name}`} />${at >= 0 && html` <${Swatch} n=${at} />`}</label></td>
    <td>${runs.length > 1 && html`<b>${name}</b> <span class="muted">${runs.length} runs: </span>`}
      ${runs.map(({ run, stage }) => html`<a class="stage" href=${address("run", { run, stage })}
        >${run}</a>`)}</td>
    <td class="number">${lastStep(one)}</td>
    <td class="number"><b>${format(meanOf(last))}</b></td>
    <td class="number">${runs.length > 1 ? `${format(Math.min(...last))} to ${format(
      Math.max(...last))}` : "–"}</td>
  </tr>`;
}
