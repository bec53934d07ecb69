// Two rollouts of a task side by side, tasks that changed, and suspects of reward hacking.
import { html, useEffect, useMemo, useState } from "./vendor/preact.js";
import { address, ask, go, useAnswer, useKeys } from "./data.js";
import { Rollout, wordOf } from "./rollout.js";
import { Mark, placeOf, useOrder } from "./parts.js";
import { Lines, diff } from "./diff.js";
import { plain } from "./text.js";

const passes = (row) => row.verdict === "pass";

const NAMES = ["run", "stage", "kind", "step", "group", "index"];

function placeOfWord(word) {
  const parts = (word || "").split("|");
  return parts.length === NAMES.length ? Object.fromEntries(NAMES.map((name, at) => [name,
    parts[at]])) : null;
}

/** The rollouts of a task in every stage of every run. */
function useOthers(task) {
  const [others, setOthers] = useState([]);
  useEffect(() => {
    let stopped = false;
    async function load() {
      const { runs } = await ask("runs", {});
      const found = [];
      for (const { name } of runs) {
        const run = await ask("run", { run: name });
        for (const stage of run.stages)
          for (const kind of ["rollouts", "evaluations"]) {
            if (!stage.steps[kind].length) continue;
            const files = { run: name, stage: stage.name, kind };
            const { rows } = await ask("rollouts", { ...files, task, order: "step" });
            if (rows.length) found.push({ files, rows });
          }
        if (stopped) return;
        setOthers([...found]);
      }
    }
    if (task) load().catch(() => {});
    return () => {
      stopped = true;
    };
  }, [task]);
  return others;
}

export function Compare({ run, a, b }) {
  const places = [a, b].map(placeOfWord);
  const first = useAnswer("rollout", places[0]);
  const second = useAnswer("rollout", places[1]);
  const others = useOthers(first.data && first.data.task_id);
  const choose = (event) => go("compare", { run: run.name, a, b: event.target.value }, true);
  useKeys({ x: ["exchange the sides", () => b && go("compare", { run: run.name, a: b, b: a },
    true)] });
  const [left, right] = [first.data, b && second.data];
  return html`<main>
    <h1>${left ? plain(left.task_id) : "compare"} <small>side by side</small></h1>
    <p class="filters"><label class="field">with <select class="whole"
      aria-label="the other rollout" value=${b || ""} onChange=${choose}>
      <option value="">choose another rollout of the task</option>
      ${others.map(({ files, rows }) => html`<optgroup
        label=${`${files.run} · ${files.stage} · ${files.kind}`}>
        ${rows.map((row) => html`<option value=${wordOf({ ...files, ...row })}
          disabled=${wordOf({ ...files, ...row }) === a}>
          step ${row.step}, rollout ${row.index}: ${row.verdict || "lost"}, ${row.reward == null
            ? "–" : row.reward.toFixed(2)}
        </option>`)}</optgroup>`)}
    </select></label></p>
    ${first.error && html`<p class="problem">${first.error}</p>`}
    ${left && right && html`<${Difference} left=${left} right=${right} />`}
    <div class="sides">
      ${left && html`<${Rollout} data=${left} place=${places[0]} run=${run} bare />`}
      ${right && html`<${Rollout} data=${right} place=${places[1]} run=${run} bare />`}
    </div>
  </main>`;
}

function Difference({ left, right }) {
  const text = (one) => one.turns[one.turns.length - 1].program || { text: "", total: 0 };
  const [before, after] = [text(left), text(right)];
  const lines = useMemo(() => diff(before.text.split("\n"), after.text.split("\n")), [before,
    after]);
  const cut = before.total > before.text.length || after.total > after.text.length;
  return html`<section aria-label="difference of the programs"><h3>difference of the programs
    ${cut && html`<small>of their first 20,000 characters</small>`}</h3>
    <${Lines} lines=${lines} />
  </section>`;
}

function pointsOf(run) {
  return (run ? run.stages : []).flatMap((stage) =>
    ["evaluations", "rollouts"].flatMap((kind) =>
      stage.steps[kind].map((step) => ({ stage: stage.name, kind, step,
        word: `${stage.name}|${kind}|${step}` })),
    ),
  );
}

// Evaluations, where there are two to compare, else all steps.
function usualOf(points, least) {
  const evaluated = points.filter((one) => one.kind === "evaluations");
  return (evaluated.length > least ? evaluated : points).map((one) => one.word);
}

function filesOf(run, word) {
  const [stage, kind, step] = word.split("|");
  return { run, stage, kind, step };
}

/** A task's rollouts side by side: where only one side passes, a failure and a pass. */
async function openPair(run, sides, one) {
  const answers = await Promise.all(sides.map((files) => ask("rollouts", { ...files,
    task: one.task_id, order: "step" })));
  const lost = one.after[0] / one.after[1] < one.before[0] / one.before[1];
  const [a, b] = answers.map(({ rows }, at) => wordOf({ ...sides[at],
    ...(rows.find((row) => passes(row) === ((at === 1) !== lost)) || rows[0]) }));
  go("compare", { run: run.name, a, b });
}

/** Passed and judged rollouts of each task at a step. */
function passesAt(tasks, step) {
  return new Map(tasks.flatMap(({ task_id: id, steps }) => steps
    .filter(([at]) => at === Number(step))
    .map(([, passed, judged]) => [id, [passed, judged]])));
}

/** The tasks of both sides whose pass rates differ, those that changed most first. */
function changes(before, after) {
  const rate = ([passed, judged]) => passed / judged;
  const difference = (one) => Math.abs(rate(one.after) - rate(one.before));
  return [...before]
    .filter(([task, one]) => after.has(task) && rate(one) !== rate(after.get(task)))
    .map(([task_id, one]) => ({ task_id, before: one, after: after.get(task_id) }))
    .sort((a, b) => difference(b) - difference(a));
}

export function Changes({ run, other, a, b }) {
  const { data: all } = useAnswer("runs", {});
  const later = other || run.name;
  const asks = later === run.name ? null : { run: later };
  const answer = useAnswer("run", asks);
  const second = asks ? !answer.stale && answer.data : run;
  const points = [pointsOf(run), pointsOf(second)];
  const usual = points.map((some) => usualOf(some, asks ? 0 : 1));
  const from = a || (asks ? usual[0][usual[0].length - 1] : usual[0][0]);
  const to = b || usual[1][usual[1].length - 1];
  const sides = from && to && [filesOf(run.name, from), filesOf(later, to)];
  const tables = [useAnswer("tasks", sides && sides[0]), useAnswer("tasks", sides && sides[1])];
  const error = tables[0].error || tables[1].error;
  const change = (more) => go("changes", { run: run.name, other, a: from, b: to, ...more }, true);
  const pick = (name, value, some) => html`<select aria-label=${name} value=${value} class="whole"
    onChange=${(event) => change({ [name]: event.target.value })}>
    ${some.map((one) => html`<option value=${one.word}>${one.stage}, ${one.kind === "rollouts"
      ? "training" : "evaluation"}, step ${one.step}</option>`)}
  </select>`;
  const ready = sides && tables.every((one) => one.data && !one.stale);
  const counts = tables.map((one, at) => (ready ? passesAt(one.data, sides[at].step) : new Map()));
  const known = changes(...counts);
  const solved = known.filter((one) => !one.before[0] && one.after[0]);
  const lost = known.filter((one) => one.before[0] && !one.after[0]);
  const rest = known.filter((one) => one.before[0] && one.after[0]);
  return html`<main>
    <h1>${run.name} <small>solved and lost</small></h1>
    <div class="filters">${pick("a", from, points[0])} <span class="muted">to</span>
      <select aria-label="run" class="whole" value=${later} onChange=${(event) => change({
        other: event.target.value, a: "", b: "" })}>
        ${(all ? all.runs : [run]).map(({ name }) => html`<option value=${name}>${name}</option>`)}
      </select> ${pick("b", to, points[1])}</div>
    ${(error || answer.error) && html`<p class="problem">${error || answer.error}</p>`}
    ${!from && html`<p class="note">no rollouts yet</p>`}
    ${[["newly solved", solved], ["newly lost", lost], ["changed otherwise", rest]].map(([title,
      rows]) => html`
      <section><h2>${title} <small>${rows.length}</small></h2>
        ${rows.length > 0 && html`<table class="changes"><thead><tr><th>task</th>
          <th class="number">passed before</th>
          <th class="number">passed after</th><th></th></tr></thead><tbody>
          ${rows.slice(0, 200).map((one) => html`<tr><td>${plain(one.task_id)}</td>
            ${[one.before, one.after].map((counts, at) => html`<td class="number"><a
              href=${rowsAt(sides[at], one.task_id)}>${counts.join("/")}</a></td>`)}
            <td><button onClick=${() => openPair(run, sides, one)}
              aria-label=${`${plain(one.task_id)} side by side`}
            >side by side</button></td></tr>`)}
        </tbody></table>`}
      </section>`)}
  </main>`;
}

function rowsAt(files, task) {
  return address("rollouts", { ...files, task });
}

export function Suspects({ run }) {
  const stages = run.stages.filter((one) => one.steps.rollouts.length);
  return html`<main>
    <h1>${run.name} <small>suspects of reward hacking</small></h1>
    <p class="note">Rollouts of training that may be paid for what they do not do. Each list says
      why; the programs decide.</p>
    ${!stages.length && html`<p class="note">no rollouts yet</p>`}
    ${stages.map(({ name, steps }) => html`<${StageSuspects} key=${name}
      files=${{ run: run.name, stage: name, kind: "rollouts" }}
      steps=${steps.rollouts.length} />`)}
  </main>`;
}

function StageSuspects({ files, steps }) {
  const { data, error } = useAnswer("suspects", { ...files, steps }); // again at a new step
  const found = (data || []).filter(({ count }) => count);
  return html`<section aria-label=${`suspects of ${files.stage}`}>
    <h2>${files.stage} <small>${data && !found.length ? "none" : ""}</small></h2>
    ${error && html`<p class="problem">${error}</p>`}
    ${found.map((one) => html`<${SuspectList} key=${one.why} files=${files} ...${one} />`)}
  </section>`;
}

const SUSPECT_KEYS = {
  step: (row) => row.step, task: (row) => row.task_id, verdict: (row) => row.verdict,
  reward: (row) => row.reward, checks: (row) => row.passed, tokens: (row) => row.length,
};

function SuspectList({ files, why, advice, count, rows }) {
  const [ordered, head] = useOrder(rows, SUSPECT_KEYS);
  return html`<h3><b class="alert">${count.toLocaleString("en")}</b> ${why}</h3>
    <p class="note advice">${advice}</p>
    <table><thead><tr>${head("step", "number")}${head("task")}${head("verdict")}
      ${head("reward", "number")}${head("checks", "number")}<th>held out</th>
      ${head("tokens", "number")}</tr></thead>
    <tbody>${ordered.map((row) => html`<${SuspectRow} key=${placeOf(row)} files=${files}
      row=${row} />`)}</tbody></table>`;
}

function SuspectRow({ files, row }) {
  const place = { ...files, step: row.step, task: row.task_id, at: placeOf(row) };
  return html`<tr><td class="number">${row.step}</td>
    <td><a href=${address("rollouts", place)}>${plain(row.task_id)}</a></td>
    <td><${Mark} row=${row} /></td>
    <td class="number">${row.reward == null ? "–" : row.reward.toFixed(3)}</td>
    <td class="number">${row.passed}/${row.total}</td><td>${row.held_out || "–"}</td>
    <td class="number">${row.length || "–"}</td></tr>`;
}
