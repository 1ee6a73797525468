// Drawing the box: by the tool, or at once with Shift held.
import type { LngLat, Map as MapLibre } from "maplibre-gl";
import { TerraDraw, TerraDrawRectangleMode } from "terra-draw";
import { TerraDrawMapLibreGLAdapter } from "terra-draw-maplibre-gl-adapter";
import type { Box, Page } from "./state.ts";
import { hex, type Theme } from "./theme.ts";
import { boxBetween, digitsAt } from "./world.ts";

export interface BoxTool {
  toggle(): void;
  /** Stops drawing; whether there was anything to stop. */
  stop(): boolean;
  active(): boolean;
}

export function boxTool(map: MapLibre, theme: () => Theme, page: Page): BoxTool {
  let draw: TerraDraw | null = null;
  // Where the pointer first went down and last came up: terra-draw begins a drag
  // where it first saw it move, which may be far from there.
  let from: LngLat | null = null;
  let to: LngLat | null = null;
  const container = map.getCanvasContainer();
  const placeOf = (e: PointerEvent): LngLat => {
    const r = map.getCanvas().getBoundingClientRect();
    const within = (v: number, limit: number): number => Math.min(Math.max(v, 0), limit);
    return map.unproject([within(e.clientX - r.left, r.width), within(e.clientY - r.top, r.height)]);
  };

  let pressed = false;

  const finish = (): void => {
    if (!from || !to) return;
    const box: Box = boxBetween(
      [Math.min(from.lng, to.lng), Math.min(from.lat, to.lat)], [Math.max(from.lng, to.lng), Math.max(from.lat, to.lat)], digitsAt(map.getZoom()),
    );
    stop();
    if (box[0] !== box[2] && box[1] !== box[3]) page.setBox(box);
  };

  const stop = (): boolean => {
    if (!draw) return false;
    draw.stop();
    draw = null;
    from = to = null;
    map.getCanvas().style.cursor = "";
    map.dragPan.enable();
    page.drawing(false);
    return true;
  };

  const start = (): void => {
    const accent = hex(theme().accent);
    draw = new TerraDraw({
      adapter: new TerraDrawMapLibreGLAdapter({ map, coordinatePrecision: 9 }),
      modes: [
        new TerraDrawRectangleMode({
          drawInteraction: "click-move-or-drag",
          styles: { fillColor: accent, fillOpacity: 0.12, outlineColor: accent, outlineOpacity: 1, outlineWidth: 2 },
        }),
      ],
    });
    draw.start();
    draw.setMode("rectangle");
    // After terra-draw is done with the event that ended it.
    draw.on("finish", () => void setTimeout(finish));
    page.drawing(true);
  };

  // Shift and drag: terra-draw begins to listen before the event comes to it.
  container.addEventListener("pointerdown", (e) => {
    if (e.shiftKey && e.button === 0 && !draw) start();
    if (!draw) return;
    from ??= placeOf(e);
    pressed = true;
  }, { capture: true });
  window.addEventListener("pointerup", (e) => {
    if (!draw || !from || !pressed) return;
    pressed = false;
    to = placeOf(e);
    // Let go outside, which terra-draw does not hear: the box ends at the edge.
    if (!container.contains(e.target as Node)) setTimeout(finish);
  }, { capture: true });

  return { toggle: () => (stop() ? undefined : start()), stop, active: () => draw !== null };
}
