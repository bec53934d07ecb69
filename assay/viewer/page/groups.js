// The groups of one step: each task with its rollouts side by side.
import { html, useEffect, useState } from "./vendor/preact.js";
import { address, ask, go, useKeys } from "./data.js";
import { FilesChoice, Mark, chosenFiles, placeOf } from "./parts.js";
import { plain } from "./text.js";

const MOST = 5000;

function useStep(files, step) {
  const [state, setState] = useState({});
  const key = JSON.stringify([files, step]);
  useEffect(() => {
    let stopped = false;
    async function load() {
      const rows = [];
      let total = 1;
      try {
        while (rows.length < Math.min(total, MOST)) {
          const more = await ask("rollouts", { ...files, step, order: "step", start: rows.length });
          total = more.total;
          rows.push(...more.rows);
          if (!more.rows.length) break;
        }
        if (!stopped) setState({ rows });
      } catch (error) {
        if (!stopped) setState({ error: error.message });
      }
    }
    if (files && step != null) load();
    return () => {
      stopped = true;
    };
  }, [key]);
  return state;
}

export function Groups({ run, stage, kind, step }) {
  const files = chosenFiles(run, stage, kind);
  const steps = files ? run.stages.find((one) => one.name === files.stage).steps[files.kind] : [];
  const at = steps.includes(Number(step)) ? Number(step) : steps[steps.length - 1];
  const place = steps.indexOf(at);
  const { rows, error } = useStep(files, at);
  const to = (n) => steps[n] != null && go("groups", { ...files, step: steps[n] }, true);
  useKeys({ j: ["next step", () => to(place + 1)], k: ["previous step", () => to(place - 1)] });
  if (!files) return html`<main><p class="note">no rollouts yet</p></main>`;
  const groups = new Map();
  (rows || []).forEach((row) => groups.set(row.group, [...(groups.get(row.group) || []), row]));
  return html`<main>
    <h1>${run.name} <small>groups</small></h1>
    <div class="filters">
      <${FilesChoice} run=${run} files=${files} change=${(more) => go("groups", { run: run.name,
        ...more }, true)} />
      <label class="field">step <input type="range" min="0" max=${steps.length - 1} value=${place}
        aria-label="step" onInput=${(event) => to(Number(event.target.value))} /></label>
      <b class="number">${at}</b><span class="muted">of ${steps[steps.length - 1]}</span>
      <span class="muted">${groups.size} groups, ${(rows || []).length} rollouts</span>
    </div>
    ${error && html`<p class="problem">${error}</p>`}
    <table class="groups"><thead><tr><th>task</th><th>rollouts</th><th class="number">pass</th>
      <th class="number">mean reward</th><th class="number">spread</th></tr></thead>
      <tbody>${[...groups.values()].map((one) => html`<${Group} files=${files}
        rows=${one} />`)}</tbody></table>
  </main>`;
}

function Group({ files, rows }) {
  const rewards = rows.map((row) => row.reward).filter((one) => one != null);
  const mean = rewards.reduce((a, b) => a + b, 0) / (rewards.length || 1);
  const spread = Math.sqrt(rewards.reduce((sum, one) => sum + (one - mean) ** 2,
    0) / (rewards.length || 1));
  // Between equal rewards it is what the rounding of their mean leaves.
  return html`<tr>
    <td class="task">${plain(rows[0].task_id)}</td>
    <td><div class="dots">${rows.map((row) => html`<a class="dot" href=${address("rollouts", {
      ...files, step: row.step, at: placeOf(row) })}
      title=${`${row.verdict || "lost"}, reward ${row.reward}`}
        aria-label=${`rollout ${row.index}: ${row.verdict || "lost"}`}
      ><${Mark} row=${{ ...row }} /></a>`)}</div></td>
    <td class="number">${rows.filter((row) => row.verdict === "pass").length}/${rows.length}</td>
    <td class="number">${rewards.length ? mean.toFixed(3) : "–"}</td>
    <td class="number">${spread > 1e-9 ? spread.toFixed(3) : html`<i class="muted">none</i>`}</td>
  </tr>`;
}
