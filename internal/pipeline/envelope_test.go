package pipeline

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"geodlq/internal/dlq"
)

func zipped(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(bytes.Repeat([]byte{'a'}, n)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGunzipKeepsToTheLimitAndCopiesNothingAsItGrows(t *testing.T) {
	const limit = 4 << 20
	for _, n := range []int{0, 1, believed, believed + 1, 1 << 20, limit} {
		body := zipped(t, n)
		out, err := Gunzip(body, limit)
		if err != nil || len(out) != n || cap(out) > n+bytes.MinRead {
			t.Errorf("%d bytes: %d of %d, %v", n, len(out), cap(out), err)
		}
		if n > limit/2 {
			continue
		}
		// RFC 1952 §2.2: members follow one another.
		if out, err = Gunzip(append(bytes.Clone(body), body...), limit); err != nil || len(out) != 2*n {
			t.Errorf("two members of %d bytes: %d, %v", n, len(out), err)
		}
	}
	if _, err := Gunzip(zipped(t, limit+1), limit); !errors.Is(err, dlq.ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
}

func TestAGzipBodyThatLiesAboutItsSizeGetsNoMoreThanItHolds(t *testing.T) {
	body := zipped(t, 100)
	binary.LittleEndian.PutUint32(body[len(body)-4:], 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Gunzip(body, 32<<20)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 1<<20 {
		t.Errorf("%d bytes for 100, %v", took, err)
	}
}
