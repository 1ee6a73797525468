package geo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
)

// scanner walks over JSON text by the grammar of RFC 8259, without building
// values. Its position is a byte offset in the body, byte order mark included.
type scanner struct {
	b        []byte
	pos      int
	depth    int
	maxDepth int // 0: maxJSONDepth
}

// maxForeignDepth is how deep JSON may be nested that is not read as GeoJSON: as deep as
// encoding/json takes it.
const maxForeignDepth = 10_000

// Members finds the members of a JSON object (RFC 8259 §4) that have certain names: the
// byte ranges of their values, the last of two with one name. Nothing is copied, and no
// other member is kept. Its error is an *Error of stage parse.
func Members(text []byte, names ...string) (map[string]Span, error) {
	s := scanner{b: text, pos: textStart(text), maxDepth: maxForeignDepth}
	if s.space(); s.peek() != '{' {
		return nil, malformed(s.pos, "not a JSON object")
	}
	spans := map[string]Span{}
	err := s.object(func(name []byte) *Error {
		span, err := s.span()
		if slices.Contains(names, string(name)) {
			spans[string(name)] = span
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.space(); s.pos < len(text) {
		return nil, malformed(s.pos, "text follows the JSON object")
	}
	return spans, nil
}

func (s *scanner) space() {
	for s.pos < len(s.b) && isSpace(s.b[s.pos]) {
		s.pos++
	}
}

// peek is the byte at the position, 0 at the end. A NUL byte is no JSON either.
func (s *scanner) peek() byte {
	if s.pos < len(s.b) {
		return s.b[s.pos]
	}
	return 0
}

func (s *scanner) unexpected(want string) *Error {
	if s.pos >= len(s.b) {
		return malformed(s.pos, "unexpected end of JSON")
	}
	return malformed(s.pos, "unexpected %s in JSON, %s is needed", quoteByte(s.b[s.pos]), want)
}

// value goes over one value of any kind.
func (s *scanner) value() *Error {
	switch c := s.peek(); {
	case c == '{':
		return s.object(func([]byte) *Error { return s.value() })
	case c == '[':
		return s.array(s.value)
	case c == '"':
		_, err := s.quoted()
		return err
	case c == '-' || isDigit(c):
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.unexpected("a value")
}

// span goes over one value and tells where it is.
func (s *scanner) span() (Span, *Error) {
	start := s.pos
	err := s.value()
	return Span{start, s.pos}, err
}

// object calls member for each member, the position at its value; member goes
// over that value. Names are unescaped.
func (s *scanner) object(member func(name []byte) *Error) *Error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.peek() == '}' {
		return s.leave()
	}
	for {
		if s.peek() != '"' {
			return s.unexpected("a member name")
		}
		name, err := s.text()
		if err != nil {
			return err
		}
		if s.space(); s.peek() != ':' {
			return s.unexpected("':'")
		}
		s.pos++
		s.space()
		if err := member(name); err != nil {
			return err
		}
		if s.space(); s.peek() == '}' {
			return s.leave()
		}
		if s.peek() != ',' {
			return s.unexpected("',' or '}'")
		}
		s.pos++
		s.space()
	}
}

// array calls element at each element; element goes over it.
func (s *scanner) array(element func() *Error) *Error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.peek() == ']' {
		return s.leave()
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.space(); s.peek() == ']' {
			return s.leave()
		}
		if s.peek() != ',' {
			return s.unexpected("',' or ']'")
		}
		s.pos++
		s.space()
	}
}

func (s *scanner) enter() *Error {
	if s.depth++; s.depth > cmp.Or(s.maxDepth, maxJSONDepth) {
		return malformed(s.pos, "JSON nested deeper than %d levels", cmp.Or(s.maxDepth, maxJSONDepth))
	}
	s.pos++
	s.space()
	return nil
}

func (s *scanner) leave() *Error {
	s.depth--
	s.pos++
	return nil
}

// text goes over a string and gives what stands in it.
func (s *scanner) text() ([]byte, *Error) {
	start := s.pos
	escaped, err := s.quoted()
	if err != nil {
		return nil, err
	}
	if escaped {
		return unescape(s.b[start:s.pos]), nil
	}
	return s.b[start+1 : s.pos-1], nil
}

// quoted goes over a string and tells whether it holds escapes.
func (s *scanner) quoted() (escaped bool, err *Error) {
	s.pos++
	for s.pos < len(s.b) {
		switch c := s.b[s.pos]; {
		case c == '"':
			s.pos++
			return escaped, nil
		case c < 0x20:
			return false, malformed(s.pos, "control character 0x%02x in a JSON string", c)
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return false, err
			}
		default:
			s.pos++
		}
	}
	return false, s.unexpected("'\"'")
}

func (s *scanner) escape() *Error {
	s.pos++
	c := s.peek()
	if c != 0 && bytes.IndexByte([]byte(`"\/bfnrt`), c) >= 0 {
		s.pos++
		return nil
	}
	if c != 'u' {
		return s.unexpected("an escape")
	}
	s.pos++
	for range 4 {
		if c := s.peek(); !isHex(c) {
			return s.unexpected("a hex digit")
		}
		s.pos++
	}
	return nil
}

// unescape resolves the escapes of a string literal that text went over. A lone
// surrogate is legal in the grammar and becomes U+FFFD.
func unescape(literal []byte) []byte {
	var v string
	if json.Unmarshal(literal, &v) != nil {
		return literal
	}
	return []byte(v)
}

func (s *scanner) number() *Error {
	if s.peek() == '-' {
		s.pos++
	}
	switch c := s.peek(); {
	case c == '0':
		s.pos++
	case isDigit(c):
		s.digits()
	default:
		return s.unexpected("a digit")
	}
	if s.peek() == '.' {
		s.pos++
		if !isDigit(s.peek()) {
			return s.unexpected("a digit")
		}
		s.digits()
	}
	if s.peek()|0x20 == 'e' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !isDigit(s.peek()) {
			return s.unexpected("a digit")
		}
		s.digits()
	}
	return nil
}

func (s *scanner) digits() {
	for isDigit(s.peek()) {
		s.pos++
	}
}

func (s *scanner) literal(word string) *Error {
	for i := range len(word) {
		if s.peek() != word[i] {
			return s.unexpected(word)
		}
		s.pos++
	}
	return nil
}

func isHex(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

// kindOf names the JSON value that begins with c, for messages.
func kindOf(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}
