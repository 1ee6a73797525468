import { find, make } from "./dom.ts";

type Kind = "failed" | "stale";

/** Says something above the page, with a way on; what is shown stays. */
export function alertAbout(kind: Kind, text: string, action: string, then: () => void): void {
  dismiss(kind);
  const bar = make("div", `alert ${kind}`);
  if (kind === "failed") bar.setAttribute("role", "alert");
  const button = make("button", "", action);
  button.type = "button";
  button.addEventListener("click", () => {
    bar.remove();
    then();
  });
  bar.append(make("p", "", text), button);
  find("#alerts")?.append(bar);
}

export function dismiss(kind: Kind): void {
  find(`#alerts .${kind}`)?.remove();
}
