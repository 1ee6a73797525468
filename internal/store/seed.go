package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// seedSQL makes letters number @from to @to of a run: around cities, of all
// stages, classes, statuses, sources and times, in the order of their failures, as
// capture writes them. Their events are not made, so they can't be redriven. The numbers
// decide all but the run's name.
const seedSQL = `
insert into dead_letters (work_key, kind, task, source, code_version, labels, stage, class, error, fingerprint,
	tries, attempts, redrives, geom, anchor, located_by, src_crs, geom_hash, media_type, size, sha256,
	first_failed_at, failed_at, redriven_at, resolved_at, status, reason)
select 'seed-' || @run::text || '-' || i, case when c.class = 'oom' then 'geotask' else 'event' end,
	(array['features_sync', 'cadastre_import', 'geofence_upsert', 'sensor_ingest', 'raster_tile'])[1 + h[3] % 5],
	(array['wfs-iberia', 'kataster-bb', 'fleet-eu', 'buoy-17', 'muni-0417', 'dem-mosaic', 'ais-pacific', 'default'])[1 + h[4] % 8],
	'v' || 40 + h[5] % 6, jsonb_build_object('orbit', h[6] % 90),
	c.stage, c.class, c.error || ' ' || h[7] % 100, md5(c.class || c.error)::uuid::text,
	1 + h[8] % 6, 1 + h[9] % 3, 0, p.anchor, p.anchor, case when p.anchor is null then 'none' else 'geometry' end,
	(array['', 'EPSG:4326', 'EPSG:25832', 'EPSG:3857'])[1 + h[10] % 4], '',
	'application/geo+json', 200 + h[11] % 2000, sha256(i::text::bytea),
	t.at, t.at,
	case when s.status in ('replayed', 'redriving') then t.at + interval '5 minutes' end,
	case when s.status in ('replayed', 'abandoned') then t.at + interval '10 minutes' end,
	s.status, case when s.status = 'abandoned' then 'withdrawn' else '' end
from generate_series(@from::bigint, @to::bigint) i
cross join lateral (select array(select abs(hashint8extended(i, k)) % 1000003 from generate_series(1, 16) k)::bigint[] as h) r
cross join lateral (select * from (values
	(0, 34, 'validate', 'invalid_geometry', 'Self-intersection at'),
	(34, 56, 'crs', 'crs_mismatch', 'EPSG:4326 is claimed, but x lies outside by'),
	(56, 74, 'downstream', 'upstream_timeout', 'POST sink: no answer in'),
	(74, 84, 'parse', 'malformed_payload', 'unexpected end of JSON at'),
	(84, 91, 'downstream', 'upstream_error', 'the sink answered'),
	(91, 95, 'downstream', 'unknown', 'worker lost after'),
	(95, 98, 'envelope', 'unsupported_format', 'media type is not supported, length'),
	(98, 100, 'downstream', 'oom', 'killed while reading window')) c (low, high, stage, class, error)
	where h[1] % 100 >= c.low and h[1] % 100 < c.high) c
cross join lateral (select (array['pending', 'pending', 'pending', 'pending', 'pending', 'pending', 'quarantined', 'replayed', 'replayed', 'abandoned', 'redriving'])[1 + h[2] % 11] as status) s
cross join lateral (select now() - interval '30 days' * power((@n::bigint - i + h[12] / 1000003.0) / @n::bigint, 2) as at) t
cross join lateral (select case when c.stage in ('envelope', 'parse') then null else
	ST_SetSRID(ST_MakePoint(
		city.lon + ((h[13] + h[14]) / 1000003.0 - 1) * city.spread,
		city.lat + ((h[15] + h[16]) / 1000003.0 - 1) * city.spread * 0.6), 4326) end as anchor
	from (select * from (values
		(2.35, 48.86, 2.0), (13.40, 52.52, 2.5), (-3.70, 40.42, 3.0), (-9.14, 38.72, 1.5), (2.17, 41.39, 1.5), (12.50, 41.90, 2.0),
		(-0.13, 51.51, 2.0), (16.37, 48.21, 1.5), (21.01, 52.23, 2.0), (18.07, 59.33, 2.0), (28.98, 41.01, 2.0), (31.24, 30.04, 2.0),
		(3.38, 6.52, 2.0), (36.82, -1.29, 2.0), (28.05, -26.20, 2.0), (77.21, 28.61, 3.0), (72.88, 19.08, 2.0), (121.47, 31.23, 2.5),
		(139.69, 35.69, 2.0), (126.98, 37.57, 1.5), (103.82, 1.35, 1.0), (151.21, -33.87, 2.0), (178.44, -18.14, 1.5), (-74.01, 40.71, 2.5),
		(-118.24, 34.05, 2.0), (-99.13, 19.43, 2.0), (-46.63, -23.55, 2.5), (-58.38, -34.60, 2.0)) v (lon, lat, spread)
		offset (h[4] * 7 + h[3]) % 28 limit 1) city) p`

// seedChunk is how many letters one statement makes.
const seedChunk = 20_000

// seedConns is how many connections seed at once.
const seedConns = 4

// Seed makes n synthetic letters, beside those of earlier runs.
func (s *Store) Seed(ctx context.Context, n int) error {
	var run string
	if err := s.pool.QueryRow(ctx, "select to_char(clock_timestamp() at time zone 'utc', 'YYYYMMDD\"T\"HH24MISSMS')").Scan(&run); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(seedConns)
	for from := 1; from <= n; from += seedChunk {
		group.Go(func() error {
			return s.seedLetters(groupCtx, run, from, min(from+seedChunk-1, n), n)
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if _, err := s.Fold(ctx); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if _, err := s.pool.Exec(ctx, "vacuum analyze dead_letters"); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	return nil
}

func (s *Store) seedLetters(ctx context.Context, run string, from, to, n int) error {
	_, err := s.pool.Exec(ctx, seedSQL, pgx.NamedArgs{"run": run, "from": from, "to": to, "n": n})
	return err
}
