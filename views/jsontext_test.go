package views

import (
	"reflect"
	"strings"
	"testing"
)

func TestWordsTellWhatEachPieceIsAndLoseNothing(t *testing.T) {
	got := words(`{"a\"b": [-1.5e+7, "x:y", null], "n":true}`)
	want := []word{
		{"", "{"}, {"key", `"a\"b"`}, {"", ": ["}, {"number", "-1.5e+7"}, {"", ", "}, {"text", `"x:y"`}, {"", ", "}, {"word", "null"},
		{"", "], "}, {"key", `"n"`}, {"", ":"}, {"word", "true"}, {"", "}"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	for _, text := range []string{"", `"`, `"\`, "-", "tr", "{]", "nul", `{"a":}`, "ü\"ü", "\x00", `9007199254740993`, "falsetrue"} {
		var b strings.Builder
		for _, w := range words(text) {
			b.WriteString(w.text)
		}
		if b.String() != text {
			t.Errorf("%q came back as %q", text, b.String())
		}
	}
}
