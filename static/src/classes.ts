/** The classes of failure, and the token of each one's colour. */
export const classTokens = {
  malformed_payload: "malformed",
  unsupported_format: "unsupported",
  invalid_geometry: "invalid",
  crs_mismatch: "crs",
  upstream_timeout: "timeout",
  upstream_error: "upstream",
  oom: "oom",
  unknown: "unknown",
} as const;

/** The states of a letter in an order, likewise. */
export const stateTokens = {
  replayed: "good",
  failed: "danger",
  quarantined: "text",
  skipped: "skipped",
  running: "accent",
  waiting: "muted",
} as const;

export const classNames = Object.keys(classTokens) as (keyof typeof classTokens)[];
export const stateNames = Object.keys(stateTokens) as (keyof typeof stateTokens)[];
