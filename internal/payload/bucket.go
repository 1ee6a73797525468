// Package payload keeps large payloads in a bucket, each under a key of its own
// that one row refers to: files by default, S3 by URL.
package payload

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/s3blob" // s3:// URLs
	"gocloud.dev/gcerrors"
)

var (
	// ErrMissing: the bucket answers, and has no such blob.
	ErrMissing = errors.New("the stored bytes are missing from the bucket")
	// ErrUnavailable: the bucket does not do what it is asked. It may later.
	ErrUnavailable = errors.New("the bucket is unavailable")
)

// opTimeout bounds one operation on the bucket.
const opTimeout = 30 * time.Second

// Bucket keeps blobs. Its methods may be called at once; their errors are
// ErrMissing or ErrUnavailable.
type Bucket struct {
	blobs *blob.Bucket
	files *files // nil: the bucket is not of files
}

// Open opens the bucket of a URL (s3://name?region=…, file:///dir), or of files
// under dir where the URL is empty. dir is created.
func Open(ctx context.Context, url, dir string) (*Bucket, error) {
	if path, ok := strings.CutPrefix(url, "file://"); ok {
		if strings.Contains(path, "?") {
			return nil, fmt.Errorf("bucket %q: a file URL takes no parameters", url)
		}
		url, dir = "", path
	}
	if url == "" {
		return openFiles(dir)
	}
	blobs, err := blob.OpenBucket(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("open the bucket: %w", err)
	}
	return &Bucket{blobs: blobs}, nil
}

func openFiles(dir string) (*Bucket, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the bucket: %w", err)
	}
	// What is above may be another's too, such as that of a private cluster.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("open the bucket: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("open the bucket: %w", err)
	}
	blobs, err := fileblob.OpenBucket(dir, &fileblob.Options{
		DirFileMode: 0o700, Metadata: fileblob.MetadataDontWrite,
		NoTempDir: true, // a rename stays in one file system
	})
	if err != nil {
		return nil, fmt.Errorf("open the bucket: %w", err)
	}
	return &Bucket{blobs: blobs, files: &files{root: dir}}, nil
}

// Close lets go of the bucket.
func (b *Bucket) Close() error { return b.blobs.Close() }

// Put stores a body under a new key, <owner>/<year>/<month>/<day>/<random>, and
// returns once it is durable. owner sets apart those who share a bucket.
func (b *Bucket) Put(ctx context.Context, owner string, body []byte) (string, error) {
	var unique [16]byte
	_, _ = rand.Read(unique[:]) // never fails
	day := owner + "/" + time.Now().UTC().Format(dayFormat)
	key := day + "/" + hex.EncodeToString(unique[:])
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := b.put(ctx, key, body); err != nil {
		return "", unavailable("put", err)
	}
	if b.files != nil {
		if err := b.files.syncDirs(day); err != nil {
			return "", unavailable("put", err)
		}
	}
	return key, nil
}

func (b *Bucket) put(ctx context.Context, key string, body []byte) error {
	options := &blob.WriterOptions{ContentType: "application/octet-stream", DisableContentTypeDetection: true}
	sync := func() error { return nil }
	if b.files != nil {
		if err := b.files.there(); err != nil {
			return err
		}
		options.BeforeWrite = func(as func(any) bool) error {
			var file *os.File
			if !as(&file) {
				return errors.New("the blob is no file")
			}
			sync = file.Sync
			return nil
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a writer that is closed under a cancelled context writes nothing
	w, err := b.blobs.NewWriter(ctx, key, options)
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	if err == nil {
		err = sync()
	}
	if err != nil {
		cancel()
		_ = w.Close()
		return err
	}
	return w.Close()
}

// Get is the whole of a blob.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, error) {
	return b.GetRange(ctx, key, 0, -1)
}

// GetRange is length bytes of a blob from offset on, fewer where it ends before;
// to its end for a length of -1.
func (b *Bucket) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if length == 0 {
		return []byte{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	r, err := b.blobs.NewRangeReader(ctx, key, offset, length, nil)
	if err != nil {
		return nil, b.readError(ctx, err)
	}
	defer r.Close()
	size := max(r.Size()-offset, 0)
	if length > 0 {
		size = min(size, length)
	}
	body := make([]byte, size)
	n, err := io.ReadFull(r, body)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, unavailable("get", err)
	}
	return body[:n], nil
}

// readError tells a blob that is gone from a bucket that is.
func (b *Bucket) readError(ctx context.Context, err error) error {
	if gcerrors.Code(err) != gcerrors.NotFound {
		return unavailable("get", err)
	}
	if b.files != nil {
		if err := b.files.there(); err != nil {
			return unavailable("get", err)
		}
		return ErrMissing
	}
	if there, accessErr := b.blobs.IsAccessible(ctx); accessErr != nil || !there {
		return unavailable("get", errors.Join(err, accessErr))
	}
	return ErrMissing
}

// Delete removes a blob; one that is gone already is no error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := b.blobs.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return unavailable("delete", err)
	}
	return nil
}

func unavailable(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
}
