package web

import (
	"context"
	"sync"
	"time"

	"geodlq/internal/dlq"
)

// depthLife is how old the figures of the whole queue may be: every page shows
// them, and they ask for a look at every open letter.
const depthLife = 500 * time.Millisecond

// depthCache keeps the last depth for a moment. What this process does to letters
// forgets it.
type depthCache struct {
	mu    sync.Mutex
	depth *dlq.Depth
	at    time.Time
}

func (c *depthCache) get(ctx context.Context, read func(context.Context) (*dlq.Depth, error)) (*dlq.Depth, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.depth != nil && time.Since(c.at) < depthLife {
		return c.depth, nil
	}
	depth, err := read(ctx)
	if err != nil {
		return nil, err
	}
	c.depth, c.at = depth, time.Now()
	return depth, nil
}

func (c *depthCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.depth = nil
}
