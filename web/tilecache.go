package web

import "sync"

// tileCacheMax bounds the bytes of the tiles that are kept.
const tileCacheMax = 16 << 20

// tileOverhead is what a kept tile costs beside its bytes.
const tileOverhead = 256

// tileCache keeps tiles for as long as no letter is written. It is no more than a
// saving: every answer is checked against the version of the letters.
type tileCache struct {
	mu    sync.Mutex
	tiles map[string]keptTile
	size  int
}

type keptTile struct {
	version string
	tile    []byte
}

func (k keptTile) size(key string) int { return tileOverhead + len(key) + len(k.tile) }

func (c *tileCache) get(key, version string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.tiles[key]
	return kept.tile, ok && kept.version == version
}

// put keeps a tile, and lets go of others, whichever come first, over the bound.
func (c *tileCache) put(key, version string, tile []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tiles == nil {
		c.tiles = map[string]keptTile{}
	}
	c.drop(key)
	kept := keptTile{version, tile}
	c.tiles[key] = kept
	c.size += kept.size(key)
	for other := range c.tiles {
		if c.size <= tileCacheMax {
			return
		}
		c.drop(other)
	}
}

func (c *tileCache) drop(key string) {
	if kept, ok := c.tiles[key]; ok {
		c.size -= kept.size(key)
		delete(c.tiles, key)
	}
}
