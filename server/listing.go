package server

import "strings"

// listing is the text of a four-letter word that lists what clients have made: watches, sessions, connections. It takes up to max
// bytes; what is written beyond that is dropped, and the text says so.
type listing struct {
	b   strings.Builder
	max int
	cut bool
}

// listingCut is the last line of a listing that is not complete.
const listingCut = "(cut: the rest is longer than maxResponseBytes)\n"

// listingsAtOnce is how many listings there are at a time: each is up to twice maxResponseBytes long until it has been sent.
const listingsAtOnce = 2

func (s *Server) newListing() *listing { return &listing{max: s.cfg.Limits.Response} }

// Write implements io.Writer. It never fails.
func (l *listing) Write(p []byte) (int, error) { return l.WriteString(string(p)) }

// WriteString implements io.StringWriter. It never fails.
func (l *listing) WriteString(text string) (int, error) {
	if l.cut = l.cut || l.b.Len()+len(text) > l.max; !l.cut {
		l.b.WriteString(text)
	}
	return len(text), nil
}

// String returns the text.
func (l *listing) String() string {
	if l.cut {
		return l.b.String() + listingCut
	}
	return l.b.String()
}

// lists says which words are answered by listings.
func lists(word string) bool {
	switch word {
	case "cons", "dump", "stat", "wchc", "wchp":
		return true
	}
	return false
}
