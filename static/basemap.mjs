// The world as land and borders in plain longitude and latitude, cut at the
// antimeridian. A ring or line is a list of whole hundredths of a degree: the
// first position, then the steps from one to the next (basemap.ts reads them).
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { geoEquirectangular } from "d3-geo";
import { geoProject } from "d3-geo-projection";
import { feature, mesh } from "topojson-client";

const atlas = (name) => JSON.parse(readFileSync(createRequire(import.meta.url).resolve(`world-atlas/${name}`), "utf8"));

// world-atlas is made for the sphere: this cuts it where the map has its edge.
const plain = geoEquirectangular().scale(180 / Math.PI).translate([0, 0]).precision(0);

// The plane of d3 has its y downwards.
const place = ([x, y]) => [Math.round(x * 100), Math.round(-y * 100)];

function steps(line) {
  const out = [];
  let last = [0, 0];
  for (const [x, y] of line.map(place)) {
    const step = [x - last[0], y - last[1]];
    if (out.length > 0 && step[0] === 0 && step[1] === 0) continue;
    out.push(...step);
    last = [x, y];
  }
  return out;
}

function polygons(geometry) {
  switch (geometry?.type) {
    case "Polygon":
      return [geometry.coordinates];
    case "MultiPolygon":
      return geometry.coordinates;
    case "GeometryCollection":
      return geometry.geometries.flatMap(polygons);
    case "FeatureCollection":
      return geometry.features.flatMap((f) => polygons(f.geometry));
    case "Feature":
      return polygons(geometry.geometry);
  }
  return [];
}

export function basemap() {
  const countries = atlas("countries-50m.json");
  const land = polygons(geoProject(feature(countries, countries.objects.land), plain))
    .map((rings) => rings.map(steps).filter((ring) => ring.length > 6))
    .filter((rings) => rings.length > 0);
  const borders = geoProject(mesh(countries, countries.objects.countries, (a, b) => a !== b), plain);
  return JSON.stringify({ land, borders: borders.coordinates.map(steps).filter((line) => line.length > 2) });
}
