// One run: alerts, evaluations, and the curves of each stage on its own axis.
import { html, useState } from "./vendor/preact.js";
import { address, go } from "./data.js";
import { Damage, ago, isLive } from "./runs.js";
import { DrawingChoice, IntervalBar, Plot, percent } from "./plot.js";
import { useOrder } from "./parts.js";
import { visible } from "./text.js";

const shares = { format: percent };
const CURVES = [
  ["pass rate", ["reward/pass_rate"], shares],
  ["reward", ["reward/mean"]],
  ["reward parts", "reward/"],
  ["length, tokens", ["rollout/length"]],
  ["entropy, nats", ["learn/entropy"]],
  ["KL to the reference", ["learn/kl"]],
  ["KL to the engine", ["learn/kl_engine"]],
  ["spread of importance weights", ["learn/importance_weight_spread"]],
  ["largest ratio", ["learn/ratio_max"]],
  ["staleness, versions", ["staleness/mean", "staleness/max"]],
  ["seconds by part", "time/"],
  ["loss", ["loss"]],
  ["cut off, zero variance", ["rollout/truncated", "rollout/zero_variance_groups"], shares],
  ["sampled tokens that taught", ["rollout/taught", "rollout/taught_so_far"], shares],
  ["gap of held-out checks", "held_out/gap/", shares],
  ["gradient norm", ["learn/grad_norm"]],
  ["learning rate", ["learn/lr"], { exact: true }],
];
const NOT_PARTS = /^reward\/(mean|std|pass_rate|pass@k|.*_std)$/;
const SAME = /^(staleness|learn\/kl)/;

function namesOf(wanted, columns) {
  if (Array.isArray(wanted)) return wanted.filter((name) => columns[name]);
  return Object.keys(columns).filter((name) => name.startsWith(wanted) && !NOT_PARTS.test(name));
}

function curve(names, columns) {
  const rows = columns.step.map((_,
    at) => at).filter((at) => names.some((one) => columns[one][at] != null));
  const bare = (name) => name.replace(/^(reward|time|staleness|rollout|held_out\/gap)\//,
    "").replaceAll("_", " ");
  return {
    steps: rows.map((at) => columns.step[at]),
    lines: names.map((name) => ({ name: bare(name), values: rows.map((at) => columns[name][at]) })),
  };
}

export function Run({ run, theme, smooth, log }) {
  const change = (more) => go("run", { run: run.name, smooth, log, ...more }, true);
  return html`<main>
    <h1>${run.name} <small>${isLive(run) && html`<i
      class="live" />`}${run.finished && "finished,"} changed ${ago(run.age)}</small></h1>
    <${Damage} lines=${run.damage} />
    <${Alerts} run=${run} />
    ${run.evaluations.length > 0 && html`<${Evaluations} run=${run} />`}
    <div class="filters"><${DrawingChoice} smooth=${smooth} log=${log} change=${change} /></div>
    ${run.stages.map((stage) => html`<${Stage} run=${run} stage=${stage} key=${stage.name}
      drawing=${{ theme, smooth: smooth == null ? undefined : Number(smooth), log }} />`)}
  </main>`;
}

function Alerts({ run }) {
  if (!run.alerts.length) return null;
  return html`<section aria-label="alerts"><ul class="alerts">
    ${run.alerts.map((one) => html`<li><b>${one.stage} ${one.step}</b> ${visible(one.text)}
      ${(one.event || "").startsWith("held_out_gap/") && html` <a href=${address("suspects",
        { run: run.name })}>suspects</a>`}</li>`)}
  </ul></section>`;
}

const KEYS = {
  policy: (one) => one.name, tasks: (one) => one.tasks_spec, "pass@1": (one) => one.pass_at["1"],
  lost: (one) => one.dropped, tokens: (one) => one.mean_length, "cut off": (one) => one.truncated,
};

function Evaluations({ run }) {
  const numbered = run.evaluations.map((one, at) => ({ ...one, at }));
  const [rows, head] = useOrder(numbered, KEYS);
  return html`<section><h2>Evaluations</h2><table class="stack">
    <thead><tr>${head("policy")}${head("tasks")}${head("pass@1", "number")}<th>95 % interval</th>
      <th></th>${head("lost", "number")}<th class="number">pass@k</th>${head("tokens", "number")}
      ${head("cut off", "number")}</tr></thead>
    <tbody>${rows.map((one) => {
      const { low, high } = one.interval;
      const most = Object.keys(one.pass_at).map(Number).reduce((a, b) => Math.max(a, b));
      return html`<tr>
        <td><a href=${address("evaluations", { run: run.name, at: one.at })}>${one.name}</a></td>
        <td class="muted">${one.tasks_spec}, ${one.tasks} × ${one.samples}</td>
        <td class="number" data-label="pass@1"><b>${percent(one.pass_at["1"])}</b></td>
        <td><${IntervalBar} value=${one.pass_at["1"]} low=${low} high=${high} /></td>
        <td class="range muted">${percent(low)} to ${percent(high)}</td>
        <td class="number" data-label="lost">${one.dropped ? html`<span
          class="alert">${one.lost}</span>` : 0}</td>
        <td class="number" data-label="pass@k">${most > 1
          ? `${percent(one.pass_at[most])} at ${most}` : "–"}</td>
        <td class="number" data-label="tokens">${one.mean_length.toFixed(0)}</td>
        <td class="number" data-label="cut off">${percent(one.truncated)}</td>
      </tr>`;
    })}</tbody>
  </table></section>`;
}

function Stage({ run, stage, drawing }) {
  const [all, setAll] = useState(false);
  const { columns } = stage.metrics;
  const steps = columns.step || [];
  const made = CURVES.map(([title, wanted, more]) => [title, namesOf(wanted, columns),
    more]).filter(
    ([, names]) => names.length && worth(names, columns),
  );
  const shown = new Set(made.flatMap(([, names]) => names));
  const rest = Object.keys(columns)
    .filter((name) => !["step", "time"].includes(name) && !shown.has(name)).sort();
  const to = (view, more) => address(view, { run: run.name, stage: stage.name, ...more });
  const counts = stage.steps;
  const last = counts.rollouts[counts.rollouts.length - 1];
  return html`<section aria-label=${`stage ${stage.name}`}>
    <h2>${stage.name}
      ${steps.length > 0 && html`<small>step ${steps.reduce((a, b) => Math.max(a, b), 0)}</small>`}
      <nav>
        ${last != null && html`<a href=${to("rollouts", { kind: "rollouts" })}>rollouts</a>
          <a href=${to("groups", { kind: "rollouts", step: last })}>groups</a>`}
        ${counts.evaluations.length > 0 && html`<a href=${to("rollouts",
          { kind: "evaluations" })}>evaluated rollouts</a>`}
        ${stage.settings && html`<a href=${to("settings")}>settings</a>`}
      </nav></h2>
    <div class="plots">
      ${stage.points.length > 1 && html`<${Plot} key="points" title="evaluation, pass@1"
        format=${percent} ...${drawing}
        steps=${stage.points.map((one) => one.step)} lines=${[{ name: "pass@1",
          values: stage.points.map((one) => one.pass) }]}
        intervals=${stage.points.map((one) => [one.step, one.low, one.high])} />`}
      ${made.map(([title, names, more]) => html`<${Plot} key=${title} title=${title} ...${drawing}
        ...${curve(names, columns)} ...${more} />`)}
      ${all && rest.map((name) => html`<${Plot} key=${name} title=${name} ...${drawing}
        ...${curve([name], columns)} />`)}
    </div>
    ${rest.length > 0 && html`<button class="more" onClick=${() => setAll(!all)}>
      ${all ? "fewer metrics" : `${rest.length} more metrics`}</button>`}
  </section>`;
}

// A metric that is 0 throughout is no curve to look at, but where that it is 0 is the news.
function worth(names, columns) {
  if (!SAME.test(names[0])) return true;
  return names.some((name) => columns[name].some((one) => one));
}

export function Settings({ run, stage }) {
  const chosen = run.stages.find((one) => one.name === stage) || run.stages[0];
  return html`<main><h1>${run.name} <small>settings</small></h1>
    <p class="tabs">${run.stages.map((one) => html`<a class=${one === chosen ? "on" : ""}
      href=${address("settings", { run: run.name, stage: one.name })}>${one.name}</a>`)}</p>
    <pre class="panel">${visible(chosen ? chosen.settings : "")}</pre></main>`;
}
