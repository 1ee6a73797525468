package geo

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrUnknownCRS is matched by every error of LookupCRS.
var ErrUnknownCRS = errors.New("unknown CRS")

// ErrUnusableCRS is matched, beside ErrUnknownCRS, where the claim names a CRS
// in which no map coordinates are: a geocentric or vertical one, one on another
// body, or a number that Esri and EPSG give different meanings.
var ErrUnusableCRS = errors.New("not a horizontal CRS")

// unusableError names a claim that is known and of no use.
type unusableError struct{ text string }

func (e *unusableError) Error() string { return e.text }
func (e *unusableError) Is(target error) bool {
	return target == ErrUnusableCRS || target == ErrUnknownCRS
}

// LookupCRS resolves a claim as written: "EPSG:n", "ESRI:n", the names of WMS
// and OGC for longitude, latitude (CRS84, OGC:CRS84, CRS:84), OGC URNs, OGC
// http(s) URIs, also in <…> as OGC API Features part 2 (18-058r1 §6.3) writes
// them in Content-Crs, and the fragment URI of GML 2. Names such as "WGS84" are
// none.
//
// authorityOrder is true only for an OGC http(s) URI (…opengis.net/def/crs/…):
// coordinates under it are in the authority's axis order, so that they are to be
// swapped if the CRS is NorthingFirst. Under every other spelling they are x, y,
// as GeoJSON writers have it.
//
// The error holds the claim, quoted and cut short.
func LookupCRS(claim string) (crs CRS, authorityOrder bool, err error) {
	name, ok := parseClaim(claim)
	if !ok {
		return CRS{}, false, fmt.Errorf("%w: %s", ErrUnknownCRS, quoteShort(claim))
	}
	entry, ok := name.resolve()
	if !ok {
		return CRS{}, false, fmt.Errorf("%w: %s", ErrUnknownCRS, quoteShort(claim))
	}
	if entry.unusable != "" {
		return CRS{}, false, &unusableError{
			fmt.Sprintf("%v: %s (%s)", ErrUnusableCRS, quoteShort(claim), entry.unusable),
		}
	}
	return entry.CRS, name.authorityOrder, nil
}

// crsName is a claim taken apart; authority and code are in upper case.
type crsName struct {
	authority, code string
	authorityOrder  bool
}

func parseClaim(claim string) (crsName, bool) {
	claim = strings.TrimSpace(claim)
	if len(claim) > maxClaimBytes {
		return crsName{}, false
	}
	upper := strings.ToUpper(claim)
	if inner, ok := strings.CutPrefix(upper, "<"); ok {
		if upper, ok = strings.CutSuffix(inner, ">"); !ok || !strings.HasPrefix(upper, "HTTP") && !strings.HasPrefix(upper, "URN:") {
			return crsName{}, false
		}
	}
	for _, prefix := range []string{"URN:OGC:DEF:CRS:", "URN:X-OGC:DEF:CRS:"} {
		if rest, ok := strings.CutPrefix(upper, prefix); ok {
			return versionedName(strings.Split(rest, ":"))
		}
	}
	if rest, ok := cutScheme(upper); ok {
		return uriName(rest)
	}
	if authority, code, ok := strings.Cut(upper, ":"); ok {
		return crsName{authority: strings.TrimSpace(authority), code: strings.TrimSpace(code)}, true
	}
	return crsName{authority: "OGC", code: upper}, true
}

func cutScheme(uri string) (string, bool) {
	if rest, ok := strings.CutPrefix(uri, "HTTP://"); ok {
		return rest, true
	}
	return strings.CutPrefix(uri, "HTTPS://")
}

// uriName reads a URI without its scheme.
func uriName(uri string) (crsName, bool) {
	path, ok := strings.CutPrefix(strings.TrimPrefix(uri, "WWW."), "OPENGIS.NET/")
	if !ok {
		return crsName{}, false
	}
	if code, ok := strings.CutPrefix(path, "GML/SRS/EPSG.XML#"); ok {
		return crsName{authority: "EPSG", code: code}, true
	}
	path, ok = strings.CutPrefix(path, "DEF/CRS/")
	if !ok {
		return crsName{}, false
	}
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	if len(parts) != 3 {
		return crsName{}, false
	}
	name, ok := versionedName(parts)
	name.authorityOrder = true
	return name, ok
}

// versionedName reads authority, version, code. Some writers leave the version
// and its colon out.
func versionedName(parts []string) (crsName, bool) {
	if len(parts) == 3 && strings.Trim(parts[1], "0123456789.") == "" {
		return crsName{authority: parts[0], code: parts[2]}, true
	}
	if len(parts) == 2 {
		return crsName{authority: parts[0], code: parts[1]}, true
	}
	return crsName{}, false
}

// largestEPSG bounds EPSG's own codes; numbers above it under EPSG's name are
// Esri's or Google's.
const largestEPSG = 32767

// resolve finds the CRS of a name. Esri's numbers under EPSG's name and EPSG's
// under Esri's are both common, and no number of theirs is taken for another's.
func (n crsName) resolve() (crsEntry, bool) {
	switch n.authority {
	case "OGC", "CRS":
		return n.resolveOGC()
	case "EPSG", "ESRI":
	default:
		return crsEntry{}, false
	}
	code, ok := parseCode(n.code)
	if !ok {
		return crsEntry{}, false
	}
	switch code {
	case 900913, 102100, 102113, 3785:
		// All of them are spherical Mercator by an older name.
		return find("EPSG", 3857)
	}
	if entry, ok := find(n.authority, code); ok {
		return entry, true
	}
	if n.authority == "EPSG" && code > largestEPSG {
		return find("ESRI", code)
	}
	if n.authority == "ESRI" && code <= largestEPSG {
		return find("EPSG", code)
	}
	return crsEntry{}, false
}

func find(authority string, code int) (crsEntry, bool) {
	entry, ok := crsTable()[crsKey{authority, code}]
	return entry, ok
}

// resolveOGC knows the CRSs of OGC, which are EPSG's with longitude first.
func (n crsName) resolveOGC() (crsEntry, bool) {
	code := 0
	switch n.authority + ":" + n.code {
	case "OGC:CRS84", "OGC:CRS84H", "CRS:84":
		code = 4326
	case "OGC:CRS83", "CRS:83":
		code = 4269
	case "OGC:CRS27", "CRS:27":
		code = 4267
	}
	entry, ok := find("EPSG", code)
	entry.NorthingFirst = false
	return entry, ok
}

// parseCode reads a code: digits alone, no more of them than codes have.
func parseCode(s string) (int, bool) {
	if len(s) == 0 || len(s) > 8 || s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}
