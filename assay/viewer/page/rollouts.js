// The rollouts of a stage: filters, a list that draws only what is in sight, and the chosen one.
import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { ask, go, useAnswer, useKeys } from "./data.js";
import { FilesChoice, Mark, chosenFiles, placeOf } from "./parts.js";
import { Rollout } from "./rollout.js";
import { plain } from "./text.js";

const ROW = 26;
const PAGE = 200;
const VERDICTS = ["pass", "wrong", "error", "timeout", "memory", "output", "compile", "forbidden",
  "no_code"];
const ORDERS = [
  ["-step", "newest first"], ["step", "oldest first"], ["-reward", "highest reward"],
  ["reward", "lowest reward"], ["-length", "longest"], ["length", "shortest"],
];
const FILTERS = ["stage", "kind", "step", "task", "verdict", "low", "high", "search", "order"];

export function Rollouts({ run, at, theme, ...asked }) {
  const files = chosenFiles(run, asked.stage, asked.kind);
  const search = useRef();
  const filters = Object.fromEntries(FILTERS.map((name) => [name, asked[name]]));
  const change = (to) => go("rollouts", { run: run.name, ...filters, at, ...files, ...to }, true);
  useKeys({ "/": ["search", () => search.current && search.current.focus()] });
  if (!files) return html`<main><p class="note">no rollouts yet</p></main>`;
  const query = { ...filters, ...files, order: asked.order || "-step" };
  return html`<main class="split">
    <div class="filters" role="search">
      <input type="search" ref=${search} placeholder="search texts  /" aria-label="search texts"
        value=${asked.search || ""} onChange=${(event) => change({ search: event.target.value,
          at: "" })} />
      <${FilesChoice} run=${run} files=${files} change=${(to) => change({ ...to, step: "",
        at: "" })} />
      <${Field} label="step" value=${asked.step} change=${(step) => change({ step })} />
      <${Field} label="task" value=${(asked.task || "").replace(/^~/, "")} wide
        change=${(task) => change({ task: task && `~${task}` })} />
      <select aria-label="verdict"
        value=${asked.verdict || ""} onChange=${(e) => change({ verdict: e.target.value })}>
        <option value="">any verdict</option>
        ${VERDICTS.map((one) => html`<option value=${one}>${one.replace("_", " ")}</option>`)}
        <option value=${VERDICTS.slice(1).join(",")}>all that fail</option>
        <option value="gap">paid, but fails held-out checks</option>
        <option value="forgeable">forgeable passes</option>
      </select>
      <${Field} label="reward from" value=${asked.low} change=${(low) => change({ low })} />
      <${Field} label="to" value=${asked.high} change=${(high) => change({ high })} />
      <select aria-label="order"
        value=${query.order} onChange=${(e) => change({ order: e.target.value })}>
        ${ORDERS.map(([name, label]) => html`<option value=${name}>${label}</option>`)}
      </select>
    </div>
    <${List} query=${query} at=${at} steps=${stepsOf(run, files)}
      choose=${(row) => change({ at: placeOf(row) })} />
    ${at ? html`<${Chosen} files=${files} at=${at} run=${run} />`
      : html`<div class="detail"><p
        class="note">choose a rollout: <kbd>j</kbd> <kbd>k</kbd> or a click</p></div>`}
  </main>`;
}

const stepsOf = (run, { stage, kind }) =>
  run.stages.find((one) => one.name === stage).steps[kind].length;

function Field({ label, value, change, wide }) {
  return html`<label class=${wide ? "field wide" : "field"}>${label}
    <input value=${value || ""} onChange=${(event) => change(event.target.value.trim())} />
      </label>`;
}

function Chosen({ files, at, run }) {
  const [step, group, index] = at.split(".");
  const place = useMemo(() => ({ ...files, step, group, index }), [JSON.stringify([files, at])]);
  const { data, error } = useAnswer("rollout", place);
  return html`<div class="detail" tabindex="0" aria-label="the chosen rollout">
    ${error ? html`<p class="problem">${error}</p>` : data &&
      html`<${Rollout} data=${data} place=${place} run=${run} />`}
  </div>`;
}

/** Pages of a list, fetched when they come into sight. */
function usePages(query, steps) {
  const [state, setState] = useState({ pages: {}, total: null });
  const key = JSON.stringify([query, steps]);
  const current = useRef(key);
  const asked = useRef(new Set());
  current.current = key;
  async function load(number) {
    const tag = `${key} ${number}`;
    if (asked.current.has(tag)) return;
    asked.current.add(tag);
    try {
      const { total, rows } = await ask("rollouts", { ...query, start: number * PAGE,
        count: PAGE });
      if (current.current !== key) return;
      setState((old) => ({ key, total, pages: { ...(old.key === key ? old.pages : {}),
        [number]: rows } }));
    } catch (error) {
      if (current.current === key) setState({ key, total: 0, pages: {}, error: error.message });
    }
  }
  useEffect(() => {
    asked.current = new Set();
    load(0);
  }, [key]);
  const rowAt = (n) => (state.pages[Math.floor(n / PAGE)] || [])[n % PAGE];
  return { ...state, stale: state.key !== key, rowAt, load };
}

function List({ query, at, choose, steps }) {
  const [listed, setListed] = useState(steps);
  const { total, rowAt, load, error, stale } = usePages(query, listed);
  const box = useRef();
  const [top, setTop] = useState(0);
  const [place, setPlace] = useState(-1);
  const height = box.current ? box.current.clientHeight : 700;
  const first = Math.max(0, Math.floor(top / ROW) - 5);
  const last = Math.min(total || 0, Math.ceil((top + height) / ROW) + 5);
  useEffect(() => {
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page += 1) load(page);
  }, [first, last, JSON.stringify(query)]);
  const move = (by) => {
    const to = Math.max(0, Math.min((total || 1) - 1, place + by));
    const row = rowAt(to);
    if (!row) return;
    setPlace(to);
    choose(row);
    const { scrollTop, clientHeight } = box.current;
    const lowest = (to + 2) * ROW - clientHeight;
    if (to * ROW < scrollTop) box.current.scrollTop = to * ROW;
    else if (scrollTop < lowest) box.current.scrollTop = lowest;
  };
  useKeys({
    j: ["next rollout", () => move(1)], k: ["previous rollout", () => move(-1)],
    Enter: ["go to the chosen rollout", () => document.querySelector(".detail").focus()],
  });
  useEffect(() => {
    setPlace(-1);
    if (box.current) box.current.scrollTop = 0;
  }, [JSON.stringify(query), listed]);
  useEffect(() => setListed(steps), [JSON.stringify(query)]);
  useEffect(() => {
    if (!at && !top) setListed(steps); // nobody reads a row that would move
  }, [steps, at, top]);
  const more = query.step ? 0 : steps - listed;
  const rows = [];
  for (let n = first; n < last; n += 1) rows.push([n, rowAt(n), rowAt(n - 1)]);
  return html`<div class="listing">
    <div class="row head"><span>step</span><span>task</span><span>#</span><span>verdict</span>
      <span>reward</span>
      <span>checks</span><span>tokens</span></div>
    <div class="list" ref=${box} onScroll=${(event) => setTop(event.target.scrollTop)}
      aria-label="rollouts" role="listbox">
      <div style=${{ height: `${(total || 0) * ROW}px` }}>
        ${rows.map(([n, row, before]) => row && html`<${Row} key=${n} n=${n} row=${row}
          before=${before}
          chosen=${placeOf(row) === at} choose=${() => { setPlace(n); choose(row); }} />`)}
      </div>
    </div>
    <p class="note count" aria-live="polite">${error || (stale || total == null ? "…"
      : `${total.toLocaleString("en")} rollouts`)}
      ${more > 0 && html`<button onClick=${() => setListed(steps)}>
        ${`${more} new ${more > 1 ? "steps" : "step"}: show`}</button>`}</p>
  </div>`;
}

// The end of a long id tells tasks apart.
const tail = (task) => (task.length > 11 ? task.split("/").slice(-2).join("/") : task);

function Row({ n, row, before, chosen, choose }) {
  const same = before && before.step === row.step && before.group === row.group;
  const number = (value) => (value == null ? "–" : value.toFixed(2));
  return html`<div class=${`row ${chosen ? "chosen" : ""} ${same ? "" : "first"}`} role="option"
    aria-selected=${chosen}
    style=${{ top: `${n * ROW}px` }} onClick=${choose}>
    <span>${same ? "" : row.step}</span>
    <span class="task" title=${plain(row.task_id)}>${plain(tail(row.task_id))}</span>
    <span>${row.index}</span>
    <span><${Mark} row=${row} /></span><span>${number(row.reward)}</span>
    <span>${row.total ? `${row.passed}/${row.total}` : "–"}</span>
    <span>${row.length || "–"}</span>
  </div>`;
}
