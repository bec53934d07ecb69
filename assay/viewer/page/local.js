// Answers from the data of an exported page, as the server would.

const SEARCHED = ["completion", "output", "detail", "observation"];
const nameOf = (one) => [one.run, one.stage, one.kind].join("|");
const placeOf = (row) => [row.step, row.group, row.index].join("|");

export function answerLocally(data, name, asked) {
  switch (name) {
    case "runs":
      return data.runs;
    case "run":
      return found(data.run[asked.run]);
    case "suspects":
      return data.suspects[nameOf(asked)] || [];
    case "rollouts":
      return list(data, asked);
    case "rollout":
      return found(data.rollouts[`${nameOf(asked)}|${placeOf(asked)}`]);
    case "tasks":
      return data.tasks[nameOf(asked)] || [];
    case "evaluation":
      return evaluation(data, asked);
    case "curves":
      return curves(data, asked.metric);
    default:
      throw new Error("this file holds only the beginning of long texts");
  }
}

function found(one) {
  if (!one) throw new Error("this is not in the exported file");
  return one;
}

function evaluation(data, asked) {
  const one = found((data.evaluations[asked.run] || [])[asked.at]);
  const others = data.evaluations[asked.with_run];
  return others ? { ...one, other: found(others[asked.with_at]) } : one;
}

function curves(data, metric) {
  const stages = Object.values(data.run).flatMap((run) => run.stages.map((one) => [run.name, one]));
  const made = stages.map(([run, { name, recipe, metrics: { columns } }]) => {
    const [steps, values] = [columns.step || [], columns[metric] || []];
    const at = steps.map((_, n) => n).filter((n) => values[n] != null);
    return { run, stage: name, recipe, steps: at.map((n) => steps[n]), values: at.map((n) =>
      values[n]) };
  });
  const names = new Set(stages.flatMap(([, one]) => Object.keys(one.metrics.columns)));
  names.delete("step");
  return { metrics: [...names].sort(), curves: made.filter((one) => one.steps.length) };
}

function list(data, asked) {
  const part = (asked.task || "").replace(/^~/, "").toLowerCase();
  const search = (asked.search || "").toLowerCase();
  const verdicts = asked.verdict ? asked.verdict.split(",") : null;
  const passes = (row) => {
    if (asked.step && row.step !== Number(asked.step)) return false;
    const task = row.task_id.toLowerCase();
    if (part && (asked.task[0] === "~" ? !task.includes(part) : task !== part)) return false;
    if (asked.low && !(row.reward >= Number(asked.low))) return false;
    if (asked.high && !(row.reward <= Number(asked.high))) return false;
    if (asked.verdict === "gap") {
      if (!row.held_out || row.held_out === "pass") return false;
    } else if (asked.verdict === "forgeable") {
      if (!row.forgeable || row.verdict !== "pass") return false;
    } else if (verdicts && !verdicts.includes(row.verdict)) return false;
    if (!search) return true;
    const whole = data.rollouts[`${nameOf(asked)}|${placeOf(row)}`];
    return whole.turns.some((turn) =>
      SEARCHED.some((one) => turn[one].text.toLowerCase().includes(search)),
    );
  };
  const rows = (data.rows[nameOf(asked)] || []).filter(passes);
  const order = asked.order || "-step";
  const column = order.replace("-", "");
  const sign = order[0] === "-" ? -1 : 1;
  rows.sort((a, b) => sign * (a[column] - b[column]));
  const start = Number(asked.start || 0);
  const count = Number(asked.count || 500);
  return { total: rows.length, start, rows: rows.slice(start, start + count) };
}
