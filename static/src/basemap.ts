// The built-in basemap: land, coast and borders of Natural Earth (basemap.mjs says
// how they are written), from our own origin.

interface Encoded {
  land: number[][][]; // polygons of rings
  borders: number[][];
}

type Line = [number, number][];

function decode(steps: number[]): Line {
  const line: Line = [];
  let [x, y] = [0, 0];
  for (let i = 0; i + 1 < steps.length; i += 2) {
    x += steps[i]!;
    y += steps[i + 1]!;
    line.push([x / 100, y / 100]);
  }
  return line;
}

// Where a ring runs along the edge of the map it is a cut, and no coast.
const onCut = (a: [number, number], b: [number, number]): boolean =>
  (Math.abs(a[0]) >= 179.99 && a[0] === b[0]) || (a[1] <= -89.9 && b[1] <= -89.9);

function coastOf(ring: Line): Line[] {
  const lines: Line[] = [];
  let line: Line = [];
  for (let i = 1; i < ring.length; i++) {
    if (onCut(ring[i - 1]!, ring[i]!)) {
      if (line.length > 1) lines.push(line);
      line = [];
      continue;
    }
    if (line.length === 0) line.push(ring[i - 1]!);
    line.push(ring[i]!);
  }
  if (line.length > 1) lines.push(line);
  return lines;
}

export async function loadBasemap(url: string): Promise<GeoJSON.FeatureCollection> {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`basemap: ${answer.status}`);
  const { land, borders } = (await answer.json()) as Encoded;
  const polygons = land.map((rings) => rings.map(decode));
  const of = (kind: string, geometry: GeoJSON.Geometry): GeoJSON.Feature => ({ type: "Feature", properties: { kind }, geometry });
  return {
    type: "FeatureCollection",
    features: [
      of("land", { type: "MultiPolygon", coordinates: polygons }),
      of("coast", { type: "MultiLineString", coordinates: polygons.flat().flatMap(coastOf) }),
      of("border", { type: "MultiLineString", coordinates: borders.map(decode) }),
    ],
  };
}
