// UTC is what the server says; the reader's own time stands beside it.
import { all } from "./dom.ts";
import { onArrival } from "./navigate.ts";

function add(): void {
  for (const time of all<HTMLTimeElement>("time[datetime][title]")) {
    if (time.title.includes(" · ")) continue;
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.title += ` · ${at.toLocaleString([], { dateStyle: "medium", timeStyle: "medium" })} here`;
  }
}

export function startLocalTime(): void {
  onArrival(add);
  add();
}
