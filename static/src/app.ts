// The pages' script: everything but the map, which comes when there is one.
import { all, find, sleep } from "./dom.ts";
import { help, startKeys } from "./keys.ts";
import { startLocalTime } from "./localtime.ts";
import { here, isAway, kind, onArrival, refresh, rememberView, startNavigation, viewedBy, visit } from "./navigate.ts";
import { startRecovery } from "./recovery.ts";
import { readState, type Box, type MapHandle, type Mount, type Page } from "./state.ts";
import { startTicks, untick } from "./ticks.ts";
import { startTimeline } from "./timeline.ts";
import { startUndo } from "./undo.ts";

let map: MapHandle | null = null;
let view = readState().view ?? "";

function showTab(tab: string): void {
  document.body.dataset.tab = tab;
  for (const button of all("[data-tab]", find(".tabs") ?? document)) button.setAttribute("aria-pressed", String(button.dataset.tab === tab));
  if (map) map.resize();
  else if (tab === "map") void startMap();
}

const withBox = (box: Box): void => void visit(here({ bbox: box.join(","), letter: null, after: null, undo: null }));

const page: Page = {
  setBox: withBox,
  openLetter: (id) => void visit(here({ letter: String(id), undo: null })),
  moved: (now) => {
    view = now;
    rememberView(now);
  },
  drawing: (on) => find('[data-do="box"]')?.setAttribute("aria-pressed", String(on)),
};

const tools: Record<string, () => void> = {
  help: () => void help(),
  box: () => map?.toggleBox(),
  fit: () => map?.fit(),
  view: () => map && withBox(map.seen()),
  untick,
};

function sayOfMap(text: string): void {
  const note = find("#mapnote");
  if (!note) return;
  note.textContent = text;
  note.hidden = text === "";
  document.body.classList.toggle("nomap", text !== "");
}

let starting = false;

async function startMap(): Promise<void> {
  const element = find("#map");
  const script = element?.dataset.script;
  // A map behind a tab is not fetched before the tab is opened.
  if (!element || !script || starting || element.clientWidth === 0) return;
  starting = true;
  try {
    const { mount } = (await import(script)) as { mount: Mount };
    map = mount(element, readState(), page);
    viewedBy(() => view);
    document.body.classList.add("mapped");
  } catch (error) {
    console.warn("no map:", error);
    sayOfMap("The map can’t be drawn: this browser gives it no WebGL. The list, the charts and a typed box work without it.");
    return;
  }
  // The figures change with what is done to letters, and then so do the tiles.
  const figures = (): string | null | undefined => find("#orderlegend, #filters")?.textContent;
  let shown = figures();
  onArrival((before, wasAway) => {
    const now = figures();
    const changed = now !== shown || wasAway; // whose tiles may have failed
    shown = now;
    // The list and the charts are seen first: drawing a map takes longer.
    afterPaint(() => {
      map?.update(readState());
      if (changed) map?.reload();
    });
    // Back and Forward bring their view along.
    const asked = new URL(location.href).searchParams.get("map") ?? "";
    if (asked && asked !== view && new URL(before, location.href).searchParams.get("map") !== asked && map?.goTo(asked)) view = asked;
  });
}

const afterPaint = (f: () => void): void => void requestAnimationFrame(() => setTimeout(f));

let polling = false;

/** Asks again each second for as long as the order runs. */
async function poll(): Promise<void> {
  if (polling) return;
  polling = true;
  while (readState().running) {
    await sleep(1000);
    if (!document.hidden && !isAway()) await refresh(true);
  }
  polling = false;
}

// Where room is short the legend waits to be asked for.
if (innerWidth < 1280) find(".legend")?.removeAttribute("open");
startNavigation();
startTicks();
startTimeline();
startUndo();
startLocalTime();
startKeys(() => map);
void startRecovery();
document.addEventListener("click", (e) => {
  const target = e.target as Element;
  const tool = target.closest<HTMLElement>("[data-do]")?.dataset.do;
  if (tool) tools[tool]?.();
  const tab = target.closest<HTMLElement>(".tabs [data-tab]")?.dataset.tab;
  if (tab) showTab(tab);
});
// Giving letters up wants a reason; the other orders of the same form do not.
document.addEventListener("submit", (e) => {
  const button = e.submitter as HTMLButtonElement | null;
  const reason = find<HTMLInputElement>('input[name="reason"]', e.target as HTMLFormElement);
  if (button?.value !== "abandon" || !reason || reason.value.trim()) return;
  e.preventDefault();
  reason.setCustomValidity("Say why they are given up.");
  reason.reportValidity();
  reason.addEventListener("input", () => reason.setCustomValidity(""), { once: true });
}, { capture: true });
onArrival((before) => {
  // Another set of letters is read from its top; an opened letter too.
  const at = (path: string, ...names: string[]): string => {
    const url = new URL(path, location.href);
    for (const name of names) url.searchParams.delete(name);
    return url.search;
  };
  if (at(before, "letter", "map", "undo") !== at(location.href, "letter", "map", "undo")) find("#rows")?.scrollTo(0, 0);
  const letter = (path: string): string | null => new URL(path, location.href).searchParams.get("letter");
  if (letter(before) !== letter(location.href)) {
    find("#open")?.scrollTo(0, 0);
    if (letter(location.href)) showTab("list");
    // The focus goes with what was opened, and back to its row.
    const at = document.activeElement;
    if (!at || at === document.body || at.closest("#list, #open")) {
      const next = letter(location.href) ? find("#open .openbar a") : find(`#row-${letter(before)} .what a`);
      next?.focus({ preventScroll: letter(location.href) !== null });
    }
  }
});
if (kind() === "order") {
  onArrival(() => void poll());
  void poll();
}
void startMap();
matchMedia("(width >= 900px)").addEventListener("change", () => void startMap());
