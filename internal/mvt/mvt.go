// Package mvt writes layers of points as a Mapbox Vector Tile (MVT 2.1).
package mvt

import "google.golang.org/protobuf/encoding/protowire"

// Extent is the width of a tile in the units of its points.
const Extent = 4096

// Layer is a layer of points with properties. Layers of one tile are concatenated.
type Layer struct {
	name     string
	features []byte
	keys     index[string]
	values   index[value]
}

// value is a text, or a number where the text is empty.
type value struct {
	text   string
	number uint64
}

// index numbers what it is given in the order of first appearance.
type index[T comparable] struct {
	at  map[T]uint64
	all []T
}

func (x *index[T]) of(v T) uint64 {
	n, ok := x.at[v]
	if !ok {
		if x.at == nil {
			x.at = map[T]uint64{}
		}
		n = uint64(len(x.all))
		x.at[v] = n
		x.all = append(x.all, v)
	}
	return n
}

// NewLayer is a layer without features.
func NewLayer(name string) *Layer { return &Layer{name: name} }

// Point is one feature of a layer, written by Add.
type Point struct {
	X, Y int // 0 to Extent
	tags []byte
}

// Text gives the point a property.
func (l *Layer) Text(p *Point, key, text string) { l.tag(p, key, value{text: text}) }

// Number gives the point a property.
func (l *Layer) Number(p *Point, key string, n uint64) { l.tag(p, key, value{number: n}) }

func (l *Layer) tag(p *Point, key string, v value) {
	p.tags = protowire.AppendVarint(p.tags, l.keys.of(key))
	p.tags = protowire.AppendVarint(p.tags, l.values.of(v))
}

// Add appends the point to the layer.
func (l *Layer) Add(p Point) {
	const moveTo, typePoint = 1<<3 | 1, 1 // MVT 2.1 §4.3.1: one MoveTo
	geometry := protowire.AppendVarint(nil, moveTo)
	geometry = protowire.AppendVarint(geometry, protowire.EncodeZigZag(int64(p.X)))
	geometry = protowire.AppendVarint(geometry, protowire.EncodeZigZag(int64(p.Y)))
	var feature []byte
	feature = appendBytes(feature, 2, p.tags)
	feature = protowire.AppendTag(feature, 3, protowire.VarintType)
	feature = protowire.AppendVarint(feature, typePoint)
	feature = appendBytes(feature, 4, geometry)
	l.features = appendBytes(l.features, 2, feature)
}

// Bytes is the layer as part of a tile, empty without features.
func (l *Layer) Bytes() []byte {
	if len(l.features) == 0 {
		return nil
	}
	var layer []byte
	layer = appendBytes(layer, 1, []byte(l.name))
	layer = append(layer, l.features...)
	for _, key := range l.keys.all {
		layer = appendBytes(layer, 3, []byte(key))
	}
	for _, v := range l.values.all {
		layer = appendBytes(layer, 4, v.bytes())
	}
	layer = protowire.AppendTag(layer, 5, protowire.VarintType)
	layer = protowire.AppendVarint(layer, Extent)
	layer = protowire.AppendTag(layer, 15, protowire.VarintType)
	layer = protowire.AppendVarint(layer, 2)
	return appendBytes(nil, 3, layer)
}

func (v value) bytes() []byte {
	if v.text != "" {
		return appendBytes(nil, 1, []byte(v.text))
	}
	return protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), v.number)
}

func appendBytes(to []byte, field protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), b)
}
