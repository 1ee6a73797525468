package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	var valid bool
	var reason *string
	var x, y *float64
	err := s.pool.QueryRow(ctx, `select valid, reason, ST_X(location), ST_Y(location)
		from ST_IsValidDetail(ST_GeomFromWKB($1))`, wkb).Scan(&valid, &reason, &x, &y)
	if err != nil {
		return nil, fmt.Errorf("check topology: %w", geometryError(err))
	}
	if valid {
		return nil, nil
	}
	flaw := &Flaw{Reason: "invalid geometry"}
	if reason != nil {
		flaw.Reason = *reason
	}
	if x != nil && y != nil {
		flaw.At = &[2]float64{*x, *y}
	}
	return flaw, nil
}

// Transform reprojects from srid to EPSG:4326, x and y in the order of GIS
// whatever the authority says, and back again: there is WKB in 4326, back what
// returned in srid.
func (s *Store) Transform(ctx context.Context, wkb []byte, srid int) (there, back []byte, err error) {
	err = s.pool.QueryRow(ctx, `select ST_AsBinary(t, 'NDR'), ST_AsBinary(ST_Transform(t, $2::int), 'NDR')
		from (select ST_Transform(ST_GeomFromWKB($1, $2::int), 4326) as t offset 0) s`, wkb, srid).Scan(&there, &back)
	if err != nil {
		return nil, nil, fmt.Errorf("transform from SRID %d: %w", srid, geometryError(err))
	}
	return there, back, nil
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
