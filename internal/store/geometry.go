package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrGeometry is wrapped by errors that PostGIS raised over the geometry or its
// SRID itself: trying again would not help.
var ErrGeometry = errors.New("geometry refused")

// ErrUnknownSRID: spatial_ref_sys does not list it.
var ErrUnknownSRID = errors.New("unknown SRID")

// Flaw is why and where a geometry is not valid (OGC 06-103r4 §6.1.11).
type Flaw struct {
	Reason string
	At     *[2]float64 // x, y in the geometry's own CRS, where PostGIS names a place
}

// CheckTopology returns nil for a valid geometry. It takes seconds for a hundred
// thousand vertices: bound it by ctx, and mistrust any answer after its end,
// since an interrupted check may look like a flaw.
func (s *Store) CheckTopology(ctx context.Context, wkb []byte) (*Flaw, error) {
	check := s.checking.Do
	if len(wkb) > maxSharedWKB {
		check = s.checking.Alone
	}
	flaw, err := check(ctx, wkb)
	if err != nil {
		return nil, fmt.Errorf("check topology: %w", geometryError(err))
	}
	return flaw, nil
}

// checkAll checks geometries; nil for those that are valid.
func (s *Store) checkAll(ctx context.Context, wkbs [][]byte) ([]*Flaw, error) {
	flaws := make([]*Flaw, len(wkbs))
	rows, _ := s.pool.Query(ctx, `select n, coalesce((d).reason, ''), ST_X((d).location), ST_Y((d).location)
		from (select n, ST_IsValidDetail(ST_GeomFromWKB(wkb)) as d from unnest($1::bytea[]) with ordinality as t (wkb, n) offset 0) s
		where not (d).valid`, wkbs)
	var n int
	var reason string
	var x, y *float64
	_, err := pgx.ForEachRow(rows, []any{&n, &reason, &x, &y}, func() error {
		flaw := &Flaw{Reason: cmp.Or(reason, "invalid geometry")}
		if x != nil && y != nil {
			flaw.At = &[2]float64{*x, *y}
		}
		flaws[n-1] = flaw
		return nil
	})
	if err != nil {
		return nil, err
	}
	return flaws, nil
}

// projection is what Transform is asked, projected its answer.
type (
	projection struct {
		wkb  []byte
		srid int
	}
	projected struct {
		there, back []byte
		err         error
	}
)

// Transform reprojects from srid to EPSG:4326, x and y in the order of GIS
// whatever the authority says, and back again: there is WKB in 4326, back what
// returned in srid.
func (s *Store) Transform(ctx context.Context, wkb []byte, srid int) (there, back []byte, err error) {
	project := s.projecting.Do
	if len(wkb) > maxSharedWKB {
		project = s.projecting.Alone
	}
	p, err := project(ctx, projection{wkb, srid})
	if err == nil {
		err = p.err
	}
	if err != nil {
		return nil, nil, fmt.Errorf("transform from SRID %d: %w", srid, geometryError(err))
	}
	return p.there, p.back, nil
}

// projectAll reprojects geometries. A claim that does not fit is nothing unusual, so
// what PROJ refuses is caught row by row.
func (s *Store) projectAll(ctx context.Context, all []projection) ([]projected, error) {
	out := make([]projected, len(all))
	rows, _ := s.pool.Query(ctx, `select n, there, back, code, message
		from unnest($1::bytea[], $2::int[]) with ordinality as t (wkb, srid, n), geodlq_project(wkb, srid)`,
		column(all, func(p *projection) []byte { return p.wkb }), column(all, func(p *projection) int { return p.srid }))
	var n int
	var there, back []byte
	var code, message *string
	_, err := pgx.ForEachRow(rows, []any{&n, &there, &back, &code, &message}, func() error {
		out[n-1] = projected{there: there, back: back, err: refusal(code, message)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// WrapLongitude cuts a geometry in EPSG:4326 at 180 degrees (or -180, where it
// runs out in the west) and moves what lies beyond to the other side of the
// antimeridian (RFC 7946 §3.1.9).
func (s *Store) WrapLongitude(ctx context.Context, wkb []byte) ([]byte, error) {
	var wrapped []byte
	err := s.pool.QueryRow(ctx, `select ST_AsBinary(ST_WrapX(ST_WrapX(ST_GeomFromWKB($1), 180, -360), -180, 360), 'NDR')`, wkb).Scan(&wrapped)
	if err != nil {
		return nil, fmt.Errorf("wrap: %w", geometryError(err))
	}
	return wrapped, nil
}

// geometryError sets what PostGIS says of the geometry apart from what ails the
// database.
func geometryError(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	// PostGIS raises XX000 (internal_error) for what GEOS and PROJ refuse, and
	// 22xxx (data_exception) for what it can't read.
	if strings.Contains(pgErr.Message, "Cannot find SRID") {
		return ErrUnknownSRID
	}
	if pgErr.Code == "XX000" || strings.HasPrefix(pgErr.Code, "22") {
		return fmt.Errorf("%w: %s", ErrGeometry, pgErr.Message)
	}
	return err
}
