import { find, make } from "./dom.ts";

type Kind = "failed" | "away" | "stale";

/** Says something above the page, with a way on; what is shown stays. */
export function alertAbout(kind: Kind, text: string, action: string, then: () => void): void {
  dismiss(kind);
  const bar = make("div", `alert ${kind}`);
  if (kind !== "stale") bar.setAttribute("role", "alert");
  const button = make("button", "", action);
  button.type = "button";
  button.addEventListener("click", () => {
    bar.remove();
    then();
  });
  bar.append(make("p", "", text), button);
  find("#alerts")?.append(bar);
}

/** Whether that is what stands there, so that it need not be announced again. */
export const says = (kind: Kind, text: string): boolean => find(`#alerts .${kind} p`)?.textContent === text;

export function dismiss(kind: Kind): void {
  find(`#alerts .${kind}`)?.remove();
}
