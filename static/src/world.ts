// Boxes and positions on a map that shows the world more than once.
import type { Box, OpenLetter } from "./state.ts";

/** A longitude in −180…180. */
export function wrap(lon: number): number {
  if (lon >= -180 && lon <= 180) return lon;
  return ((((lon + 180) % 360) + 360) % 360) - 180;
}

/** The box between two corners, unwrapped longitudes as the map has them. */
export function boxBetween(a: [number, number], b: [number, number], digits: number): Box {
  const round = (v: number): number => Number(v.toFixed(digits));
  const [west, east] = [Math.min(a[0], b[0]), Math.max(a[0], b[0])];
  const south = round(Math.max(Math.min(a[1], b[1]), -90));
  const north = round(Math.min(Math.max(a[1], b[1]), 90));
  if (east - west >= 360) return [-180, south, 180, north];
  return [round(wrap(west)), south, round(wrap(east)), north];
}

/** Digits that tell places apart on the screen at a zoom. */
export const digitsAt = (zoom: number): number => Math.min(Math.max(Math.ceil(zoom * 0.31 + 1), 2), 7);

/** East of a box, unwrapped so that it is not west of west. */
export const eastOf = (box: Box): number => (box[2] < box[0] ? box[2] + 360 : box[2]);

export function boxFeature(box: Box): GeoJSON.Feature {
  const [west, south, , north] = box;
  const east = eastOf(box);
  // Long edges need positions in between, or a cut of the world loses them.
  const middle = (west + east) / 2;
  return {
    type: "Feature",
    properties: {},
    geometry: {
      type: "Polygon",
      coordinates: [[[west, south], [middle, south], [east, south], [east, north], [middle, north], [west, north], [west, south]]],
    },
  };
}

function eachPosition(geometry: GeoJSON.Geometry, f: (position: GeoJSON.Position) => void): void {
  if (geometry.type === "GeometryCollection") {
    for (const part of geometry.geometries) eachPosition(part, f);
    return;
  }
  const walk = (value: unknown): void => {
    if (!Array.isArray(value)) return;
    if (typeof value[0] === "number") f(value as GeoJSON.Position);
    else for (const v of value) walk(v);
  };
  walk(geometry.coordinates);
}

/** The rings of polygons, as lines. */
export function outlines(geometry: GeoJSON.Geometry): GeoJSON.Geometry[] {
  switch (geometry.type) {
    case "Polygon":
      return [{ type: "MultiLineString", coordinates: geometry.coordinates }];
    case "MultiPolygon":
      return [{ type: "MultiLineString", coordinates: geometry.coordinates.flat() }];
    case "GeometryCollection":
      return geometry.geometries.flatMap(outlines);
  }
  return [];
}

/** What surrounds the open letter, or null where it has no place. */
export function extentOf(open: OpenLetter): Box | null {
  const box: Box = [Infinity, Infinity, -Infinity, -Infinity];
  const add = (p: GeoJSON.Position): void => {
    const [x = NaN, y = NaN] = p;
    if (!Number.isFinite(x) || !Number.isFinite(y)) return;
    box[0] = Math.min(box[0], x);
    box[1] = Math.min(box[1], Math.max(y, -85));
    box[2] = Math.max(box[2], x);
    box[3] = Math.max(box[3], Math.min(y, 85));
  };
  if (open.geometry) eachPosition(open.geometry, add);
  if (open.sent) eachPosition(open.sent, add);
  if (open.bounds && open.bounds[0] <= open.bounds[2]) {
    add([open.bounds[0], open.bounds[1]]);
    add([open.bounds[2], open.bounds[3]]);
  }
  if (open.anchor) add(open.anchor);
  if (open.flaw) add(open.flaw);
  return box[0] <= box[2] ? box : null;
}

/** ZOOM/LAT/LON, as the URL has it. */
export function parseView(text: string): { zoom: number; lat: number; lon: number } | null {
  const parts = text.split("/").map(Number);
  const [zoom, lat, lon] = parts;
  if (parts.length !== 3 || parts.some((v) => !Number.isFinite(v))) return null;
  if (zoom! < 0 || zoom! > 22 || Math.abs(lat!) > 90 || Math.abs(lon!) > 180) return null;
  return { zoom: zoom!, lat: lat!, lon: lon! };
}
