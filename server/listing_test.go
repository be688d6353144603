package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/wire"
)

// listingCut is the last line of a listing that is not complete.
const listingCut = "(cut: the rest is longer than maxResponseBytes)\n"

// A listing that would be longer than an answer may be is cut, and says so.
func TestListingsAreBounded(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, func(c *Config) {
		allWords(c)
		c.Limits.Response = 2048
	})
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	for i := range 30 {
		path := fmt.Sprintf("/%02d%s", i, strings.Repeat("x", 97))
		c.call(wire.OpCreate, create(path, nil, wire.ModeEphemeral))
		c.call(wire.OpExists, &wire.PathWatchRequest{Path: path, Watch: true})
	}
	for _, word := range []string{"wchc", "wchp", "dump"} {
		text := dialReal(t, s).word(word)
		if whole, cut := strings.CutSuffix(text, listingCut); !cut || len(whole) > 2048 || len(whole) < 1500 {
			t.Errorf("%s: %d bytes that end with %q", word, len(text), text[max(0, len(text)-60):])
		}
	}
	for _, word := range []string{"stat", "cons"} {
		if text := dialReal(t, s).word(word); strings.HasSuffix(text, listingCut) {
			t.Errorf("%s is cut", word)
		}
	}
}
