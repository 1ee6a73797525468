// Keys, never while somebody types.
import { alertAbout } from "./alerts.ts";
import { all, find, typing } from "./dom.ts";
import { anyTicked } from "./ticks.ts";
import type { MapHandle } from "./state.ts";

const rows = (): HTMLElement[] => all(".row");
const focusedRow = (): HTMLElement | null => document.activeElement?.closest<HTMLElement>(".row") ?? null;

let at: string | null = null; // the row that was last come to

function press(element: HTMLElement | null): boolean {
  if (!element || (element instanceof HTMLButtonElement && element.disabled)) return false;
  element.click();
  return true;
}

function step(by: 1 | -1): boolean {
  const beside = find(`#open [data-key="${by > 0 ? "next" : "prev"}"]`);
  if (find("#open .openbar")) return press(beside);
  const list = rows();
  if (list.length === 0) return false;
  const from = list.findIndex((row) => row === focusedRow() || (!focusedRow() && row.id === at));
  const next = list[from < 0 ? 0 : Math.min(Math.max(from + by, 0), list.length - 1)];
  if (!next) return false;
  at = next.id;
  find(".what a", next)?.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

// What is ticked goes before the row at hand: the last tick left the focus there.
function act(verb: "redrive" | "quarantine", key: string): boolean {
  if (find("#open .openbar")) return press(find(`#open [data-key="${key}"]`));
  if (document.body.classList.contains("letter")) return press(find(`.act [data-key="${key}"]`));
  if (anyTicked()) return press(find(`#ticked button[value="${verb}"]`));
  const row = focusedRow();
  if (row) return press(find(`.do [value="${verb}"]`, row)) || sayWhyNot(row, verb);
  return press(find(`#all [data-key="${key}"]`));
}

function sayWhyNot(row: HTMLElement, verb: "redrive" | "quarantine"): true {
  const status = find(".status", row)?.textContent;
  const done = verb === "redrive" ? "redriven" : "quarantined";
  alertAbout("stale", status ? `This letter is ${status}, so it can’t be ${done}.` : `This letter’s work is run elsewhere, and is ${done} there.`, "Dismiss", () => {});
  return true;
}

function escape(map: MapHandle | null): boolean {
  if (map?.stopBox()) return true;
  const menu = all("details.more[open], details.times[open], .boxtools details[open], details.abandon[open]").at(-1);
  if (menu) {
    menu.removeAttribute("open");
    find("summary", menu)?.focus();
    return true;
  }
  const opened = find("#open [data-key=Escape]");
  if (opened) return press(opened);
  if (location.hash === "#filters") {
    location.hash = "#main";
    return true;
  }
  return false;
}

/** Listens for keys; map is asked anew each time, since it comes late. */
export function startKeys(map: () => MapHandle | null): void {
  const keys: Record<string, () => boolean> = {
    "/": () => {
      const field = find<HTMLInputElement>("#q");
      field?.focus();
      field?.select();
      return field !== null;
    },
    "?": help,
    b: () => (map()?.toggleBox(), map() !== null),
    f: () => (map()?.fit(), map() !== null),
    v: () => press(find('[data-do="view"]')),
    c: () => press(find('[data-key="c"]')),
    j: () => step(1),
    k: () => step(-1),
    ArrowDown: () => inList() && step(1),
    ArrowUp: () => inList() && step(-1),
    x: () => press(focusedRow() ? find(".tick input", focusedRow()!) : null),
    r: () => act("redrive", "r"),
    q: () => act("quarantine", "q"),
    u: () => press(find('#toast [data-key="u"]')),
    Escape: () => escape(map()),
  };
  document.addEventListener("keydown", (e) => {
    if (e.defaultPrevented || e.metaKey || e.ctrlKey || e.altKey || find("dialog[open]")) return;
    if (typing(e.target)) {
      if (e.key === "Escape") (e.target as HTMLElement).blur();
      return;
    }
    if (Object.hasOwn(keys, e.key) && keys[e.key]?.()) e.preventDefault();
  });
}

// Arrows move the map and the scroll where these have the focus.
const inList = (): boolean => focusedRow() !== null || document.activeElement === document.body;

export function help(): boolean {
  const dialog = find<HTMLDialogElement>("#help");
  dialog?.showModal();
  return dialog !== null;
}
