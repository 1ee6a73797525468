// The signs on the map, drawn when the map first wants one: its name says all of
// it, such as cell|upstream_timeout|46.
import { colourOf, type Theme } from "./theme.ts";

export type Glyphs = Record<string, string>;

export interface Icon {
  width: number;
  height: number;
  data: Uint8ClampedArray;
}

/** Pixels of an icon to one of the page. */
export const pixelRatio = 2;

/** How large a cell of so many letters is, in pixels of the page: hardly over its neighbours, whose numbers are to be read. */
const radius = (n: number): number => (n <= 1 ? 9 : Math.round(Math.min(11.5 + 3.9 * Math.log10(n) + (n >= 1000 ? 2 : 0), 28)));

/** A count in at most four characters: 46, 1.3k, 12k, 3.4M. */
export function short(n: number): string {
  if (n < 1000) return String(n);
  for (const [unit, of] of [["M", 1e6], ["k", 1e3]] as const) {
    if (n >= of * 0.9995) return (n / of < 9.95 ? (n / of).toFixed(1) : String(Math.round(n / of))) + unit;
  }
  return String(n);
}

function canvas(size: number): CanvasRenderingContext2D {
  const element = document.createElement("canvas");
  element.width = element.height = Math.ceil(size * pixelRatio);
  const ctx = element.getContext("2d", { willReadFrequently: true });
  if (!ctx) throw new Error("no 2D canvas");
  ctx.scale(pixelRatio, pixelRatio);
  return ctx;
}

const icon = (ctx: CanvasRenderingContext2D): Icon => ctx.getImageData(0, 0, ctx.canvas.width, ctx.canvas.height);

function glyph(ctx: CanvasRenderingContext2D, path: string | undefined, x: number, y: number, size: number, colour: string): void {
  ctx.save();
  ctx.translate(x - size / 2, y - size / 2);
  ctx.scale(size / 12, size / 12);
  ctx.fillStyle = colour;
  ctx.fill(new Path2D(path ?? ""), "evenodd");
  ctx.restore();
}

function disc(ctx: CanvasRenderingContext2D, c: number, r: number, fill: string, edge: string, width = 1.5): void {
  ctx.beginPath();
  ctx.arc(c, c, r, 0, 2 * Math.PI);
  ctx.fillStyle = fill;
  ctx.fill();
  ctx.lineWidth = width;
  ctx.strokeStyle = edge;
  ctx.stroke();
}

function cell(theme: Theme, glyphs: Glyphs, name: string, n: number): Icon {
  const r = radius(n);
  const ctx = canvas(2 * r + 4);
  const c = r + 2;
  disc(ctx, c, r, colourOf(theme, name), theme.surface);
  const ink = theme["on-accent"];
  if (n <= 1) {
    glyph(ctx, glyphs[name], c, c, 9, ink);
    return icon(ctx);
  }
  const size = Math.min(11 + r / 10, 14);
  glyph(ctx, glyphs[name], c, c - r * 0.46, Math.min(r * 0.55, 12), ink);
  ctx.fillStyle = ink;
  ctx.font = `650 ${size}px "Inter Variable", Inter, system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(short(n), c, c + r * 0.28);
  return icon(ctx);
}

// A letter: its class by colour and glyph, its status by the ring around it.
function letter(theme: Theme, glyphs: Glyphs, name: string, status: string, located: string): Icon {
  const ctx = canvas(30);
  const ring = { redriving: theme.accent, quarantined: theme.text, replayed: theme.good, abandoned: theme.muted }[status];
  if (status === "replayed" || status === "abandoned") ctx.globalAlpha = 0.7;
  if (located === "guess") {
    ctx.setLineDash([3.2, 2.6]);
    disc(ctx, 15, 11.5, "transparent", colourOf(theme, name), 1.8);
    ctx.setLineDash([]);
  }
  disc(ctx, 15, 8.5, colourOf(theme, name), theme.surface);
  if (ring) disc(ctx, 15, 10.5, "transparent", ring, 2);
  glyph(ctx, glyphs[name], 15, 15, 9.5, theme["on-accent"]);
  return icon(ctx);
}

function flaw(theme: Theme): Icon {
  const ctx = canvas(18);
  for (const [width, colour] of [[5, theme.surface], [2.2, theme.danger]] as const) {
    ctx.beginPath();
    ctx.moveTo(4, 4);
    ctx.lineTo(14, 14);
    ctx.moveTo(14, 4);
    ctx.lineTo(4, 14);
    ctx.lineWidth = width;
    ctx.lineCap = "round";
    ctx.strokeStyle = colour;
    ctx.stroke();
  }
  return icon(ctx);
}

function hatch(theme: Theme, name: string): Icon {
  const size = 10;
  const ctx = canvas(size);
  ctx.strokeStyle = colourOf(theme, name);
  ctx.globalAlpha = 0.45;
  ctx.lineWidth = 1;
  for (const x of [-size, 0, size]) {
    ctx.beginPath();
    ctx.moveTo(x - 1, size + 1);
    ctx.lineTo(x + size + 1, -1);
    ctx.stroke();
  }
  return icon(ctx);
}

/** The icon of a name, or null where the name is not one of ours. */
export function drawIcon(id: string, theme: Theme, glyphs: Glyphs): Icon | null {
  const [kind, name = "", third = "", fourth = ""] = id.split("|");
  switch (kind) {
    case "cell":
      return cell(theme, glyphs, name, Number(third));
    case "letter":
      return letter(theme, glyphs, name, third, fourth);
    case "flaw":
      return flaw(theme);
    case "hatch":
      return hatch(theme, name);
  }
  return null;
}
