// The way back from a redrive of one letter, counting down.
import { find } from "./dom.ts";
import { here, onArrival } from "./navigate.ts";

let timer = 0;

function arm(): void {
  clearInterval(timer);
  const toast = find(".toast");
  if (!toast) return;
  // The server's clock, since this one may be off.
  const end = performance.now() + Number(toast.dataset.until) - Number(toast.dataset.now);
  const left = find(".left", toast);
  const tick = (): void => {
    const seconds = Math.ceil((end - performance.now()) / 1000);
    if (seconds > 0) {
      if (left) left.textContent = `${seconds} s`;
      return;
    }
    clearInterval(timer);
    toast.remove();
    if (new URL(location.href).searchParams.has("undo")) history.replaceState(null, "", here({ undo: null }));
  };
  timer = window.setInterval(tick, 250);
  tick();
}

export function startUndo(): void {
  onArrival(arm);
  arm();
}
