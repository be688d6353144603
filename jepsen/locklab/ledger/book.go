package ledger

import (
	"fmt"

	"lockkeeper/recipes/fence"
)

// A Rule is a book's rule of refusal.
type Rule string

// The rules. All books see the same requests.
const (
	// Open refuses nothing.
	Open Rule = "open"
	// Fenced refuses a token that is smaller than the largest that came with a read or a write.
	Fenced Rule = "fenced"
	// WritesOnly does the same, but looks at writes only, as most descriptions of fencing do.
	WritesOnly Rule = "fenced-writes"
	// Twin is a fence with a planted bug: it compares with the first token that it saw, not with
	// the largest.
	Twin Rule = "fenced-twin"
	// Versions looks at no token. It refuses a write that was made of a value that is no longer the
	// newest: a version that is compared at the update.
	Versions Rule = "versions"
	// Asked asks the servers at each request whether the token is the holder's, as Chubby's
	// CheckSequencer does. It has a book only while there is somebody to ask (Ledger.Ask).
	Asked Rule = "asked"
	// Inside is no book of the ledger: the data are in the system that has the lock (lock.Store).
	Inside Rule = "inside"
	// Place is no book either: the counter is in a real store, under the fence for such stores
	// (lock.Counter).
	Place Rule = "place"
)

// Rules are the rules of the ledger's books.
var Rules = []Rule{Open, Fenced, WritesOnly, Twin, Versions, Asked}

// A book is the counters of all resources under one rule.
type book struct {
	rule   Rule
	gate   fence.Gate        // of Fenced and WritesOnly
	first  map[string]uint64 // of Twin
	values map[string]int64
}

func newBook(rule Rule) *book {
	return &book{rule: rule, first: make(map[string]uint64), values: make(map[string]int64)}
}

// read returns the value, or an error if the rule refuses the reader.
func (b *book) read(resource string, token uint64) (value int64, err error) {
	if b.rule != WritesOnly && b.rule != Versions {
		err = b.admit(resource, token, func() {})
	}
	return b.values[resource], err
}

// write makes the value base+1, and returns the value before.
func (b *book) write(resource string, token uint64, base int64) (before int64, err error) {
	err = b.admit(resource, token, func() {
		before = b.values[resource]
		if b.rule == Versions && before != base {
			return
		}
		b.values[resource] = base + 1
	})
	if err == nil && b.rule == Versions && before != base {
		err = fmt.Errorf("ledger: version %d is older than %d", base, before)
	}
	return before, err
}

// admit calls f if the rule accepts the token.
func (b *book) admit(resource string, token uint64, f func()) error {
	switch b.rule {
	case Open, Versions, Asked:
		f()
		return nil
	case Twin:
		first, ok := b.first[resource]
		if !ok {
			b.first[resource] = token
		}
		if token < first || token == 0 {
			return fmt.Errorf("ledger: token %d is smaller than %d", token, first)
		}
		f()
		return nil
	}
	return b.gate.Do(resource, int64(token), func() error {
		f()
		return nil
	})
}
