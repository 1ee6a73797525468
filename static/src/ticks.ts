// Ticked letters: kept while pages of the same filter are turned, and named by the
// buttons that act on them.
import { all, find, make } from "./dom.ts";
import { onArrival } from "./navigate.ts";
import { readState } from "./state.ts";

const ticked = new Set<string>();
let last: string | null = null;
let filter = "";

const boxes = (): HTMLInputElement[] => all<HTMLInputElement>(".tick input");

export const anyTicked = (): boolean => ticked.size > 0;

function show(): void {
  for (const box of boxes()) box.checked = ticked.has(box.value);
  find(".actions")?.classList.toggle("some", ticked.size > 0);
  const count = find("#tickcount");
  if (count) count.textContent = String(ticked.size);
  for (const button of all<HTMLButtonElement>("#ticked button[data-word]")) {
    button.textContent = `${button.dataset.word} ${ticked.size}…`;
  }
}

function set(id: string, on: boolean): void {
  if (on) ticked.add(id);
  else ticked.delete(id);
}

function clicked(e: MouseEvent): void {
  const box = e.target;
  if (!(box instanceof HTMLInputElement) || !box.closest(".tick")) return;
  set(box.value, box.checked);
  if (e.shiftKey && last !== null) {
    const ids = boxes().map((b) => b.value);
    const [from, to] = [ids.indexOf(last), ids.indexOf(box.value)].sort((a, b) => a - b) as [number, number];
    if (from >= 0) for (const id of ids.slice(from, to + 1)) set(id, box.checked);
  }
  last = box.value;
  show();
}

export function untick(): void {
  ticked.clear();
  last = null;
  show();
}

export function startTicks(): void {
  filter = readState().tiles ?? "";
  for (const box of boxes()) if (box.checked) ticked.add(box.value); // as the browser restored them
  document.addEventListener("click", clicked);
  document.addEventListener("submit", (e) => {
    const form = e.target as HTMLFormElement;
    // Not form.id: the ticks are named id, and stand for it.
    if (!form.matches("#ticked")) return;
    for (const old of all(".carried", form)) old.remove();
    const listed = new Set(boxes().map((b) => b.value));
    for (const id of ticked) {
      if (listed.has(id)) continue;
      const input = make("input", "carried");
      input.type = "hidden";
      input.name = "id";
      input.value = id;
      form.append(input);
    }
  });
  onArrival(() => {
    const now = readState().tiles ?? "";
    if (now !== filter) {
      filter = now;
      ticked.clear();
      last = null;
    }
    show();
  });
  show();
}
