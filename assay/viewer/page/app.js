// The frame of the page: where the reader is, the views, the theme and the keys.
import { html, render, useEffect, useState } from "./vendor/preact.js";
import { address, currentKeys, go, useAddress, useKeys, useRun } from "./data.js";
import { Changes, Compare, Suspects } from "./compare.js";
import { Curves } from "./curves.js";
import { Evaluations } from "./evaluations.js";
import { Groups } from "./groups.js";
import { Rollouts } from "./rollouts.js";
import { Run, Settings } from "./run.js";
import { Runs } from "./runs.js";
import { Tasks } from "./tasks.js";

const VIEWS = {
  run: ["curves", Run], rollouts: ["rollouts", Rollouts], groups: ["groups", Groups],
  tasks: ["tasks", Tasks], evaluations: ["evaluations", Evaluations],
  changes: ["solved and lost", Changes], suspects: ["suspects", Suspects], settings: ["settings",
    Settings],
};
const THEMES = ["auto", "light", "dark"];

function stored(value) {
  try {
    if (value !== undefined) localStorage.setItem("assay-theme", value);
    return localStorage.getItem("assay-theme") || "auto";
  } catch {
    return value || "auto"; // a file that is opened from the disk may have no storage
  }
}

function useTheme() {
  const [theme, setTheme] = useState(stored);
  const [dark, setDark] = useState(matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const read = () => setDark(media.matches);
    media.addEventListener("change", read);
    return () => media.removeEventListener("change", read);
  }, []);
  const shown = theme === "auto" ? (dark ? "dark" : "light") : theme;
  document.documentElement.dataset.theme = shown;
  const next = () => {
    const to = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    stored(to);
    setTheme(to);
  };
  return [shown, theme, next];
}

function Help({ close }) {
  return html`<div class="cover" onClick=${close}><dialog open aria-label="keys">
    <h2>Keys</h2>
    <dl>${currentKeys().map(([key, meaning]) => html`<dt><kbd>${key}</kbd></dt>
      <dd>${meaning}</dd>`)}</dl>
  </dialog></div>`;
}

function App() {
  const { view, parameters } = useAddress();
  const [shown, theme, nextTheme] = useTheme();
  const [help, setHelp] = useState(false);
  const name = view === "runs" || view === "curves" ? "" : parameters.run || "";
  const { data: run, error } = useRun(name);
  useKeys({
    "?": ["keys", () => setHelp(!help)],
    t: ["light, dark or as the system has it", nextTheme],
    Escape: ["up", () => {
      if (help) setHelp(false);
      else go(view === "run" || !name ? "runs" : "run", { run: view === "run" ? "" : name });
    }],
  }, 0);
  useEffect(() => {
    document.title = name ? `${name} · assay` : "assay";
  }, [name]);
  const [, View] = VIEWS[view] || [];
  const ready = !name || run;
  return html`
    <header>
      <a class="brand" href="#runs">assay</a>
      ${name && html`<span class="crumb">/ <a href=${address("run", { run: name })}>${name}</a>
        </span>`}
      <nav aria-label="views">${!name && html`<a class=${view === "curves" ? "on" : ""}
        href=${address("curves")}>curves of all runs</a>`}
        ${name && Object.entries(VIEWS).map(([one, [label]]) => html`
        <a class=${one === view ? "on" : ""} aria-current=${one === view ? "page" : undefined}
          href=${address(one, { run: name, stage: parameters.stage,
            kind: parameters.kind })}>${label}</a>`)}</nav>
      <button onClick=${nextTheme} aria-label=${`theme: ${theme}`}
        title="theme (t)">${theme}</button>
      <button onClick=${() => setHelp(true)} aria-label="keys" title="keys (?)">?</button>
    </header>
    ${error && html`<p class="problem" role="alert">${error}</p>`}
    ${!name && (view === "curves" ? html`<${Curves} ...${parameters} theme=${shown} />`
      : html`<${Runs} ...${parameters} />`)}
    ${name && !ready && !error && html`<p class="note">reading ${name} …</p>`}
    ${name && run && view === "compare" && html`<${Compare} ...${parameters} run=${run}
      key="compare" />`}
    ${name && run && View && html`<${View} ...${parameters} run=${run} theme=${shown}
      key=${`${view} ${name}`} />`}
    ${help && html`<${Help} close=${() => setHelp(false)} />`}
  `;
}

render(html`<${App} />`, document.getElementById("app"));
