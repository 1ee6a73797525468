package payload_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"geodlq/internal/payload"
)

// buckets are one of each kind: files, and S3 over HTTP.
func buckets(t *testing.T) map[string]*payload.Bucket {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	backend := s3mem.New()
	if err := backend.CreateBucket("letters"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	all := map[string]*payload.Bucket{}
	for name, location := range map[string]string{
		"files":         "",
		"files by URL":  "file://" + t.TempDir() + "/sub",
		"S3":            "s3://letters?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL),
		"S3 and prefix": "s3://letters?prefix=a/&region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL),
	} {
		b, err := payload.Open(t.Context(), location, filepath.Join(t.TempDir(), "blobs"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(func() { _ = b.Close() })
		all[name] = b
	}
	return all
}

func TestABlobComesBackWholeAndInRangesUntilItIsDeleted(t *testing.T) {
	ctx := t.Context()
	for name, b := range buckets(t) {
		body := append([]byte("\xef\xbb\xbf\x00\xff\r\n"), bytes.Repeat([]byte{0, 1, 2, 0xfe}, 400_000)...)
		key, err := b.Put(ctx, "me", body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := b.Get(ctx, key); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: %d bytes came back, %v", name, len(got), err)
		}
		for _, r := range [][2]int64{{0, 5}, {3, 4}, {1_600_000, 7}, {1_600_000, 100}, {1_599_999, -1}, {5, 0}} {
			want := body[r[0]:]
			if r[1] >= 0 {
				want = want[:min(r[1], int64(len(want)))]
			}
			if got, err := b.GetRange(ctx, key, r[0], r[1]); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: range %v is %d bytes, %v", name, r, len(got), err)
			}
		}
		other, err := b.Put(ctx, "me", body)
		if err != nil || other == key {
			t.Errorf("%s: the same body twice under %q and %q, %v", name, key, other, err)
		}
		for range 2 { // again is no error
			if err := b.Delete(ctx, key); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := b.Get(ctx, key); !errors.Is(err, payload.ErrMissing) || errors.Is(err, payload.ErrUnavailable) {
			t.Errorf("%s: after its deletion: %v", name, err)
		}
		if _, err := b.Get(ctx, other); err != nil {
			t.Errorf("%s: the other went too: %v", name, err)
		}
	}
}

func TestListsOnlyWhatIsOldAndOnesOwnPageByPage(t *testing.T) {
	ctx := t.Context()
	for name, b := range buckets(t) {
		var mine []string
		for range 7 {
			key, err := b.Put(ctx, "me", []byte("x"))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			mine = append(mine, key)
		}
		if _, err := b.Put(ctx, "me2", []byte("x")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list := func(than time.Time) (keys []string, pages int) {
			var from payload.Cursor
			for {
				page, next, err := b.Older(ctx, "me", than, from, 3)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				keys, from, pages = append(keys, page...), next, pages+1
				if from.Done() {
					return keys, pages
				}
			}
		}
		if keys, _ := list(time.Now().Add(-time.Minute)); len(keys) != 0 {
			t.Errorf("%s: too young: %v", name, keys)
		}
		slices.Sort(mine)
		if keys, pages := list(time.Now().Add(time.Minute)); !slices.Equal(keys, mine) || pages != 3 {
			t.Errorf("%s: %v in %d pages, want %v", name, keys, pages, mine)
		}
	}
}

func TestABucketThatIsAwayIsNotABlobThatIsMissing(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "blobs")
	b, err := payload.Open(ctx, "", dir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := b.Put(ctx, "me", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	server := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	location := "s3://letters?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL)
	noBucket, err := payload.Open(ctx, location, "")
	if err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	noServer, err := payload.Open(ctx, strings.ReplaceAll(location, url.QueryEscape(server.URL), url.QueryEscape(gone.URL)), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	for name, b := range map[string]*payload.Bucket{"no directory": b, "no bucket": noBucket, "no server": noServer} {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // a client tries for longer
		defer cancel()
		for what, err := range map[string]error{
			"get":    func() error { _, err := b.Get(ctx, key); return err }(),
			"put":    func() error { _, err := b.Put(ctx, "me", []byte("x")); return err }(),
			"list":   func() error { _, _, err := b.Older(ctx, "me", time.Now(), payload.Cursor{}, 10); return err }(),
			"delete": b.Delete(ctx, key),
		} {
			if what == "delete" && name != "no server" {
				continue // what is away is gone
			}
			if !errors.Is(err, payload.ErrUnavailable) || errors.Is(err, payload.ErrMissing) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the directory was made anew")
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Get(ctx, key); err != nil || string(got) != "x" {
		t.Errorf("back again: %q, %v", got, err)
	}
}

func TestFilesLeaveNothingBesideTheBlobs(t *testing.T) {
	dir := t.TempDir()
	b, err := payload.Open(t.Context(), "", dir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := b.Put(t.Context(), "me", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Put(over, "me", []byte("y")); !errors.Is(err, context.Canceled) {
		t.Errorf("under a context that is over: %v", err)
	}
	var files []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if !d.IsDir() {
			files = append(files, path)
		}
		return nil
	})
	if !slices.Equal(files, []string{filepath.Join(dir, filepath.FromSlash(key))}) {
		t.Errorf("%v", files)
	}
}
