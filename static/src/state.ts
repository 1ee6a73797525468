import { find } from "./dom.ts";

/** West, south, east, north in degrees of EPSG:4326; west > east crosses the antimeridian. */
export type Box = [number, number, number, number];

/** The letter that is open. */
export interface OpenLetter {
  id: number;
  class: string;
  guess?: boolean;
  anchor?: [number, number];
  flaw?: [number, number];
  bounds?: Box;
  geometry?: GeoJSON.Geometry;
  sent?: GeoJSON.Geometry;
}

/** What the page says the map shows (views.mapState). */
export interface MapState {
  tiles?: string;
  about?: string; // the extent of what matches is asked for when it is wanted
  items?: string;
  style?: string;
  view?: string;
  box?: Box;
  extent?: Box;
  open?: OpenLetter;
  running?: boolean;
}

export function readState(): MapState {
  try {
    return JSON.parse(find("#state")?.dataset.state ?? "{}") as MapState;
  } catch {
    return {};
  }
}

/** What the map asks of the page around it. */
export interface Page {
  setBox(box: Box): void;
  openLetter(id: number): void;
  moved(view: string): void;
  drawing(on: boolean): void;
}

/** What the page around it asks of the map. */
export interface MapHandle {
  update(state: MapState): void;
  reload(): void;
  goTo(view: string): boolean;
  fit(): Promise<void>;
  resize(): void;
  toggleBox(): void;
  stopBox(): boolean;
  seen(): Box;
}

export type Mount = (element: HTMLElement, state: MapState, page: Page) => MapHandle;
