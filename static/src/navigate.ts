// Following links and sending forms without leaving the page: htmx asks for the
// same URL as the browser would, and the regions of the answer take the place of
// those that stand. The map's canvas is in none of them and lives on.
import htmx from "htmx.org";
import { alertAbout, dismiss, says } from "./alerts.ts";
import { all, find } from "./dom.ts";
import { readState } from "./state.ts";

const regions: Record<string, string[]> = {
  triage: ["#outage", "#search", "#demo", "#kpis", "#filters", "#state", "#boxtools", "#maphud", "#timeline", "#notice", "#list", "#open", "#toast"],
  order: ["#outage", "#orderhead", "#notice", "#state", "#orderlegend", "#ordersummary", "#items"],
};

/** How old a page may be before it says so. */
const staleAfter = 5 * 60_000;

export type History = "push" | "replace" | "none";

interface Visit {
  history?: History;
  quiet?: boolean; // no sign of loading: nobody asked
}

interface Context {
  text: string;
  title?: string;
  response: { raw: Response; status: number };
}

/** How a page was left for the next. */
interface Leaving {
  before: string;
  wasAway: boolean;
  quiet: boolean;
}

let mapView = () => "";
let loaded = location.pathname + location.search;
let loadedAt = Date.now();
let waiting = 0;
let away = false; // the server, or its database, at the last answer
let wanted: { url: URL; how: History } | null = null; // what could not be shown since it is
const arrivals: ((before: string, wasAway: boolean) => void)[] = [];

export const kind = (): string => document.body.classList[0] ?? "";

/** Whether this page's regions are swapped. */
export const swaps = (): boolean => kind() in regions && find("#state") !== null;

export const isAway = (): boolean => away;

/** Whether somebody waits for an answer. */
export const isBusy = (): boolean => waiting > 0;

/** Calls f each time after the regions changed: with the path before, and whether the
 * answer before was that the server or its database is away. */
export function onArrival(f: (before: string, wasAway: boolean) => void): void {
  arrivals.push(f);
}

export function viewedBy(view: () => string): void {
  mapView = view;
}

/** This page's URL with parameters changed; null takes one out. */
export function here(change: Record<string, string | null>): URL {
  const url = new URL(location.href);
  url.hash = "";
  for (const [name, value] of Object.entries(change)) {
    if (value === null) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  return url;
}

/** Writes the view of the map into the URL. */
export function rememberView(view: string): void {
  if (kind() !== "triage") return;
  put("replace", here({ map: view }));
}

function put(how: History, url: URL): void {
  const path = url.pathname + url.search.replaceAll("%2F", "/").replaceAll("%2C", ",") + url.hash;
  if (how === "push") history.pushState(null, "", path);
  else if (how === "replace") history.replaceState(null, "", path);
  loaded = location.pathname + location.search;
}

// A relative time has become absolute at the server; the URL says so too, so that
// it means the same wherever it is pasted.
function absolute(url: URL): URL {
  const tiles = readState().tiles;
  if (tiles) {
    const filter = new URLSearchParams(tiles.split("?")[1] ?? "");
    for (const name of ["since", "until"]) {
      const value = filter.get(name);
      if (value && url.searchParams.has(name)) url.searchParams.set(name, value);
    }
  }
  return url;
}

/** Shows another URL of this page. */
export function visit(target: string | URL, { history: how = "push", quiet = false }: Visit = {}): Promise<void> {
  const url = new URL(target, location.href);
  if (!swaps()) {
    location.assign(url);
    return Promise.resolve();
  }
  // While a way back is offered, it stays offered.
  const undo = find(".toast") && new URL(location.href).searchParams.get("undo");
  if (undo && how === "push" && url.pathname === location.pathname) url.searchParams.set("undo", undo);
  const view = mapView();
  if (view && how !== "none" && kind() === "triage") url.searchParams.set("map", view);
  return send("GET", url, document.body, how, quiet, () => void visit(url, { history: how, quiet }));
}

/** Asks for this page again. */
export const refresh = (quiet = false): Promise<void> => visit(location.href, { history: "none", quiet });

/** Asks again, unasked, for what could not be shown, else for this page. */
export const recover = (): Promise<void> => (wanted ? visit(wanted.url, { history: wanted.how, quiet: true }) : refresh(true));

async function send(verb: string, url: URL, source: HTMLElement, how: History, quiet: boolean, again: () => void, event?: Event): Promise<void> {
  const before = loaded;
  const wasAway = away;
  const focus = trail(document.activeElement);
  let arrived: Context | null = null;
  // A request that another one replaces ends before or after that one begins:
  // each has its own ears.
  const mine = (e: Event): Context | null => {
    const ctx = (e as CustomEvent<{ ctx: Context & { ticket?: object } }>).detail.ctx;
    return ctx.ticket === ticket ? ctx : null;
  };
  const ticket = {};
  const answered = (e: Event): void => {
    const ctx = mine(e);
    if (!ctx) return;
    const problem = problemOf(ctx);
    away = ctx.response.status === 503;
    if (problem) {
      e.preventDefault();
      if (verb !== "GET") alertAbout("failed", problem, "Refresh", () => void refresh());
      else if (away) sayAway(problem, quiet, url, how, again);
      else if (ctx.response.status < 500) alertAbout("failed", problem, "Dismiss", () => {}); // it would be refused again
      else alertAbout("failed", problem, "Retry", again);
    } else if (kindOf(ctx.text) !== kind()) {
      e.preventDefault();
      location.assign(ctx.response.raw.url);
    } else {
      arrived = ctx;
    }
  };
  const failed = (e: Event): void => {
    if (!mine(e)) return;
    away = true;
    if (verb === "GET") sayAway("The server can’t be reached.", quiet, url, how, again);
    else alertAbout("failed", "The server can’t be reached; what was asked may not have been done.", "Retry", again);
  };
  document.addEventListener("htmx:after:request", answered);
  document.addEventListener("htmx:error", failed);
  if (!quiet) busy(1);
  try {
    await htmx.ajax(verb, url.pathname + url.search, {
      source,
      event,
      target: document.body,
      swap: "none",
      selectOOB: regions[kind()]?.map((r) => `${r}:outerMorph`).join(","),
      ticket,
    } as Parameters<typeof htmx.ajax>[2]);
  } finally {
    if (!quiet) busy(-1);
    document.removeEventListener("htmx:after:request", answered);
    document.removeEventListener("htmx:error", failed);
  }
  if (!arrived) return;
  settle(arrived, how, { before, wasAway, quiet }, url);
  keepFocus(focus);
}

/** The ids around an element, from within. */
function trail(element: Element | null): string[] {
  const ids: string[] = [];
  for (let e = element; e; e = e.parentElement) if (e.id) ids.push(e.id);
  return ids;
}

// What had the focus may be gone, or be folded away: what is around it is next to it.
function keepFocus(ids: string[]): void {
  const lost = (): boolean => !document.activeElement?.checkVisibility() || document.activeElement === document.body;
  for (const id of ids) {
    if (!lost()) return;
    const region = document.getElementById(id);
    region?.focus({ preventScroll: true });
    if (lost() && region) find("a[href], button, summary, input", region)?.focus({ preventScroll: true });
  }
}

// It is asked again all the time, which is said once.
function sayAway(problem: string, quiet: boolean, url: URL, how: History, again: () => void): void {
  if (!quiet) wanted = { url, how };
  const text = `${problem} What is shown is as of ${new Date(loadedAt).toISOString().slice(11, 19)} UTC; it comes back by itself.`;
  if (!quiet || !says("away", text)) alertAbout("away", text, "Retry", again);
}

function settle(ctx: Context, how: History, { before, wasAway, quiet }: Leaving, asked: URL): void {
  const final = new URL(ctx.response.raw.url || asked, location.href);
  put(how, absolute(final));
  const title = /<title>([^<]*)<\/title>/.exec(ctx.text)?.[1];
  if (title) document.title = new DOMParser().parseFromString(title, "text/html").body.textContent ?? document.title;
  loadedAt = Date.now();
  wanted = null;
  dismiss("away");
  dismiss("stale");
  if (!quiet) tidy(how);
  for (const f of arrivals) f(before, wasAway);
}

// What was left standing about is of the page before. What is being typed is kept, but
// not over a step back.
function tidy(how: History): void {
  dismiss("failed");
  for (const input of all<HTMLInputElement>("main input, aside input, section input, #search input")) {
    if ((input !== document.activeElement || how === "none") && input.type !== "checkbox") input.value = input.getAttribute("value") ?? "";
  }
  for (const menu of all("details.more[open], details.times[open], .boxtools details[open]")) menu.removeAttribute("open");
}

const kindOf = (text: string): string => /<body[^>]*\sclass="(\w+)/.exec(text)?.[1] ?? "";

function problemOf(ctx: Context): string {
  if (ctx.response.status < 400) return "";
  const page = new DOMParser().parseFromString(ctx.text, "text/html");
  const outage = page.querySelector("[data-outage]");
  if (outage) return outage.getAttribute("data-outage") ?? "";
  const said = (page.querySelector(".notice.bad") ?? page.querySelector(".empty .detail") ?? page.querySelector(".empty h1"))?.textContent?.trim();
  if (said) return said;
  return ctx.response.status >= 500 ? "The server could not answer; what is shown is as it was." : "The server refused that.";
}

function busy(by: number): void {
  waiting += by;
  for (const pane of all("#main, #filters, #place")) pane.setAttribute("aria-busy", String(waiting > 0));
  const bar = find("#busy");
  if (bar) bar.hidden = waiting === 0;
}

function followed(e: MouseEvent): void {
  if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  const link = (e.target as Element).closest?.("a[href]");
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download") || !swaps()) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || url.pathname !== location.pathname || link.getAttribute("href")?.startsWith("#")) return;
  e.preventDefault();
  void visit(url);
}

function submitted(e: SubmitEvent): void {
  const form = e.target as HTMLFormElement;
  if (e.defaultPrevented || !swaps()) return;
  const button = e.submitter instanceof HTMLButtonElement ? e.submitter : null;
  const action = new URL(button?.hasAttribute("formaction") ? button.formAction : form.getAttribute("action") || location.href, location.href);
  if (form.method === "get") {
    if (action.pathname !== location.pathname) return;
    e.preventDefault();
    const fields = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (typeof value === "string" && value.trim() !== "") fields.append(name, value.trim());
    }
    action.search = fields.toString();
    void visit(action);
    return;
  }
  if (form.method !== "post" || !/^\/(letters\/\d+\/\w+|redrives\/\d+\/\w+|demo\/sink)$/.test(action.pathname)) return;
  e.preventDefault();
  void send("POST", action, form, "replace", false, () => form.requestSubmit(e.submitter), e);
}

export function startNavigation(): void {
  if (!swaps()) return;
  const url = new URL(location.href);
  if (kind() === "triage" && (url.searchParams.has("since") || url.searchParams.has("until"))) put("replace", absolute(url));
  document.addEventListener("click", followed);
  document.addEventListener("submit", submitted);
  addEventListener("popstate", () => {
    if (location.pathname + location.search === loaded) return; // only the fragment changed
    void visit(location.href, { history: "none" });
  });
  if (kind() === "triage") {
    setInterval(() => {
      if (Date.now() - loadedAt < staleAfter || find("#alerts .alert")) return;
      const at = new Date(loadedAt).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      alertAbout("stale", `As of ${at}.`, "Refresh", () => void refresh());
    }, 15_000);
  }
}
