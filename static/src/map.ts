// The map: MapLibre over the basemap, with what failed on top.
import { Map as MapLibre, ScaleControl, AttributionControl, setWorkerUrl, type GeoJSONSource, type LngLatBoundsLike, type MapGeoJSONFeature, type VectorTileSource } from "maplibre-gl";
import { loadBasemap } from "./basemap.ts";
import { boxTool } from "./box.ts";
import { all, find } from "./dom.ts";
import { drawIcon, pixelRatio, type Glyphs } from "./icons.ts";
import { baseStyle, boxLayers, itemLayers, letterLayers, noFeatures, openLayers } from "./layers.ts";
import type { Box, MapHandle, MapState, Mount, OpenLetter, Page } from "./state.ts";
import { onThemeChange, readTheme } from "./theme.ts";
import { showTip } from "./tooltip.ts";
import { boxBetween, boxFeature, digitsAt, eastOf, extentOf, outlines, parseView, wrap } from "./world.ts";

const hoverable = ["letters", "cells", "items"];

const absolute = (path: string): string => location.origin + path;

const bounds = (box: Box): LngLatBoundsLike => [box[0], Math.max(box[1], -85), eastOf(box), Math.min(box[3], 85)];

function openFeatures(open: OpenLetter | undefined, alone: boolean): GeoJSON.FeatureCollection {
  if (!open) return noFeatures;
  const features: GeoJSON.Feature[] = [];
  const add = (part: string, geometry: GeoJSON.Geometry): void => {
    features.push({ type: "Feature", properties: { part, class: open.class, located_by: open.guess ? "guess" : "" }, geometry });
  };
  // Rings as lines of their own: a ring that crosses itself may have no area, and
  // polygons without are left out by whoever cuts them into tiles.
  // Filling one that crosses itself would tell a shape that it has not.
  const parts = (geometry: GeoJSON.Geometry): GeoJSON.Geometry[] => {
    const lines = outlines(geometry);
    return open.class === "invalid_geometry" && lines.length > 0 ? lines : [geometry, ...lines];
  };
  if (open.geometry) for (const part of parts(open.geometry)) add("geometry", part);
  if (open.sent) for (const part of [open.sent, ...outlines(open.sent)]) add("sent", part);
  if (!open.geometry && !open.sent && open.bounds) for (const part of outlines(boxFeature(open.bounds).geometry)) add("sent", part);
  if (open.anchor) {
    if (alone) add("sign", { type: "Point", coordinates: open.anchor });
    else add("anchor", { type: "Point", coordinates: open.anchor });
  }
  if (open.flaw) add("flaw", { type: "Point", coordinates: open.flaw });
  return { type: "FeatureCollection", features };
}

/** The extent of what matches, which the page does not wait for. */
async function extentOfAll(state: MapState): Promise<Box | undefined> {
  if (state.extent || !state.about) return state.extent;
  try {
    const about = (await (await fetch(state.about)).json()) as { bounds?: Box };
    return about.bounds;
  } catch {
    return undefined; // the map stays where it is
  }
}

export const mount: Mount = (element: HTMLElement, first: MapState, page: Page): MapHandle => {
  let theme = readTheme();
  let state = first;
  let styled = false;
  const glyphs: Glyphs = Object.fromEntries(
    all<SVGPathElement>(".sprite symbol > path").map((path) => [path.parentElement!.id.slice("g-".length), path.getAttribute("d") ?? ""]),
  );
  const own = !first.style; // the basemap is the built-in one
  const alone = !first.tiles && !first.items; // one letter, on its own page

  setWorkerUrl(absolute(element.dataset.worker ?? ""));
  const start = first.view ? parseView(first.view) : null;
  const around = first.box ?? first.extent ?? (alone && first.open ? extentOf(first.open) : null);
  // A point alone says more with the country around it.
  const closest = !alone ? 11 : around && around[0] === around[2] && around[1] === around[3] ? 5.5 : 12;
  const padding = Math.min(56, element.clientWidth / 8, element.clientHeight / 8);
  const map = new MapLibre({
    container: element,
    style: own ? baseStyle(theme) : first.style!,
    ...(start ? { center: [start.lon, start.lat], zoom: start.zoom } : around ? { bounds: bounds(around), fitBoundsOptions: { padding, maxZoom: closest } } : { center: [10, 30], zoom: 1.2 }),
    attributionControl: false,
    boxZoom: false, // Shift and drag draws the box
    cooperativeGestures: alone, // the page around it scrolls
    dragRotate: false,
    pitchWithRotate: false,
    touchPitch: false,
    maxZoom: 19,
    fadeDuration: 0,
    canvasContextAttributes: { failIfMajorPerformanceCaveat: false },
  });
  if (!start && !around) {
    void extentOfAll(first).then((extent) => {
      if (extent && !moved) map.fitBounds(bounds(extent), { padding, maxZoom: closest, animate: false });
    });
  }
  let moved = false;
  map.once("dragstart", () => (moved = true)).once("zoomstart", (e) => (moved ||= Boolean(e.originalEvent)));
  map.touchZoomRotate.disableRotation();
  map.keyboard.disableRotation();
  map.addControl(new ScaleControl({ maxWidth: 90 }), "bottom-left");
  if (!own) map.addControl(new AttributionControl({ compact: true }), "bottom-left");
  const canvas = map.getCanvas();
  canvas.setAttribute("aria-label", element.dataset.label ?? "Map");

  const add = (layers: ReturnType<typeof boxLayers>): void => layers.forEach((layer) => map.addLayer(layer));
  const draw = (id: string): void => {
    const icon = drawIcon(id, theme, glyphs);
    if (icon && !map.hasImage(id)) map.addImage(id, icon, { pixelRatio });
  };
  map.setMissingStyleImageResolver?.(async (id: string) => draw(id));
  map.on("styleimagemissing", (e) => draw(e.id));

  const show = (): void => {
    map.getSource<GeoJSONSource>("box")?.setData(state.box ? { type: "FeatureCollection", features: [boxFeature(state.box)] } : noFeatures);
    map.getSource<GeoJSONSource>("open")?.setData(openFeatures(state.open, alone));
  };

  map.on("style.load", () => {
    map.addSource("box", { type: "geojson", data: noFeatures });
    map.addSource("open", { type: "geojson", data: noFeatures, tolerance: 0 });
    add(boxLayers(theme));
    if (state.tiles) {
      map.addSource("letters", { type: "vector", tiles: [absolute(state.tiles)], maxzoom: 16 });
      add(letterLayers(theme));
    }
    if (state.items) {
      map.addSource("items", { type: "vector", tiles: [absolute(state.items)], maxzoom: 16 });
      add(itemLayers());
    }
    add(openLayers(theme));
    styled = true;
    show();
    if (own) {
      loadBasemap(element.dataset.basemap ?? "").then(
        (world) => map.getSource<GeoJSONSource>("world")?.setData(world),
        (error: unknown) => console.warn("no basemap:", error),
      );
    }
  });

  onThemeChange(() => {
    theme = readTheme();
    if (!styled) return;
    const layers = [...(own ? baseStyle(theme).layers : []), ...boxLayers(theme), ...letterLayers(theme), ...openLayers(theme)];
    for (const layer of layers) {
      if (!map.getLayer(layer.id)) continue;
      for (const [name, value] of Object.entries(layer.paint ?? {})) {
        if (name.endsWith("color")) map.setPaintProperty(layer.id, name as never, value as never);
      }
    }
    for (const id of map.listImages()) {
      const icon = drawIcon(id, theme, glyphs);
      if (icon) map.updateImage(id, icon);
    }
  });

  const viewOf = (): string => {
    const { lng, lat } = map.getCenter();
    const digits = digitsAt(map.getZoom());
    return `${map.getZoom().toFixed(2)}/${lat.toFixed(digits)}/${wrap(lng).toFixed(digits)}`;
  };
  let view = ""; // as last told; a map that is only resized has not moved
  map.on("moveend", () => {
    const now = viewOf();
    if (view && now !== view) page.moved(now);
    view = now;
  });
  map.once("idle", () => {
    view = viewOf();
    element.classList.add("idle");
  });

  const tool = boxTool(map, () => theme, page);
  const tip = find("#maptip");

  const under = (point: { x: number; y: number }): MapGeoJSONFeature[] => {
    const layers = hoverable.filter((id) => map.getLayer(id));
    return layers.length ? map.queryRenderedFeatures([point.x, point.y], { layers }) : [];
  };
  map.on("mousemove", (e) => {
    if (tool.active()) {
      if (tip) tip.hidden = true;
      return;
    }
    const found = under(e.point);
    canvas.style.cursor = found.length ? "pointer" : "";
    if (!tip) return;
    const top = found[0];
    if (top) showTip(tip, e.point, top.layer.id, top.properties, new Set(found.map((f) => f.properties.id)).size - 1);
    else tip.hidden = true;
  });
  map.on("mouseout", () => tip && (tip.hidden = true));
  map.on("movestart", () => tip && (tip.hidden = true));
  map.on("click", (e) => {
    if (tool.active()) return;
    const found = under(e.point);
    const top = found[0];
    if (!top) return;
    if (top.layer.id === "letters") {
      const ids = [...new Set(found.filter((f) => f.layer.id === "letters").map((f) => Number(f.properties.id)))];
      const next = ids[(ids.indexOf(state.open?.id ?? -1) + 1) % ids.length];
      if (next) page.openLetter(next);
      return;
    }
    const [lon, lat] = (top.geometry as GeoJSON.Point).coordinates as [number, number];
    // From the cell's copy of the world that was clicked.
    const near = lon + 360 * Math.round((e.lngLat.lng - lon) / 360);
    map.easeTo({ center: [near, lat], zoom: Math.min(map.getZoom() + 2.5, 18) });
  });

  const sees = (box: Box): boolean => {
    const east = eastOf(box);
    const [a, b] = [map.project([box[0], box[3]]), map.project([east, box[1]])];
    return map.getBounds().contains([wrap((box[0] + east) / 2), (box[1] + box[3]) / 2]) && Math.max(b.x - a.x, b.y - a.y) > 12;
  };

  const fitTo = (box: Box, maxZoom: number): void => {
    const room = Math.min(64, element.clientWidth / 8, element.clientHeight / 8);
    map.fitBounds(bounds(box), { padding: room, maxZoom, duration: 500 });
  };

  return {
    update(next) {
      const before = state;
      state = next;
      if (!styled) return;
      if (next.tiles && next.tiles !== before.tiles) map.getSource<VectorTileSource>("letters")?.setTiles([absolute(next.tiles)]);
      if (JSON.stringify([next.box, next.open]) !== JSON.stringify([before.box, before.open])) show();
      // A box that was typed may be out of sight, or too small to be seen.
      if (next.box && JSON.stringify(next.box) !== JSON.stringify(before.box) && !sees(next.box)) fitTo(next.box, 12);
      // A letter that opens out of sight is brought into it.
      if (next.open && next.open.id !== before.open?.id && next.open.anchor && !map.getBounds().contains(next.open.anchor)) {
        map.easeTo({ center: next.open.anchor });
      }
    },
    reload() {
      for (const source of ["items", "letters"]) if (styled && map.getSource(source)) map.refreshTiles(source);
    },
    goTo(where) {
      const to = parseView(where);
      if (!to) return false;
      map.jumpTo({ center: [to.lon, to.lat], zoom: to.zoom });
      return true;
    },
    async fit() {
      const { box: asked } = state;
      const extent = await extentOfAll(state);
      // An extent over the antimeridian may be told as one around the world.
      const wide = asked && extent && eastOf(extent) - extent[0] > eastOf(asked) - asked[0];
      const box = alone && state.open ? extentOf(state.open) : ((wide ? asked : extent) ?? asked);
      if (box) fitTo(box, alone ? closest : 12);
      else map.easeTo({ center: [10, 30], zoom: 1.2 });
    },
    resize: () => map.resize(),
    toggleBox: () => tool.toggle(),
    stopBox: () => tool.stop(),
    seen() {
      const b = map.getBounds();
      return boxBetween([b.getWest(), b.getSouth()], [b.getEast(), b.getNorth()], digitsAt(map.getZoom()));
    },
  };
};
