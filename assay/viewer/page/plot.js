// Curves over steps, sparklines, and intervals.
import { html, useEffect, useRef, useState } from "./vendor/preact.js";

const HEIGHT = 150;
const DASHES = [undefined, [8, 4], [2, 4], [10, 3, 2, 3]];
const TONES = ["accent", "second", "third", "fourth", "fifth", "sixth"];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** A number in few characters. */
export function short(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  if (size >= 1e5) return value.toExponential(1);
  if (size >= 100 || value === 0) return value.toFixed(0);
  if (size >= 1) return value.toFixed(2);
  return size >= 1e-3 ? value.toPrecision(3) : value.toExponential(1);
}

/** A share as a percentage; a tie is rounded to the even digit, as in reports and terminals. */
export function percent(value) {
  if (value == null) return "–";
  const hundred = 100 * value;
  const lower = Math.floor(10 * hundred);
  const isTie = Number.isInteger(4 * hundred) && !Number.isInteger(2 * hundred);
  return `${(isTie ? (lower + (lower % 2 ? 1 : 0)) / 10 : hundred).toFixed(1)} %`;
}

/** The mean over `share` of the curve around each value. */
function mean(values, share) {
  const reach = Math.floor((values.length * share) / 2);
  return values.map((_, at) => {
    const near = values.slice(Math.max(0, at - reach), at + reach + 1).filter((one) => one != null);
    return near.length ? near.reduce((a, b) => a + b) / near.length : null;
  });
}

/** The labels of an axis, in as few digits as tell them apart. */
function labels(format) {
  const number = (value) => String(Number(value.toPrecision(4)));
  const share = (value) => `${Number((100 * value).toPrecision(4))} %`;
  const write = format === percent ? share : number;
  // A log axis leaves some labels out.
  return (_, ticks) => ticks.map((one) => (one == null ? "" : write(one)));
}

/** The width of an axis: that of its longest label. */
function wide(_, texts) {
  return Math.max(44, ...(texts || []).map((one) => 10 + 6.5 * one.length));
}

function axis(grid, extra) {
  return {
    stroke: colour("muted"), grid: { stroke: grid, width: 1 }, ticks: { show: false },
    font: `11px ${colour("sans")}`, gap: 4, ...extra,
  };
}

function drawIntervals(intervals) {
  return (plot) => {
    const { ctx } = plot;
    ctx.save();
    ctx.strokeStyle = colour("accent");
    ctx.lineWidth = 1.5 * devicePixelRatio;
    for (const [step, low, high] of intervals) {
      const x = plot.valToPos(step, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, plot.valToPos(low, "y", true));
      ctx.lineTo(x, plot.valToPos(high, "y", true));
      ctx.stroke();
    }
    ctx.restore();
  };
}

function options(width, height, series, { intervals, format, onCursor, log }) {
  const grid = colour("line");
  const few = (data) => data[0].length < 30;
  return {
    width, height, legend: { show: false }, padding: [8, 8, 0, 0],
    cursor: { drag: { x: true, y: false }, points: { size: 6 } },
    scales: {
      x: { time: false },
      y: log ? { distr: 3 }
        : { range: (_, low, high) => (low == null ? [0, 1] : span(low, high, intervals)) },
    },
    axes: [
      axis(grid, { size: 24, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500,
        1000, 5000] }),
      axis(grid, { size: wide, values: labels(format) }),
    ],
    series: [
      {},
      ...series.map(({ tone, faint, dash, edge }) => ({
        stroke: colour(tone), width: faint ? 1 : 1.75, alpha: faint ? 0.3 : 1, spanGaps: true, dash,
        points: { show: (plot) => !faint && !edge && few(plot.data), size: 4, fill: colour(tone) },
        ...(edge && { width: 0 }),
      })),
    ],
    bands: series.flatMap(({ edge, tone }, at) => (edge === "high"
      ? [{ series: [at + 1, at + 2], fill: `${colour(tone)}2e` }] : [])),
    hooks: {
      setCursor: [(plot) => onCursor(plot.cursor.idx)],
      draw: intervals ? [drawIntervals(intervals)] : [],
    },
  };
}

function span(low, high, intervals) {
  const ends = intervals ? intervals.flatMap(([, a, b]) => [a, b]) : [];
  const [bottom, top] = [Math.min(low, ...ends), Math.max(high, ...ends)];
  const room = (top - bottom || Math.abs(top) || 1) * 0.08;
  // A single value has no scale of its own.
  return [bottom >= 0 && (bottom < top * 0.5 || bottom === top) ? 0 : bottom - room, top + room];
}

/**
 * A plot with its title and the newest values: `lines` is `[{name, values}]` over `steps`, with a
 * band from `low` to `high` where there are; `plain` leaves the values out;
 * `intervals` is `[[step, low, high]]`; `exact` values are set, not measured: no mean is drawn.
 * `smooth` is the share of a curve over which a mean is drawn; on a `log` axis, what is not above 0
 * is left out.
 */
export function Plot({ title, steps, lines: measured, intervals, format = short, theme, exact,
  height = HEIGHT, plain, smooth: share = 0.1, log }) {
  const place = useRef();
  const plot = useRef();
  const [at, setAt] = useState(null);
  const above = (all) => (log && all ? all.map((one) => (one > 0 ? one : null)) : all);
  const lines = measured.map(({ name, values, low, high }) => ({ name, values: above(values),
    low: above(low), high: above(high) }));
  const smooth = share > 0 && !exact && lines.length === 1 && steps.length > 40;
  const drawn = lines.flatMap(({ values, low, high }, n) => {
    const [tone, dash] = [TONES[n % TONES.length], DASHES[Math.floor(n / TONES.length)]];
    if (high) return [{ tone, edge: "high", values: high }, { tone, edge: "low", values: low },
      { tone, dash, values }];
    return smooth ? [{ tone, faint: true, values }, { tone, values: mean(values, share) }]
      : [{ tone, dash, values }];
  });
  const data = [steps, ...drawn.map((one) => one.values)];
  const shape = `${lines.map((one) => one.name)} ${smooth && share} ${log} ${intervals
    && intervals.length} ${theme}`;
  useEffect(() => {
    const room = () => Math.max(120, place.current.clientWidth);
    const made = options(room(), height, drawn, { intervals, format, onCursor: setAt, log });
    plot.current = new window.uPlot(made, data, place.current);
    const watch = new ResizeObserver(() => plot.current.setSize({ width: room(), height }));
    watch.observe(place.current);
    return () => {
      watch.disconnect();
      plot.current.destroy();
    };
  }, [shape]);
  useEffect(() => plot.current.setData(data), [steps.length, steps[steps.length - 1], title]);
  const index = at == null ? steps.length - 1 : at;
  const values = lines.map(({ name, values: all }) => ({ name, value: all[index] }));
  return html`<figure class="plot">
    <figcaption>
      <span class="title">${title}</span>
      ${(plain ? [] : values).map(({ name, value }, n) => html`<span class="value">
        ${lines.length > 1 && html`<i
          style=${{ background: `var(--${TONES[n % TONES.length]})` }} />${name}${" "}`}
        <b>${format(value)}</b></span>`)}
      <span class="step">step ${steps[index]}</span>
    </figcaption>
    <div ref=${place} role="img" aria-label=${`${title} by step,
      last ${format(values[0].value)}`} />
  </figure>`;
}

/** The colour and the dashes of line number `n`, for a legend. */
export function Swatch({ n }) {
  return html`<svg class="swatch" viewBox="0 0 26 6" aria-hidden="true"><line x1="0" x2="26" y1="3"
    y2="3" style=${{ stroke: `var(--${TONES[n % TONES.length]})`,
      strokeDasharray: DASHES[Math.floor(n / TONES.length)] }} /></svg>`;
}

const SMOOTH = { "no mean": 0, "mean of 10 %": 0.1, "mean of 30 %": 0.3 };

/** How curves are drawn: over how much of them a mean is taken, and on which axes. */
export function DrawingChoice({ smooth = "0.1", log, change }) {
  return html`<select aria-label="smoothing" value=${smooth}
      onChange=${(event) => change({ smooth: event.target.value })}>
      ${Object.entries(SMOOTH).map(([name, share]) => html`<option
        value=${share}>${name}</option>`)}
    </select>
    <${LogChoice} log=${log} change=${change} />`;
}

export function LogChoice({ log, change }) {
  return html`<label class="field"><input type="checkbox" checked=${Boolean(log)}
    onChange=${() => change({ log: log ? "" : "1" })} />log axes</label>`;
}

/** A small curve of shares without axes; all have the same scale, from 0 to 1. */
export function Spark({ values, label }) {
  if (values.length < 2) return html`<span class="muted">–</span>`;
  const points = values.map((one, at) => {
    const [x, y] = [at / (values.length - 1), one];
    return `${(120 * x).toFixed(1)},${(23 - 21 * y).toFixed(1)}`;
  });
  return html`<svg class="spark" viewBox="-2 0 124 25" role="img" aria-label=${label}>
    <line class="track" x1="0" x2="120" y1="23" y2="23" />
    <polyline points=${points.join(" ")} />
    <circle cx="120" cy=${points[points.length - 1].split(",")[1]} r="2" />
  </svg>`;
}

/** A share with its interval, on a line from 0 to 1. */
export function IntervalBar({ value, low, high }) {
  const x = (one) => (200 * one).toFixed(1);
  return html`<svg class="interval" viewBox="-4 0 208 16" role="img"
    aria-label=${`${percent(value)}, from ${percent(low)} to ${percent(high)}`}>
    <line class="track" x1="0" x2="200" y1="8" y2="8" />
    ${[0, 50, 100, 150, 200].map((one) => html`<line
      class="track" x1=${one} x2=${one} y1="5" y2="11" />`)}
    <line x1=${x(low)} x2=${x(high)} y1="8" y2="8" />
    <circle cx=${x(value)} cy="8" r="3.5" />
  </svg>`;
}
