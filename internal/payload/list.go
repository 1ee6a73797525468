package payload

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// dayFormat is the part of a key that says when it was made.
const dayFormat = "2006/01/02"

// Cursor is how far Older has come: the zero Cursor begins, and it is zero again at
// the end.
type Cursor struct {
	day  string
	page string
}

// Done reports whether there is no more.
func (c Cursor) Done() bool { return c == Cursor{} }

// Older lists keys of an owner whose blobs were written before a time, about limit
// at once, and where to go on. It goes by days, oldest first, since a directory is
// walked anew for each of its pages.
func (b *Bucket) Older(ctx context.Context, owner string, than time.Time, from Cursor, limit int) ([]string, Cursor, error) {
	if b.files != nil {
		if err := b.files.there(); err != nil {
			return nil, from, unavailable("list", err)
		}
	}
	days, err := b.days(ctx, owner)
	if err != nil {
		return nil, from, unavailable("list", err)
	}
	last := owner + "/" + than.UTC().Format(dayFormat) + "/"
	var keys []string
	seen := 0
	for _, day := range days {
		if day < from.day || day > last {
			continue
		}
		page := blob.FirstPageToken
		if day == from.day {
			page = []byte(from.page)
		}
		for len(page) > 0 {
			if seen >= limit {
				return keys, Cursor{day, string(page)}, nil
			}
			objects, next, err := b.blobs.ListPage(ctx, page, limit, &blob.ListOptions{Prefix: day})
			if gcerrors.Code(err) == gcerrors.NotFound {
				break // a file went while the directory was walked: another time
			}
			if err != nil {
				return keys, from, unavailable("list", err)
			}
			for _, o := range objects {
				if o.ModTime.Before(than) {
					keys = append(keys, o.Key)
				}
			}
			seen += len(objects)
			page = next
		}
	}
	return keys, Cursor{}, nil
}

// days are the prefixes of an owner's days, oldest first.
func (b *Bucket) days(ctx context.Context, owner string) ([]string, error) {
	prefixes := []string{owner + "/"}
	for range strings.Count(dayFormat, "/") + 1 {
		var deeper []string
		for _, prefix := range prefixes {
			list := b.blobs.List(&blob.ListOptions{Prefix: prefix, Delimiter: "/"})
			for {
				o, err := list.Next(ctx)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return nil, err
				}
				if o.IsDir {
					deeper = append(deeper, o.Key)
				}
			}
		}
		prefixes = deeper
	}
	return prefixes, nil
}
