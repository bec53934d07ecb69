// What several views of rollouts share.
import { html, useState } from "./vendor/preact.js";

/** The mark of a verdict. */
export function Mark({ row }) {
  const lost = row.cause && row.cause !== "machine" ? "unjudged" : "lost";
  const verdict = row.failure ? lost : row.verdict || "lost";
  const gap = row.held_out && row.held_out !== "pass";
  const kind = verdict === "pass" ? (gap || row.forgeable ? "doubt" : "pass") : "fail";
  return html`<span class=${`mark ${kind}`}>${verdict.replace("_", " ")}</span>`;
}

/**
 * Rows in the order that a click on a head chooses: `keys` maps heads to what their column holds of
 * a row. Returns the rows, and what makes a head of its name.
 */
export function useOrder(rows, keys) {
  const [{ name: by, sign }, setOrder] = useState({ sign: 1 });
  const compare = (a, b) => {
    const [one, other] = [keys[by](a), keys[by](b)];
    if (one == null || other == null) return (one == null) - (other == null); // without one: last
    return sign * (typeof one === "string" ? one.localeCompare(other) : one - other);
  };
  const head = (name, kind) => html`<th class=${kind}
    aria-sort=${by !== name ? "none" : sign > 0 ? "ascending" : "descending"}>
    <button class="sort" onClick=${() => setOrder({ name, sign: by === name ? -sign : 1 })}>
      ${name}${by === name && html`<span aria-hidden="true">${sign > 0 ? " ▴" : " ▾"}</span>`}
    </button></th>`;
  return [keys[by] ? [...rows].sort(compare) : rows, head];
}

export const placeOf = (row) => `${row.step}.${row.group}.${row.index}`;

/** The stage and the kind that a view shows, with defaults. */
export function chosenFiles(run, stage, kind) {
  const holds = (one) => one.steps.rollouts.length + one.steps.evaluations.length > 0;
  const last = [...run.stages].reverse().find(holds);
  const found = run.stages.find((one) => one.name === stage) || last;
  if (!found) return null;
  const other = found.steps.rollouts.length ? "rollouts" : "evaluations";
  return { run: run.name, stage: found.name, kind: found.steps[kind] ? kind : other };
}

/** Choices of stage and kind. */
export function FilesChoice({ run, files, change }) {
  const choices = run.stages.flatMap((stage) =>
    ["rollouts", "evaluations"]
      .filter((kind) => stage.steps[kind].length)
      .map((kind) => [stage.name, kind]),
  );
  return html`<select aria-label="stage" value=${`${files.stage} ${files.kind}`}
    onChange=${(event) => {
      const [stage, kind] = event.target.value.split(" ");
      change({ stage, kind });
    }}>${choices.map(([stage, kind]) => html`<option value=${`${stage} ${kind}`}>
      ${stage}, ${kind === "rollouts" ? "training" : "evaluations"}</option>`)}</select>`;
}
