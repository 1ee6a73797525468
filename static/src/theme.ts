// Colours for the canvas, from the tokens as they stand now.
import { classTokens, stateTokens } from "./classes.ts";

const names = ["surface", "text", "muted", "accent", "on-accent", "border", "danger", "good", "skipped", "sea", "land", "coast"] as const;

export type Token = (typeof names)[number] | (typeof classTokens)[keyof typeof classTokens];
export type Theme = Record<Token, string>;

/** Tokens as colours that need no style sheet: rgb(…). */
export function readTheme(): Theme {
  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);
  const theme = {} as Theme;
  for (const name of new Set<Token>([...names, ...Object.values(classTokens)])) {
    probe.style.color = `var(--${name})`;
    theme[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return theme;
}

/** The colour of a class or of an item's state; of unknown for anything else. */
export function colourOf(theme: Theme, name: string): string {
  if (Object.hasOwn(classTokens, name)) return theme[classTokens[name as keyof typeof classTokens]];
  if (Object.hasOwn(stateTokens, name)) return theme[stateTokens[name as keyof typeof stateTokens]];
  return theme.unknown;
}

/** rgb(r, g, b) as #rrggbb, for those who take nothing else. */
export function hex(colour: string): `#${string}` {
  const parts = colour.match(/[\d.]+/g)?.slice(0, 3).map(Number) ?? [0, 0, 0];
  return `#${parts.map((v) => Math.round(v).toString(16).padStart(2, "0")).join("")}`;
}

export function onThemeChange(f: () => void): void {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", f);
}
