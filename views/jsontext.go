package views

import (
	"context"
	"io"
	"strings"

	"github.com/a-h/templ"
)

// maxHighlighted bounds the text that is set in colours: each word costs an
// element.
const maxHighlighted = 12 << 10

// word is a piece of JSON text and what it is: key, text, number, word (true, false,
// null), or "" for all between.
type word struct{ kind, text string }

// words takes JSON text apart for reading, character by character as it stands: it
// need not be valid. Neighbours of one kind are joined.
func words(text string) []word {
	var out []word
	add := func(kind string, n int) {
		if last := len(out) - 1; kind == "" && last >= 0 && out[last].kind == "" {
			out[last].text += text[:n]
		} else {
			out = append(out, word{kind, text[:n]})
		}
		text = text[n:]
	}
	for text != "" {
		switch c := text[0]; {
		case c == '"':
			n := stringEnd(text)
			kind := "text"
			if strings.HasPrefix(strings.TrimLeft(text[n:], " \t\r\n"), ":") {
				kind = "key"
			}
			add(kind, n)
		case c == '-' || c >= '0' && c <= '9':
			add("number", 1+strings.IndexFunc(text[1:]+" ", func(r rune) bool { return !strings.ContainsRune("0123456789.eE+-", r) }))
		case strings.HasPrefix(text, "true"), strings.HasPrefix(text, "null"):
			add("word", 4)
		case strings.HasPrefix(text, "false"):
			add("word", 5)
		default:
			add("", 1+strings.IndexAny(text[1:]+`"`, `"-0123456789tfn`))
		}
	}
	return out
}

// payloadText is the text of a payload, in colours where it is JSON and not too long.
// It writes itself, since white space counts in it.
func payloadText(v PayloadView) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		var b strings.Builder
		if !strings.Contains(v.MediaType, "json") || len(v.Text) > maxHighlighted {
			b.WriteString(templ.EscapeString(v.Text))
		} else {
			for _, word := range words(v.Text) {
				if word.kind == "" {
					b.WriteString(templ.EscapeString(word.text))
					continue
				}
				b.WriteString(`<span class="json-` + word.kind + `">` + templ.EscapeString(word.text) + `</span>`)
			}
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}

// stringEnd is behind the closing quote of the string that text begins with, or the
// end of text.
func stringEnd(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}
