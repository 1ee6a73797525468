// The brush over the timeline: a drag, or its two handles by arrow keys, sets since
// and until, by whole bars.
import { all, find, make } from "./dom.ts";
import { here, onArrival, visit } from "./navigate.ts";

interface Axis {
  start: number;
  end: number;
  step: number;
}

let timer = 0;

const clamp = (v: number, low: number, high: number): number => Math.min(Math.max(v, low), high);
const iso = (seconds: number): string => new Date(seconds * 1000).toISOString().replace(".000Z", "Z");

function commit(from: number, to: number, axis: Axis): void {
  const whole = from <= axis.start && to >= axis.end;
  void visit(here({
    since: whole ? null : iso(from),
    until: whole || to >= axis.end ? null : iso(to),
    after: null, letter: null, undo: null,
  }));
}

function arm(brush: HTMLElement): void {
  const axis: Axis = { start: Number(brush.dataset.start), end: Number(brush.dataset.end), step: Number(brush.dataset.bucket) };
  if (!(axis.end > axis.start) || !(axis.step > 0)) return;
  const focused = brush.querySelector(":focus")?.className;
  for (const old of all(".brushsel, .handle", brush)) old.remove();
  let from = brush.dataset.since ? clamp(Number(brush.dataset.since), axis.start, axis.end) : axis.start;
  let to = brush.dataset.until ? clamp(Number(brush.dataset.until), axis.start, axis.end) : axis.end;

  const selection = make("div", "brushsel");
  const handleOf = (side: "from" | "to"): HTMLElement => {
    const handle = make("div", `handle ${side}`);
    handle.tabIndex = 0;
    handle.setAttribute("role", "slider");
    handle.setAttribute("aria-orientation", "horizontal");
    handle.setAttribute("aria-label", side === "from" ? "Failed since" : "Failed before");
    handle.setAttribute("aria-valuemin", String(axis.start));
    handle.setAttribute("aria-valuemax", String(axis.end));
    return handle;
  };
  const handles: [HTMLElement, HTMLElement] = [handleOf("from"), handleOf("to")];

  const place = (): void => {
    const at = (t: number): number => ((t - axis.start) / (axis.end - axis.start)) * 100;
    selection.style.left = `${at(from)}%`;
    selection.style.width = `${at(to) - at(from)}%`;
    selection.hidden = from <= axis.start && to >= axis.end;
    handles[0].style.left = `${at(from)}%`;
    handles[1].style.left = `${at(to)}%`;
    for (const [i, t] of [from, to].entries()) {
      handles[i]?.setAttribute("aria-valuenow", String(t));
      handles[i]?.setAttribute("aria-valuetext", new Date(t * 1000).toLocaleString());
    }
  };
  const timeAt = (x: number): number => {
    const area = brush.getBoundingClientRect();
    return axis.start + clamp((x - area.left) / area.width, 0, 1) * (axis.end - axis.start);
  };
  const floor = (t: number): number => axis.start + Math.floor((t - axis.start) / axis.step) * axis.step;
  const ceil = (t: number): number => Math.min(axis.start + Math.ceil((t - axis.start) / axis.step) * axis.step, axis.end);

  for (const [i, handle] of handles.entries()) {
    handle.addEventListener("keydown", (e) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[e.key];
      const edge = { Home: axis.start, End: axis.end }[e.key];
      if (by === undefined && edge === undefined) return;
      e.preventDefault();
      e.stopPropagation();
      const next = edge ?? (i === 0 ? from : to) + (by ?? 0) * axis.step;
      if (i === 0) from = clamp(next, axis.start, to - axis.step);
      else to = clamp(next, from + axis.step, axis.end);
      place();
      clearTimeout(timer);
      timer = window.setTimeout(() => commit(from, to, axis), 500);
    });
  }

  brush.onpointerdown = (e) => {
    if (e.button !== 0) return;
    e.preventDefault();
    brush.setPointerCapture(e.pointerId);
    const moving = e.target === handles[0] ? 0 : e.target === handles[1] ? 1 : null;
    const origin = moving === 0 ? to : moving === 1 ? from : timeAt(e.clientX);
    if (moving !== null) handles[moving]?.focus();
    const drag = (m: PointerEvent): void => {
      const t = timeAt(m.clientX);
      from = floor(Math.min(origin, t));
      to = Math.max(ceil(Math.max(origin, t)), from + axis.step);
      place();
    };
    drag(e);
    brush.onpointermove = drag;
    brush.onpointerup = brush.onpointercancel = (u) => {
      brush.onpointermove = brush.onpointerup = brush.onpointercancel = null;
      if (u.type === "pointerup") commit(from, to, axis);
    };
  };
  brush.ondblclick = () => commit(axis.start, axis.end, axis);

  brush.append(selection, ...handles);
  place();
  if (focused?.includes("from")) handles[0].focus();
  if (focused?.includes("handle to")) handles[1].focus();
}

export function startTimeline(): void {
  let focused = "";
  document.addEventListener("focusin", (e) => {
    const target = e.target as HTMLElement;
    focused = target.classList.contains("handle") ? target.className : "";
  });
  const armAll = (): void => {
    const brush = find(".brush");
    if (!brush) return;
    const side = focused;
    arm(brush);
    if (side && document.activeElement === document.body) find(`.handle.${side.includes("from") ? "from" : "to"}`, brush)?.focus();
  };
  onArrival(armAll);
  armAll();
}
