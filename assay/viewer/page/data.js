// Asks the server, or the data inside an exported page; and keeps the view in the address.
import { useEffect, useRef, useState } from "./vendor/preact.js";
import { answerLocally } from "./local.js";

const embedded = document.getElementById("data");
const exported = embedded && JSON.parse(embedded.textContent);
export const isExported = Boolean(exported);

/** The answer to a question; throws an Error with the server's reason. */
export async function ask(name, parameters, signal) {
  if (exported) return answerLocally(exported, name, parameters);
  const used = Object.entries(parameters).filter(([, value]) => value !== "" && value != null);
  const response = await fetch(`api/${name}?${new URLSearchParams(used)}`, { signal });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** `{data, error, loading}` of a question, asked again when its parameters change. */
export function useAnswer(name, parameters, every = 0) {
  const [state, setState] = useState({ loading: true });
  const key = JSON.stringify([name, parameters]);
  useEffect(() => {
    if (parameters == null) return undefined;
    const control = new AbortController();
    let timer = 0;
    setState((old) => ({ ...old, loading: true }));
    async function load() {
      try {
        const data = await ask(name, parameters, control.signal);
        setState({ data, key, loading: false });
      } catch (error) {
        if (control.signal.aborted) return;
        setState((old) => ({ ...old, error: error.message, loading: false }));
      }
      if (every && !isExported) timer = setTimeout(again, every);
    }
    function again() {
      if (document.hidden) timer = setTimeout(again, every);
      else load();
    }
    load();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [key, every]);
  return state.key === key || !state.data ? state : { ...state, stale: true };
}

/** A run that is asked for again while it trains; only new metrics are sent. */
export function useRun(name) {
  const [state, setState] = useState({});
  useEffect(() => {
    if (!name) return undefined;
    let timer = 0;
    let stopped = false;
    let run = null;
    async function load() {
      const have = (run ? run.stages : [])
        .map((one) => `${one.name} ${one.metrics.count} ${one.metrics.tag}`)
        .join(",");
      try {
        const next = await ask("run", { run: name, have });
        if (stopped) return;
        next.stages.forEach((stage) => {
          const old = run && run.stages.find((one) => one.name === stage.name);
          if (stage.metrics.start && old) stage.metrics = joined(old.metrics, stage.metrics);
        });
        run = next;
        setState({ name, data: run });
      } catch (error) {
        if (!stopped) setState((old) => ({ ...old, name, error: error.message }));
      }
      if (!isExported && !stopped) timer = setTimeout(again, 3000);
    }
    function again() {
      if (document.hidden) timer = setTimeout(again, 3000);
      else load();
    }
    setState({});
    load();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [name]);
  return state.name === name ? state : {}; // never one run's data in a view of another
}

function joined(old, more) {
  const columns = {};
  const names = new Set([...Object.keys(old.columns), ...Object.keys(more.columns)]);
  for (const name of names) {
    const before = (old.columns[name] || new Array(more.start).fill(null)).slice(0, more.start);
    const after = more.columns[name] || new Array(more.count - more.start).fill(null);
    columns[name] = before.concat(after);
  }
  return { ...more, start: 0, columns };
}

/** The view in the address: `#rollouts?run=demo&stage=grpo`. */
export function readAddress() {
  const [view, query] = location.hash.slice(1).split("?");
  return { view: view || "runs", parameters: Object.fromEntries(new URLSearchParams(query)) };
}

/** An address of a view. */
export function address(view, parameters = {}) {
  const used = Object.entries(parameters).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(used).toString();
  return `#${view}${query ? `?${query}` : ""}`;
}

/** Go to a view; `replace` leaves no step to go back to. */
export function go(view, parameters, replace = false) {
  const to = address(view, parameters);
  if (!replace) location.hash = to;
  else if (to !== location.hash) {
    history.replaceState(null, "", to);
    dispatchEvent(new Event("hashchange"));
  }
}

/** The view in the address, as it changes. */
export function useAddress() {
  const [at, setAt] = useState(readAddress);
  useEffect(() => {
    const read = () => setAt(readAddress());
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  return at;
}

const keymaps = [];

/** Keys of a view: `{j: ["next", run]}`; of two views the one with the higher level has a key. */
export function useKeys(map, level = 1) {
  const slot = useRef({ level });
  slot.current.map = map;
  useEffect(() => {
    keymaps.push(slot.current);
    keymaps.sort((a, b) => b.level - a.level);
    return () => keymaps.splice(keymaps.indexOf(slot.current), 1);
  }, []);
}

/** What the keys do now: `[[key, meaning]]`. */
export function currentKeys() {
  const found = new Map();
  keymaps.forEach(({ map }) =>
    Object.entries(map).forEach(([key, [meaning]]) => found.has(key) || found.set(key, meaning)),
  );
  return [...found];
}

addEventListener("keydown", (event) => {
  const { target, key } = event;
  const typing = target.matches && target.matches("input, select, textarea");
  if (typing && key === "Escape") target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (key === "Enter" && target.matches("a, button, summary")) return;
  const slot = keymaps.find(({ map }) => map[key]);
  if (!slot) return;
  event.preventDefault();
  slot.map[key][1]();
});
