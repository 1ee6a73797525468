// What lies under the pointer, in words.
import { make } from "./dom.ts";
import { classNames, stateNames } from "./classes.ts";

type Properties = Record<string, unknown>;

const number = new Intl.NumberFormat("en");

function counts(properties: Properties): [string, number][] {
  return [...classNames, ...stateNames]
    .map((name) => [name, Number(properties[name] ?? 0)] as [string, number])
    .filter(([, n]) => n > 0)
    .sort((a, b) => b[1] - a[1]);
}

/** Lines of a cell: how many, and how many of each class or state. */
function cellLines(properties: Properties): HTMLElement[] {
  const n = Number(properties.count);
  const lines = [make("strong", "", `${number.format(n)} ${n === 1 ? "letter" : "letters"}`)];
  for (const [name, count] of counts(properties)) {
    const line = make("span", `c-${name} i-${name}`);
    line.append(make("i"), `${name.replaceAll("_", " ")} `, make("b", "", number.format(count)));
    lines.push(line);
  }
  return lines;
}

function letterLines(properties: Properties, others: number): HTMLElement[] {
  const lines = [
    make("strong", "", String(properties.class ?? "").replaceAll("_", " ")),
    make("span", "", `letter ${properties.id} · ${properties.stage ?? ""} · ${properties.status ?? ""}`),
  ];
  if (properties.located_by === "guess") lines.push(make("span", "", "its place is a guess"));
  if (properties.located_by === "tile") lines.push(make("span", "", "its place is a tile"));
  if (others > 0) lines.push(make("span", "", `${others} more right here: click again for the next`));
  return lines;
}

export function showTip(tip: HTMLElement, at: { x: number; y: number }, layer: string, properties: Properties, others: number): void {
  tip.replaceChildren(...(layer === "letters" ? letterLines(properties, others) : cellLines(properties)));
  tip.hidden = false;
  const area = tip.parentElement!.getBoundingClientRect();
  const left = Math.min(at.x + 14, area.width - tip.offsetWidth - 8);
  const top = at.y + 16 + tip.offsetHeight > area.height ? at.y - tip.offsetHeight - 12 : at.y + 16;
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${Math.max(top, 8)}px`;
}
