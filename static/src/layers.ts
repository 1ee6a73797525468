// What is drawn over which: the basemap, then what failed.
import type { ExpressionSpecification, LayerSpecification, StyleSpecification } from "maplibre-gl";
import { classNames, stateNames } from "./classes.ts";
import { colourOf, type Theme } from "./theme.ts";

const nothing: GeoJSON.FeatureCollection = { type: "FeatureCollection", features: [] };

const is = (name: string, value: string): ExpressionSpecification => ["==", ["get", name], value];

/** The style of the built-in basemap; its source is filled once it is loaded. */
export function baseStyle(theme: Theme): StyleSpecification {
  return {
    version: 8,
    sources: { world: { type: "geojson", data: nothing, tolerance: 0.2, attribution: "Natural Earth" } },
    layers: baseLayers(theme),
  };
}

function baseLayers(theme: Theme): LayerSpecification[] {
  return [
    { id: "sea", type: "background", paint: { "background-color": theme.sea } },
    { id: "land", type: "fill", source: "world", filter: is("kind", "land"), paint: { "fill-color": theme.land } },
    { id: "border", type: "line", source: "world", filter: is("kind", "border"), paint: { "line-color": theme.coast, "line-width": 0.7 } },
    { id: "coast", type: "line", source: "world", filter: is("kind", "coast"), paint: { "line-color": theme.coast, "line-width": 0.9 } },
  ];
}

const byName = (theme: Theme, names: readonly string[], property: string): ExpressionSpecification =>
  ["match", ["get", property], ...names.flatMap((name) => [name, colourOf(theme, name)]), colourOf(theme, "")] as unknown as ExpressionSpecification;

const byClass = (theme: Theme): ExpressionSpecification => byName(theme, classNames, "class");

/** Layers of the letters' tiles. */
export function letterLayers(theme: Theme): LayerSpecification[] {
  const shapes = { source: "letters", "source-layer": "shapes" };
  return [
    {
      id: "shape-fill", type: "fill", ...shapes,
      filter: ["all", ["==", ["geometry-type"], "Polygon"], ["!=", ["get", "located_by"], "tile"], ["!=", ["get", "class"], "invalid_geometry"]],
      paint: { "fill-color": byClass(theme), "fill-opacity": 0.14 },
    },
    {
      id: "shape-hatch", type: "fill", ...shapes, filter: is("located_by", "tile"),
      paint: { "fill-pattern": ["concat", "hatch|", ["get", "class"]] },
    },
    { id: "shape-line", type: "line", ...shapes, filter: ["!=", ["get", "located_by"], "guess"], paint: { "line-color": byClass(theme), "line-width": 1.6 } },
    {
      id: "shape-guess", type: "line", ...shapes, filter: is("located_by", "guess"),
      paint: { "line-color": byClass(theme), "line-width": 1.6, "line-dasharray": [2.5, 2] },
    },
    {
      id: "cells", type: "symbol", source: "letters", "source-layer": "cells",
      layout: {
        "icon-image": ["concat", "cell|", ["get", "class"], "|", ["to-string", ["get", "count"]]],
        "icon-size": ["interpolate", ["linear"], ["zoom"], 1, 0.8, 4, 1],
        "icon-allow-overlap": true, "icon-ignore-placement": true, "symbol-sort-key": ["get", "count"],
      },
    },
    {
      id: "letters", type: "symbol", source: "letters", "source-layer": "letters",
      layout: {
        "icon-image": ["concat", "letter|", ["get", "class"], "|", ["get", "status"], "|", ["get", "located_by"]],
        "icon-allow-overlap": true, "icon-ignore-placement": true,
      },
    },
    {
      id: "flaws", type: "symbol", source: "letters", "source-layer": "flaws",
      layout: { "icon-image": "flaw", "icon-allow-overlap": true, "icon-ignore-placement": true },
    },
  ];
}

/** Layers of an order's tiles. */
export function itemLayers(): LayerSpecification[] {
  return [
    {
      id: "items", type: "symbol", source: "items", "source-layer": "items",
      layout: {
        "icon-image": ["concat", "cell|", ["get", "state"], "|", ["to-string", ["get", "count"]]],
        "icon-size": ["interpolate", ["linear"], ["zoom"], 1, 0.8, 4, 1],
        "icon-allow-overlap": true, "icon-ignore-placement": true, "symbol-sort-key": ["get", "count"],
      },
    },
  ];
}

/** Layers of the box, and of the letter that is open. */
export function boxLayers(theme: Theme): LayerSpecification[] {
  return [
    { id: "box-fill", type: "fill", source: "box", paint: { "fill-color": theme.accent, "fill-opacity": 0.08 } },
    { id: "box-line", type: "line", source: "box", paint: { "line-color": theme.accent, "line-width": 2, "line-dasharray": [3, 2] } },
  ];
}

export function openLayers(theme: Theme): LayerSpecification[] {
  const part = (name: string): { source: string; filter: ExpressionSpecification } => ({ source: "open", filter: is("part", name) });
  return [
    {
      id: "open-fill", type: "fill", source: "open", filter: ["all", is("part", "geometry"), ["==", ["geometry-type"], "Polygon"]],
      paint: { "fill-color": byClass(theme), "fill-opacity": 0.18 },
    },
    { id: "open-line", type: "line", source: "open", filter: ["all", is("part", "geometry"), ["==", ["geometry-type"], "LineString"]], paint: { "line-color": byClass(theme), "line-width": 2.5 } },
    {
      id: "open-sent", type: "line", source: "open", filter: ["all", is("part", "sent"), ["==", ["geometry-type"], "LineString"]],
      paint: { "line-color": byClass(theme), "line-width": 2, "line-dasharray": [2.5, 2] },
    },
    {
      id: "open-vertex", type: "circle", source: "open",
      filter: ["all", ["in", ["get", "part"], ["literal", ["sent", "geometry"]]], ["==", ["geometry-type"], "Point"]],
      paint: { "circle-radius": 4, "circle-color": byClass(theme), "circle-stroke-color": theme.surface, "circle-stroke-width": 1.5 },
    },
    {
      id: "open-anchor", type: "circle", ...part("anchor"),
      // A halo, wider than any ring of a status.
      paint: { "circle-radius": 18, "circle-color": theme.accent, "circle-opacity": 0.2, "circle-stroke-color": theme.accent, "circle-stroke-width": 2.5 },
    },
    {
      id: "open-guess", type: "symbol", ...part("sign"),
      layout: { "icon-image": ["concat", "letter|", ["get", "class"], "||", ["get", "located_by"]], "icon-allow-overlap": true, "icon-ignore-placement": true },
    },
    { id: "open-flaw", type: "symbol", ...part("flaw"), layout: { "icon-image": "flaw", "icon-allow-overlap": true, "icon-ignore-placement": true } },
  ];
}

export const noFeatures = nothing;
export { classNames, stateNames };
