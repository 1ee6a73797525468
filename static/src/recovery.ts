// Coming back after an outage: while the server or its database is away, the page
// looks again by itself.
import { find, sleep } from "./dom.ts";
import { isAway, isBusy, recover, swaps } from "./navigate.ts";

const every = 3000; // ms

/** A page whose regions are not swapped: one that could not be shown is loaded, of
 * another the banner alone is brought up to date. */
async function lookAgain(): Promise<void> {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer || answer.status >= 500) return;
  if (find("[data-retry]")) return location.reload();
  const banner = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#outage");
  if (banner) find("#outage")?.replaceWith(banner);
}

export async function startRecovery(): Promise<void> {
  for (;;) {
    await sleep(every);
    if (document.hidden || isBusy() || !(isAway() || find("#outage .alert, [data-retry]"))) continue;
    await (swaps() ? recover() : lookAgain());
  }
}
